"""Agents that repair programs."""

__version__ = "0.2.0"
