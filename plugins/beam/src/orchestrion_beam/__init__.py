"""Beam search over what a team could say, with group-relative advantages."""
