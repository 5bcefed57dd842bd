"""What can be said about a whole training run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["convergence"]


def convergence(history: Sequence[tuple[int, float]], share: float = 0.9, window: int = 10) -> int:
    """Episodes until the reward had risen by `share` of its whole rise.

    The final reward is the mean of the last `window` iterations, or of the last quarter of a
    short run, and the first that of as many at the beginning; single iterations are too noisy
    for either. The rise is measured from the first reward, because rewards may start below
    0; for one that starts at 0 this is the number of episodes to 90 % of the final reward. The
    level is reached with the first `window` iterations whose mean is that high. 0 if there is
    no rise.

    Args:
        history: (episodes so far, mean reward) of each iteration.
        share: of the rise.
        window: iterations that are averaged.
    """
    if len(history) < 2:
        return 0
    width = max(1, min(window, len(history) // 4))
    rewards = np.array([reward for _, reward in history])
    means = np.lib.stride_tricks.sliding_window_view(rewards, width).mean(axis=1)
    first, final = float(means[0]), float(means[-1])
    if final <= first:
        return 0
    reached = int(np.argmax(means >= first + share * (final - first)))
    return history[reached + width - 1][0]
