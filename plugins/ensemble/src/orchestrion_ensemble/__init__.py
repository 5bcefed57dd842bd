"""Ensembles: several agents answer, an aggregator makes one result of their answers."""
