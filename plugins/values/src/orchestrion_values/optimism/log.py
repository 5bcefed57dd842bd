"""A history that is written into the features, call by call, and how to read it.

A task that shows all that was heard has a slot of equal width for each call: features that change
at that call only. Read slot by slot, what a call said is the same symbol wherever it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from attrs import frozen

from orchestrion_values.optimism.seen import Floats, Ints, Mask, Seen

__all__ = ["Log", "Symbol", "changes_once", "find_log"]

Symbol = tuple[tuple[int, float], ...]
"""What stands in a slot: places in it, with their values, where they are not the initial ones."""

WRITTEN = 0.9
"""The share of calls, at least, that write into their slot."""
FEWEST = 30
"""Moves needed to tell a log."""


@frozen(eq=False)
class Log:
    """Slots of equal width.

    Args:
        first: the feature that slot 0 begins with.
        width: of a slot.
        blank: what the features are before anything is written [f].
    """

    first: int
    width: int
    blank: Floats

    def read(self, features: Sequence[float], calls: int) -> tuple[Symbol, ...]:
        """What the first slots say, one for each call."""
        result = []
        for call in range(calls):
            shift = self.width * call
            begin = max(0, self.first + shift)
            slot = range(begin, min(self.first + shift + self.width, len(features)))
            result.append(
                tuple((j - shift, features[j]) for j in slot if features[j] != self.blank[j])
            )
        return tuple(result)


def find_log(seen: Seen) -> Log | None:
    """The log in what was shown, if there is one."""
    moves = np.array(seen.moves, np.int64)
    going = moves[moves[:, 4] == 0]
    raw = np.array([shown.features for shown in seen.shown], np.float64)
    if len(going) < FEWEST or going[:, 1].max() < 1:
        return None
    once, when = changes_once(raw, moves)
    written = [np.flatnonzero(once & (when == t)) for t in range(int(going[:, 1].max()) + 1)]
    overlap = [
        sum(len(np.intersect1d(a + w, b)) for a, b in pairwise(written))
        for w in range(1, raw.shape[1])
    ]
    if not overlap or not max(overlap):
        return None
    width = 1 + int(np.argmax(overlap))
    places = [(t, j) for t, slot in enumerate(written) for j in slot.tolist()]
    first = min(j - width * t for t, j in places)
    if any(not 0 <= j - width * t - first < width for t, j in places):
        return None
    before, after = raw[going[:, 0]], raw[going[:, 3]]
    slot = first + width * going[:, 1:2] + np.arange(width)
    inside = (slot >= 0) & (slot < raw.shape[1])
    slot = np.clip(slot, 0, raw.shape[1] - 1)
    rows = np.arange(len(going))[:, None]
    wrote = ((before[rows, slot] != after[rows, slot]) & inside).any(axis=1)
    if wrote.mean() < WRITTEN:
        return None
    return Log(first, width, raw[moves[moves[:, 1] == 0, 0][0]])


def changes_once(raw: Floats, moves: Ints) -> tuple[Mask, Ints]:
    """Features that only ever change at one decision of an episode, and at which [f]."""
    first = np.full(raw.shape[1], np.iinfo(np.int64).max)
    last = np.full(raw.shape[1], -1)
    for t in np.unique(moves[:, 1]):
        rows = np.unique(moves[moves[:, 1] == t][:, [0, 3]], axis=0)
        changed = (raw[rows[:, 0]] != raw[rows[:, 1]]).any(axis=0)
        first[changed] = np.minimum(first[changed], t)
        last[changed] = np.maximum(last[changed], t)
    return first == last, first
