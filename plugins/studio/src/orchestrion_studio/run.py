"""The page of a run."""

from __future__ import annotations

from orchestrion.runs import RunReader
from orchestrion_studio.drawing import plot_of, series_of
from orchestrion_studio.page import Data, Page, Query

__all__ = ["PAGES"]


def run_data(query: Query, reader: RunReader | None) -> Data:
    """Return what a run learned, was evaluated at and spent."""
    assert reader is not None
    iterations = reader.iterations()
    numbers = list(range(1, len(iterations) + 1))
    rewards = series_of("reward", numbers, [iteration.reward for iteration in iterations])
    return {
        "run": query.run,
        "status": reader.status,
        "plots": [plot_of("Reward", "iteration", "reward, mean of an episode", [rewards])],
    }


PAGES = [Page("/run/{run}", "run.html", run_data, "A run: curves, baselines, spend, agents")]
