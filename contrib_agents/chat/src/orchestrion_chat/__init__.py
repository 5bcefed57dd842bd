"""Agents that ask a language model."""

__version__ = "0.2.0"
