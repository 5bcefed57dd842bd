"""Simulated speakers of known skill behind a real HTTP server, and a text task to try them on."""

__version__ = "0.2.0"
