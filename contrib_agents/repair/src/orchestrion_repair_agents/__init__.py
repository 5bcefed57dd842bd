"""Agents that repair programs."""

__version__ = "0.1.0"
