"""Runs for the tests: written to a store as a trainer would, without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
