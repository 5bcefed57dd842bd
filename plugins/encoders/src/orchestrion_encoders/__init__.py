"""Encoders: what a policy decides on, as numbers."""
