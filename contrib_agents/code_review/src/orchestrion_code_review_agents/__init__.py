"""Agents that play the roles of a code review, with stated skills and without a model."""

__version__ = "0.1.0"
