"""Everything that was seen in episodes, and the states that it is grouped into.

States leave out what does not tell situations apart:

* The *clock*: a feature that only says which decision of the episode it is. The decision number
  replaces it, so that counts are shared between steps.
* A *log*: features that each change at one step only, such as a history written call by call. It is
  left out if so much is shown that nothing repeats.
* A feature of many different values is cut into `levels` intervals.
* Features that the others determine are left out of the *core*, which describes effects: one effect
  then looks the same in many states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orchestrion import RunError, Saved
from orchestrion_values.arrays import Floats, Ints, Mask, pack, unpack


class ObservedState(NamedTuple):
    """What a situation shows: category of the problem, numbers, allowed choices [k]."""

    category: str
    features: tuple[float, ...]
    allowed: tuple[bool, ...]


class StateMoves:
    """Episodes as moves between situations; equal situations are stored once.

    Args:
        choices: k, how many choices there are.

    Attributes:
        moves: one row per decision [m, 5]: index of its situation, decision number in the episode,
            choice, index of the next situation, whether the episode ended.
        rewards: of the decision itself [m].
        outcomes: of the episode's end, 0 for other decisions [m].
        episodes: how many there were.
    """

    def __init__(self, choices: int) -> None:
        self.choices = choices
        self._places: dict[ObservedState, int] = {}
        self.moves: list[tuple[int, int, int, int, bool]] = []
        self.rewards: list[float] = []
        self.outcomes: list[float] = []
        self.episodes = 0

    @property
    def shown(self) -> list[ObservedState]:
        """Return every different situation [n], as a new list."""
        return list(self._places)

    def place(self, shown: ObservedState) -> int:
        """Return the index of a situation, adding it if it is new."""
        first = next(iter(self._places), shown)
        if len(shown.features) != len(first.features):
            counts = sorted({len(shown.features), len(first.features)})
            raise RunError(
                f"trainer optimistic: the task shows {counts[0]} and {counts[1]} numbers; a "
                "task must always show equally many"
            )
        return self._places.setdefault(shown, len(self._places))

    def add(
        self,
        shown: Sequence[ObservedState],
        chosen: Sequence[int],
        rewards: Sequence[float],
        last: ObservedState,
        outcome: float,
    ) -> None:
        """Add an episode of m decisions.

        Args:
            shown: the situation of each [m].
            chosen: the choices [m].
            rewards: of each [m], without `outcome`.
            last: the situation at the end.
            outcome: reward of the end.
        """
        places = [self.place(state) for state in (*shown, last)]
        for t, (choice, reward) in enumerate(zip(chosen, rewards, strict=True)):
            ended = t + 1 == len(shown)
            self.moves.append((places[t], t, choice, places[t + 1], ended))
            self.rewards.append(reward)
            self.outcomes.append(outcome if ended else 0.0)
        self.episodes += 1

    def save(self) -> Saved:
        arrays = {
            "features": np.array([shown.features for shown in self.shown], np.float64),
            "allowed": np.array([shown.allowed for shown in self.shown], np.bool_),
            "moves": np.array(self.moves, np.int64).reshape(-1, 5),
            "rewards": np.array(self.rewards, np.float64),
            "outcomes": np.array(self.outcomes, np.float64),
        }
        data: Any = {
            "choices": self.choices,
            "episodes": self.episodes,
            "categories": [shown.category for shown in self.shown],
        }
        return Saved(pack(arrays), data)

    @classmethod
    def load(cls, saved: Saved) -> StateMoves:
        arrays = unpack(saved.arrays)
        data: Any = saved.data
        seen = cls(data["choices"])
        seen.episodes = data["episodes"]
        features, allowed = arrays["features"].tolist(), arrays["allowed"].tolist()
        for category, numbers, mask in zip(data["categories"], features, allowed, strict=True):
            seen.place(ObservedState(category, tuple(numbers), tuple(mask)))
        seen.moves = [tuple(row) for row in arrays["moves"].tolist()]
        seen.rewards, seen.outcomes = arrays["rewards"].tolist(), arrays["outcomes"].tolist()
        return seen


REPEATS = 0.7
"""Below this share of moves from situations seen three times, a log is left out."""


class Lookup:
    """Maps what is shown to its state.

    Attributes:
        categories: names of categories; their indices are the first column of `codes`.
        kept: the features that tell states apart [f].
        cuts: where the intervals of each begin, except the first [f].
        codes: category and interval of each feature, of every state [s, 1 + f].
    """

    def __init__(
        self, categories: Sequence[str], kept: Ints, cuts: Sequence[Floats], codes: Ints
    ) -> None:
        self.categories, self.kept, self.cuts, self.codes = list(categories), kept, cuts, codes
        self._places = {name: i for i, name in enumerate(categories)}
        self._rows = {tuple(row): i for i, row in enumerate(codes.tolist())}
        widest = codes.max(axis=0) - codes.min(axis=0) if len(codes) else np.zeros(1)
        # A different category is further away than all features together.
        self._scale = np.maximum(1.0, widest)
        self._scale[0] = 1.0 / (2 * codes.shape[1])

    def find(self, shown: Sequence[ObservedState]) -> Ints:
        """Return the state of each, or the nearest one if it is new [m]."""
        codes = self.encode(shown)
        result = np.array([self._rows.get(tuple(row), -1) for row in codes.tolist()], np.int64)
        for i in np.flatnonzero(result < 0).tolist():
            apart = np.abs(self.codes - codes[i])
            apart[:, 0] = apart[:, 0] > 0
            result[i] = int((apart / self._scale).sum(axis=1).argmin())
        return result

    def encode(self, shown: Sequence[ObservedState]) -> Ints:
        """Return category and intervals of each [m, 1 + f]; an unknown category is -1."""
        raw = np.array([state.features for state in shown], np.float64)[:, self.kept]
        columns = [np.array([self._places.get(state.category, -1) for state in shown], np.int64)]
        columns += [np.searchsorted(cuts, raw[:, j], "right") for j, cuts in enumerate(self.cuts)]
        return np.stack(columns, axis=1).astype(np.int64)


class States:
    """The states of everything that was seen.

    Attributes:
        lookup: maps what is shown to its state.
        count: s, the number of states.
        horizon: t, the longest episode in decisions.
        of: the state of each situation [n].
        numbers: the features of a state for regressions [s, f].
        held: the values of a state; each value of each feature has an index of its own [s, c].
        bits: the same as zeros and ones [s, v].
        core: the category and the features that describe effects [s, c].
        allowed: what is allowed in each state at each decision [t, s, k].
    """

    def __init__(self, seen: StateMoves, levels: int) -> None:
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
        """Return the one-hot category and the mean of each feature, by state."""
        numbers = np.concatenate([np.eye(categories)[category], raw], axis=1)
        result = np.zeros((self.count, numbers.shape[1]))
        np.add.at(result, self.of, numbers)
        means: Floats = result / np.bincount(self.of, minlength=self.count)[:, None]
        return means

    def _allowed(self, seen: StateMoves, moves: Ints) -> Mask:
        """Return what was allowed there and then; else what state and time ever both allowed."""
        masks = np.array([shown.allowed for shown in seen.shown], np.bool_)
        there = np.zeros((self.horizon, self.count, seen.choices), np.bool_)
        place, when = _visits(moves)
        np.logical_or.at(there, (when, self.of[place]), masks[place])
        ever: Mask = np.any(there, axis=0)
        then: Mask = np.any(there, axis=1)
        known: Mask = np.any(there, axis=2)
        return np.where(known[:, :, None], there, ever[None] & then[:, None])


def _visits(moves: Ints) -> tuple[Ints, Ints]:
    """Return the different pairs of situation and decision number."""
    situation, when = np.unique(moves[:, :2], axis=0).T
    return situation, when


def _clock(raw: Floats, moves: Ints) -> Mask:
    """Return which features the decision number determines [f]."""
    place, when = _visits(moves)
    result = np.ones(raw.shape[1], np.bool_)
    for t in np.unique(when):
        rows = raw[place[when == t]]
        result &= rows.max(axis=0) == rows.min(axis=0)
    return result


def _repeats(raw: Floats, category: Ints, moves: Ints) -> float:
    """Return the share of moves from situations that were seen at least three times."""
    _, of = np.unique(np.column_stack([category, raw]), axis=0, return_inverse=True)
    at = of.reshape(-1)[moves[:, 0]]
    return float((np.bincount(at)[at] >= 3).mean())


def _cuts(values: Floats, levels: int) -> Floats:
    """Return where one interval of values ends and the next begins."""
    different = np.unique(values)
    if len(different) > levels:
        return np.unique(np.quantile(values, np.linspace(0, 1, levels + 1)[1:-1]))
    return (different[1:] + different[:-1]) / 2


def _core(codes: Ints) -> list[int]:
    """Return the first column and those that determine the others, preferring earlier ones."""
    kept = list(range(codes.shape[1]))
    for column in range(codes.shape[1] - 1, 0, -1):
        rest = [j for j in kept if j != column]
        if len(np.unique(codes[:, rest], axis=0)) == len(codes):
            kept = rest
    return kept


def changes_once(raw: Floats, moves: Ints) -> tuple[Mask, Ints]:
    """Return which features only ever change at one decision of an episode, and at which [f]."""
    first = np.full(raw.shape[1], np.iinfo(np.int64).max)
    last = np.full(raw.shape[1], -1)
    for t in np.unique(moves[:, 1]):
        rows = np.unique(moves[moves[:, 1] == t][:, [0, 3]], axis=0)
        changed = (raw[rows[:, 0]] != raw[rows[:, 1]]).any(axis=0)
        first[changed] = np.minimum(first[changed], t)
        last[changed] = np.maximum(last[changed], t)
    return first == last, first
