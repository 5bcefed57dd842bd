"""How much better each trajectory is than the others of its group: pure functions over numbers.

A_i = R_i - mean(R), over the trajectories of one problem that have a reward (GRPO without its
division by the deviation, as Liu et al. 2025 argue for); with `std` that is divided by the sample
deviation, which is at most 1 / `least_std` times as large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import Literal

__all__ = ["Scale", "equal_shares", "group_advantages", "per_agent"]

Scale = Literal["mean", "std"]


def group_advantages(
    rewards: Sequence[float | None], scale: Scale = "mean", least_std: float = 0.0
) -> list[float | None]:
    """One advantage for each reward; None where the reward is missing.

    A group of one compares with nothing: its advantage is 0, not its reward. Equal rewards give
    exactly 0. Missing rewards are in no mean.

    Args:
        rewards: of trajectories of one problem.
        scale: `mean` centres; `std` also divides by the sample deviation.
        least_std: a smaller deviation counts as this one, so that differences that mean nothing
            do not become large.
    """
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2 or min(known) == max(known):
        return [None if reward is None else 0.0 for reward in rewards]
    # Shifted by one of them: what they have in common does not cost digits.
    origin = known[0]
    mean = fsum(reward - origin for reward in known) / len(known)
    unit = 1.0
    if scale == "std":
        squares = fsum((reward - origin - mean) ** 2 for reward in known)
        unit = max(sqrt(squares / (len(known) - 1)), least_std)
    return [None if one is None else (one - origin - mean) / unit for one in rewards]


def equal_shares(advantage: float | None, turns: int) -> tuple[float, ...]:
    """An advantage spread over the turns of its trajectory; a missing one gives no credit."""
    return ((advantage or 0.0) / turns,) * turns if turns else ()


def per_agent(agents: Sequence[str], credits: Sequence[float]) -> Mapping[str, float]:
    """Credits of turns, summed up by agent, in the order in which agents first acted."""
    sums: dict[str, list[float]] = {}
    for agent, credit in zip(agents, credits, strict=True):
        sums.setdefault(agent, []).append(credit)
    return {agent: fsum(parts) for agent, parts in sums.items()}
