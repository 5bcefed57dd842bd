"""From episodes to arrays: which decision got which part of the reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion import Episode, Reward, RunError

__all__ = ["Steps", "gather"]


@frozen(eq=False)
class Steps:
    """Decisions to learn from, episode after episode.

    Args:
        records: what the policy recorded, one a decision [n].
        rewards: what came between this decision and the next [n]; a decision's turns, and at
            the last one the terminal part.
        lengths: decisions of each episode [e].
        groups: which problem each episode is a sample of [e].
        categories: its category [e].
        totals: its reward [e].
        excluded: episodes without a reward, or without a decision of this policy.
    """

    records: tuple[Any, ...]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]
    groups: NDArray[np.int64]
    categories: tuple[str, ...]
    totals: NDArray[np.float64]
    excluded: int


def gather(episodes: Sequence[Episode]) -> Steps:
    """The decisions of all episodes that can be learned from.

    An episode without a reward is left out and counted, never given a default. One that ended
    at a limit counts as ended: its reward says what that is worth.
    """
    records: list[Any] = []
    rewards: list[float] = []
    lengths, groups, categories, totals = [], [], [], []
    known: dict[str, int] = {}
    for episode in episodes:
        mine = [decision.record for decision in episode.decisions]
        taken = [i for i, record in enumerate(mine) if record is not None]
        if episode.reward is None or not taken:
            continue
        records.extend(mine[i] for i in taken)
        rewards.extend(_of_taken(_by_decision(episode, episode.reward), taken))
        lengths.append(len(taken))
        groups.append(known.setdefault(episode.problem.id, len(known)))
        categories.append(episode.problem.category)
        totals.append(episode.reward.total)
    return Steps(
        tuple(records),
        np.array(rewards, np.float64),
        np.array(lengths, np.int64),
        np.array(groups, np.int64),
        tuple(categories),
        np.array(totals, np.float64),
        len(episodes) - len(lengths),
    )


def _by_decision(episode: Episode, reward: Reward) -> list[float]:
    """The reward, split among the decisions; the sum stays `reward.total`.

    What turns got (`reward.turns`) belongs to the decisions that started them, all of them if
    there are several; the rest is terminal and belongs to the last decision.
    """
    result = [0.0] * len(episode.decisions)
    given = 0.0
    if reward.turns is not None:
        turns = episode.turns
        if len(reward.turns) != len(turns):
            raise RunError(
                f"episode {episode.id}: the reward function gave {len(reward.turns)} turn "
                f"rewards for {len(turns)} turns; it must give one for each, or none"
            )
        for turn, part in zip(turns, reward.turns, strict=True):
            result[turn.decision] += part
            given += part
    result[-1] += reward.total - given
    return result


def _of_taken(rewards: Sequence[float], taken: Sequence[int]) -> list[float]:
    """Rewards of the decisions in `taken`; others' go to the one before them."""
    result = []
    ends = [*taken[1:], len(rewards)]
    for start, end in zip(taken, ends, strict=True):
        part = rewards[start]
        for extra in rewards[start + 1 : end]:
            part += extra
        result.append(part)
    return result
