"""From what is shown to states: what tells situations apart, and what may be left out.

* The *clock*: a feature that only says which decision of the episode it is. Its place is taken by
  the number of the decision, so that counts are shared between steps.
* A *log*: features each of which changes at one step only, as a history that is written down call
  by call has. Where so much is shown that nothing repeats, it is left out.
* A feature of many different values is cut into `levels` intervals.
* What the others determine is left out of the *core*, by which effects are described: the same
  effect then looks the same in many states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrion_values.optimism.log import changes_once
from orchestrion_values.optimism.seen import Floats, Ints, Mask, Seen, Shown

__all__ = ["Lookup", "States"]

REPEATS = 0.7
"""The share of moves from situations seen three times, below which a log is left out."""


class Lookup:
    """Finds the state of what is shown.

    Attributes:
        categories: of problems, by name; their places are the first column of `codes`.
        kept: the features that tell states apart [f].
        cuts: where the intervals of each begin, but for the first [f].
        codes: category and interval of each feature, of every state [s, 1 + f].
    """

    def __init__(
        self, categories: Sequence[str], kept: Ints, cuts: Sequence[Floats], codes: Ints
    ) -> None:
        self.categories, self.kept, self.cuts, self.codes = list(categories), kept, cuts, codes
        self._places = {name: i for i, name in enumerate(categories)}
        self._rows = {tuple(row): i for i, row in enumerate(codes.tolist())}
        widest = codes.max(axis=0) - codes.min(axis=0) if len(codes) else np.zeros(1)
        # Another category is further away than all features together.
        self._scale = np.maximum(1.0, widest)
        self._scale[0] = 1.0 / (2 * codes.shape[1])

    def find(self, shown: Sequence[Shown]) -> Ints:
        """The state of each, or the nearest one if it is new [m]."""
        codes = self.encode(shown)
        result = np.array([self._rows.get(tuple(row), -1) for row in codes.tolist()], np.int64)
        for i in np.flatnonzero(result < 0).tolist():
            apart = np.abs(self.codes - codes[i])
            apart[:, 0] = apart[:, 0] > 0
            result[i] = int((apart / self._scale).sum(axis=1).argmin())
        return result

    def encode(self, shown: Sequence[Shown]) -> Ints:
        """Category and intervals of each [m, 1 + f]; an unknown category is -1."""
        raw = np.array([one.features for one in shown], np.float64)[:, self.kept]
        columns = [np.array([self._places.get(one.category, -1) for one in shown], np.int64)]
        columns += [np.searchsorted(cuts, raw[:, j], "right") for j, cuts in enumerate(self.cuts)]
        return np.stack(columns, axis=1).astype(np.int64)


class States:
    """The states of everything that was seen.

    Attributes:
        lookup: finds the state of what is shown.
        count: s, how many there are.
        horizon: t, the most decisions that an episode had.
        of: the state of each thing shown [n].
        numbers: what regressions see of a state [s, f].
        held: the values that a state has, each value of each number by a place of its own [s, c].
        bits: the same as zeros and ones [s, v].
        core: its category and what effects are described by [s, c].
        allowed: what is allowed in each state at each decision [t, s, k].
    """

    def __init__(self, seen: Seen, levels: int) -> None:
        moves = np.array(seen.moves, np.int64)
        raw = np.array([shown.features for shown in seen.shown], np.float64)
        names = sorted({shown.category for shown in seen.shown})
        category = np.array([names.index(shown.category) for shown in seen.shown])
        self.horizon = int(moves[:, 1].max()) + 1
        kept: Mask = np.any(raw != raw[:1], axis=0) & ~_clock(raw, moves)
        log = changes_once(raw, moves)[0]
        if (kept & log).any() and _repeats(raw[:, kept], category, moves) < REPEATS:
            kept &= ~log
        places = np.flatnonzero(kept)
        cuts = [_cuts(raw[:, j], levels) for j in places]
        empty = Lookup(names, places, cuts, np.zeros((0, 1 + len(places)), np.int64))
        codes, of = np.unique(empty.encode(seen.shown), axis=0, return_inverse=True)
        self.lookup = Lookup(names, places, cuts, codes)
        self.of: Ints = of.reshape(-1)
        self.count = len(codes)
        self.numbers = self._numbers(raw[:, places], category, len(names))
        starts = np.concatenate([[0], np.cumsum(codes.max(axis=0)[:-1] + 1)])
        self.held = codes + starts
        self.bits = np.zeros((self.count, int(self.held.max()) + 1))
        np.put_along_axis(self.bits, self.held, 1.0, axis=1)
        self.core = codes[:, _core(codes)]
        self.allowed = self._allowed(seen, moves)

    def _numbers(self, raw: Floats, category: Ints, categories: int) -> Floats:
        """Category as one of several, and the mean of each feature."""
        numbers = np.concatenate([np.eye(categories)[category], raw], axis=1)
        result = np.zeros((self.count, numbers.shape[1]))
        np.add.at(result, self.of, numbers)
        means: Floats = result / np.bincount(self.of, minlength=self.count)[:, None]
        return means

    def _allowed(self, seen: Seen, moves: Ints) -> Mask:
        """Seen there and then; else in the state at any time, and at that time in any state."""
        masks = np.array([shown.allowed for shown in seen.shown], np.bool_)
        there = np.zeros((self.horizon, self.count, seen.choices), np.bool_)
        place, when = _visits(moves)
        np.logical_or.at(there, (when, self.of[place]), masks[place])
        ever: Mask = np.any(there, axis=0)
        then: Mask = np.any(there, axis=1)
        known: Mask = np.any(there, axis=2)
        return np.where(known[:, :, None], there, ever[None] & then[:, None])


def _visits(moves: Ints) -> tuple[Ints, Ints]:
    """What was shown when: each pair of a place and the number of a decision, once."""
    pairs = np.unique(moves[:, :2], axis=0)
    return pairs[:, 0], pairs[:, 1]


def _clock(raw: Floats, moves: Ints) -> Mask:
    """Features that the number of the decision determines [f]."""
    place, when = _visits(moves)
    result = np.ones(raw.shape[1], np.bool_)
    for t in np.unique(when):
        rows = raw[place[when == t]]
        result &= rows.max(axis=0) == rows.min(axis=0)
    return result


def _repeats(raw: Floats, category: Ints, moves: Ints) -> float:
    """The share of moves from a situation that was seen at least three times."""
    _, of = np.unique(np.column_stack([category, raw]), axis=0, return_inverse=True)
    at = of.reshape(-1)[moves[:, 0]]
    return float((np.bincount(at)[at] >= 3).mean())


def _cuts(values: Floats, levels: int) -> Floats:
    """Where one interval of values ends and the next begins."""
    different = np.unique(values)
    if len(different) > levels:
        return np.unique(np.quantile(values, np.linspace(0, 1, levels + 1)[1:-1]))
    return (different[1:] + different[:-1]) / 2


def _core(codes: Ints) -> list[int]:
    """Columns that determine the others, with the first; later ones are left out first."""
    kept = list(range(codes.shape[1]))
    for column in range(codes.shape[1] - 1, 0, -1):
        rest = [j for j in kept if j != column]
        if len(np.unique(codes[:, rest], axis=0)) == len(codes):
            kept = rest
    return kept
