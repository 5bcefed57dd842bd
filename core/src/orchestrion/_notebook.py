"""Show the progress of a run in a notebook."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestrion._interfaces import Metrics
from orchestrion._progress import Progress, at_most

_EVERY = 0.25
"""Seconds between two updates of what is shown."""


def notebook_progress(directory: Path) -> Progress:
    """Return a bar if a notebook's kernel runs this code, else a display of nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return NotebookBar(directory) if hasattr(shell, "kernel") else Progress()


class NotebookBar(Progress):
    """Shows a bar, the reward, the share of solved problems and the time left in one line."""

    def __init__(self, directory: Path) -> None:
        self._ipython: Any = import_module("IPython.display")
        self._directory = directory
        self._name, self._total, self._done, self._began_at = "", 0, 0, 0
        self._shown = self._began = time.monotonic()
        self._handle: Any = self._ipython.display(self._line("begins"), display_id=True)

    def _line(self, text: str) -> Any:
        from orchestrion._html import escaped

        bar = f"<progress value='{self._done}' max='{max(1, self._total)}'></progress>"
        where = f"<small>{escaped(str(self._directory))}</small>"
        count = f"{self._done}/{self._total}" if self._total else ""
        text = escaped(f"{self._name} {count} {text}")
        return self._ipython.HTML(f"<div>{bar} {text} {where}</div>")

    def _show(self, text: str) -> None:
        self._shown = time.monotonic()
        self._handle.update(self._line(text))

    def stage(self, name: str, iterations: int, done: int) -> None:
        self._name, self._total, self._done, self._began_at = name, iterations, done, done
        self._began = time.monotonic()
        self._show("")

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        self._done = iteration + 1
        now = time.monotonic()
        if now - self._shown < _EVERY and self._done < self._total:
            return
        each = (now - self._began) / (self._done - self._began_at)
        parts = [f"{name} {metrics[name]:.3f}" for name in ("reward", "success") if name in metrics]
        self._show(", ".join([*parts, f"{each * (self._total - self._done):.0f} s left"]))

    def evaluating(self, name: str, known: bool) -> None:
        self._show(f"evaluating {name}")

    def training(self, name: str, episodes: int, most: int | None) -> None:
        now = time.monotonic()
        if not episodes or now - self._shown >= _EVERY:
            self._show(f"training {name}: {episodes:,}{at_most(most)} episodes")

    def ended(self, status: str) -> None:
        self._show(status)
