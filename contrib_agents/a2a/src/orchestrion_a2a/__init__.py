"""Agents that speak the A2A protocol."""

__version__ = "0.2.0"
