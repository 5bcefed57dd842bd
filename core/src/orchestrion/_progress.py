"""Show a person the progress of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrion._interfaces import Metrics


class Progress:
    """Show a person how a run goes on. This class shows nothing: override what you want."""

    def noted(self, path: str, name: str, text: str) -> None:
        """Take what a component noted when it was opened."""
        return

    def stage(self, name: str, iterations: int, done: int) -> None:
        """Show that a stage begins, or continues after `done` iterations."""
        return

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        """Show that an iteration was committed."""
        return

    def evaluating(self, name: str, known: bool) -> None:
        """Show that a contender is being evaluated (and trained, if a baseline needs that).

        `known`: its evaluation is stored already, and is not repeated.
        """
        return

    def training(self, name: str, episodes: int, most: int | None) -> None:
        """Show that a baseline is being trained, after its evaluation was announced.

        Called at the beginning and after every episode; `most` is None where it is not known.
        """
        return

    def ended(self, status: str) -> None:
        """Show how the run ended, e.g. "completed"."""
        return


def at_most(episodes: int | None) -> str:
    """Return " of at most N"; "" where that is not known."""
    return "" if episodes is None else f" of at most {episodes:,}"
