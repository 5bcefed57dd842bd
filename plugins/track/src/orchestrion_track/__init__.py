"""Trackers: what a run measures, in the tools that people already use.

A tracker of your own derives from `Tracker`; what it connects to is a `Backend`.
"""

from __future__ import annotations

from orchestrion_track.interfaces import Backend, Point, RunInfo, Tracker

__all__ = ["Backend", "Point", "RunInfo", "Tracker"]
