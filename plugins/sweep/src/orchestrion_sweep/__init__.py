"""Sweeps: which settings of a config are best, found by trials under one budget."""

from __future__ import annotations
