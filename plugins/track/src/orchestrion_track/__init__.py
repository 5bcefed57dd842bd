"""Trackers: what a run measures, in the tools that people already use.

A tracker of your own derives from `Tracker`; what it connects to is a `Backend`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_track.interfaces import Backend as Backend
    from orchestrion_track.interfaces import Point as Point
    from orchestrion_track.interfaces import RunInfo as RunInfo
    from orchestrion_track.interfaces import Tracker as Tracker

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
