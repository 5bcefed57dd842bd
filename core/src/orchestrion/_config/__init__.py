"""Reads, checks and wires configs; `orchestrion.config` has the public names."""
