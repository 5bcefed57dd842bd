"""The first episodes of a run: choices at random, of random length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrion import Key, Situation
from orchestrion_values.policy import Exploring, Floats, Mask, ValuePolicy

__all__ = ["chances", "probing"]

LONGEST = 12
"""Turns of a probing episode where nothing limits them."""


def probing(policy: ValuePolicy, turns: int | None) -> Exploring:
    """Explores without knowing anything."""
    most = min(LONGEST, turns or LONGEST)
    ends = {member.name for member in policy.roster if member.ends}
    ending = np.array([choice is None or choice.agent in ends for choice in policy.choices])

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        chance = chances(policy, situations, allowed, ending, most)
        result = []
        for row, key in zip(chance, keys, strict=True):
            place = int(np.searchsorted(row.cumsum(), key.uniform(), side="right"))
            place = min(place, int(np.flatnonzero(row)[-1]))
            result.append((place, float(row[place])))
        return result

    return Exploring(policy, choose)


def chances(
    policy: ValuePolicy,
    situations: Sequence[Situation],
    allowed: Mask,
    ending: Mask,
    most: int,
) -> Floats:
    """How likely each choice is [n, k]: lengths up to `most` alike, hints counting.

    Ending at once is tried a quarter as often as any other length: it is soon known what it pays.
    """
    weights = np.ones(allowed.shape)
    for row, situation in zip(weights, situations, strict=True):
        hints = situation.observation.hints if situation.observation is not None else {}
        for place, name in enumerate(policy.names):
            if hints.get(name):
                row[place] = 0.2 + 1.6 * hints[name][0]
    end, go = np.where(allowed & ending, weights, 0), np.where(allowed & ~ending, weights, 0)
    some_end, some_go = end.sum(axis=1, keepdims=True), go.sum(axis=1, keepdims=True)
    done = np.array([[len(one.trajectory)] for one in situations])
    stop = np.where(done, 1 / np.maximum(most + 1 - done, 1), 0.25 / (most + 0.25))
    stop = np.where(some_go == 0, 1.0, np.where(some_end == 0, 0.0, stop))
    result: Floats = stop * end / np.where(some_end == 0, 1, some_end)
    result += (1 - stop) * go / np.where(some_go == 0, 1, some_go)
    return result
