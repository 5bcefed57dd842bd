"""Executors: where the episodes of a run are executed."""
