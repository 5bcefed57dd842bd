"""A hidden-state model of episodes, and the log in the observations that it is learned from.

A task that shows its whole history has a slot of equal width for each call: features that change at
that call only (`find_log`). Read slot by slot, what a call returned is the same symbol wherever it
stands.

The model is learned by expectation-maximisation (Baum and Welch). A state z of K is drawn by the
category of the problem; a choice a moves it by T_a and returns the symbol y with probability
E_a(y | z); an end pays the i-th amount with probability R_e(i | z). All but the first state are the
same for all categories and times. Pseudo-counts keep every probability above 0, and T_a near the
identity. Random starts are tried on some of the episodes; the likeliest three are continued on all
of them, and the likeliest of these models is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np
from attrs import asdict, astuple, frozen

from orchestrion_values.arrays import Floats, Ints
from orchestrion_values.optimism.states import StateMoves, changes_once

Symbol = tuple[tuple[int, float], ...]
"""The content of a slot: places and values that differ from the initial ones."""

WRITTEN = 0.9
"""The minimum share of calls that write into their slot."""
FEWEST = 30
"""The minimum of moves to recognise a log."""


@frozen(eq=False)
class Log:
    """Slots of equal width.

    Args:
        first: the first feature of slot 0.
        width: of a slot.
        blank: the features before anything is written [f].
    """

    first: int
    width: int
    blank: Floats

    def read(self, features: Sequence[float], calls: int) -> tuple[Symbol, ...]:
        """Return the symbols in the slots of the first calls."""
        result = []
        for call in range(calls):
            shift = self.width * call
            begin = max(0, self.first + shift)
            slot = range(begin, min(self.first + shift + self.width, len(features)))
            result.append(
                tuple((j - shift, features[j]) for j in slot if features[j] != self.blank[j])
            )
        return tuple(result)


def find_log(seen: StateMoves) -> Log | None:
    """Return the log in what was shown; None if there is none."""
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


STAY = 1.0
"""Pseudo-count of staying in a state."""
SHORT, LONG, ON = 15, 60, 10
"""Steps of each random start, of each of the best, and of a model that is continued."""
BEST = 3
"""The number of random starts that are continued on all episodes."""
SAMPLE = 800
"""The maximum of different episodes that random starts are tried on."""
FEW = 0.1
"""Pseudo-count of everything else."""


@frozen(eq=False)
class Sequences:
    """n different episodes of up to t calls.

    Args:
        category: of the problem [n].
        choice: of each call [n, t]; -1 after the last.
        symbol: that it returned [n, t].
        end: which choice ended it, or the number of choices if none did [n].
        paid: index of the amount that the end paid [n].
        times: how often [n].
    """

    category: Ints
    choice: Ints
    symbol: Ints
    end: Ints
    paid: Ints
    times: Floats

    def some(self, most: int) -> Sequences:
        """Return at most `most` of them, evenly spread."""
        rows = slice(None, None, max(1, -(-len(self.times) // most)))
        return Sequences(*(column[rows] for column in astuple(self, recurse=False)))


@frozen(eq=False)
class Hidden:
    """The probabilities of the model.

    Args:
        begin: of the first state [categories, K].
        move: T [choices, K, K].
        say: E [choices, K, symbols].
        pay: R [choices + 1, K, amounts].
    """

    begin: Floats
    move: Floats
    say: Floats
    pay: Floats

    def arrays(self) -> dict[str, Floats]:
        return asdict(self, recurse=False)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return the numbers of categories, choices, symbols and amounts."""
        return len(self.begin), len(self.move), self.say.shape[2], self.pay.shape[2]

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> Hidden:
        return cls(arrays["begin"], arrays["move"], arrays["say"], arrays["pay"])


def fit(
    data: Sequences,
    shape: tuple[int, int, int, int],
    k: int,
    start: Hidden | None,
    tries: int,
    seed: int,
) -> Hidden:
    """Return the likeliest model that is found.

    Args:
        data: episodes.
        shape: numbers of categories, choices, symbols, amounts.
        k: K.
        start: a model to continue from.
        tries: random starts.
        seed: of the random starts.
    """
    rng = np.random.default_rng(seed)
    fits = [] if start is None else [_climb(start, data, ON)]
    if tries:
        few = data.some(SAMPLE)
        begun = [_climb(_random(shape, k, rng), few, SHORT) for _ in range(tries)]
        begun.sort(key=itemgetter(1), reverse=True)
        fits += [_climb(model, data, LONG) for model, _ in begun[:BEST]]
    return max(fits, key=itemgetter(1))[0]


def _random(shape: tuple[int, int, int, int], k: int, rng: np.random.Generator) -> Hidden:
    categories, choices, symbols, amounts = shape
    move = 0.2 * rng.dirichlet(np.ones(k), (choices, k)) + 0.8 * np.eye(k)
    return Hidden(
        rng.dirichlet(np.full(k, 2.0), categories),
        move,
        rng.dirichlet(np.ones(symbols), (choices, k)),
        rng.dirichlet(np.ones(amounts), (choices + 1, k)),
    )


def _climb(model: Hidden, data: Sequences, steps: int) -> tuple[Hidden, float]:
    """Return the model after some steps, and its log-likelihood."""
    likelihood = -np.inf
    for _ in range(steps):
        model, now = _step(model, data)
        if now - likelihood < 1e-6 * abs(now):
            break
        likelihood = now
    return model, likelihood


def _step(model: Hidden, data: Sequences) -> tuple[Hidden, float]:
    """Return the model after one step, and the log-likelihood of the model before it."""
    n, length = data.choice.shape
    k = model.begin.shape[1]
    forward, scale = np.empty((length + 1, n, k)), np.ones((length + 1, n))
    likelihoods = np.ones((length, n, k))  # of the symbol of each call, by the state after it
    made = [
        [(a, np.flatnonzero(data.choice[:, t] == a)) for a in range(len(model.move))]
        for t in range(length)
    ]
    forward[0] = model.begin[data.category]
    for t in range(length):
        forward[t + 1] = forward[t]
        for a, rows in made[t]:
            likelihoods[t, rows] = model.say[a].T[data.symbol[rows, t]]
            now = (forward[t, rows] @ model.move[a]) * likelihoods[t, rows]
            scale[t + 1, rows] = now.sum(axis=1)
            forward[t + 1, rows] = now / scale[t + 1, rows, None]
    weight = data.times[:, None]
    backward = model.pay[data.end, :, data.paid]
    last = (forward[length] * backward).sum(axis=1)
    backward = backward / last[:, None]
    pay = np.full_like(model.pay, FEW)
    _add(pay, data.end, data.paid, forward[length] * backward * weight)
    move = np.full_like(model.move, FEW) + STAY * np.eye(k)
    say = np.full_like(model.say, FEW)
    for t in range(length - 1, -1, -1):
        _add(say, data.choice[:, t], data.symbol[:, t], forward[t + 1] * backward * weight)
        for a, rows in made[t]:
            after = likelihoods[t, rows] * backward[rows] / scale[t + 1, rows, None]
            move[a] += model.move[a] * ((forward[t, rows] * weight[rows]).T @ after)
            backward[rows] = after @ model.move[a].T
    begin = np.full_like(model.begin, FEW)
    np.add.at(begin, data.category, forward[0] * backward * weight)
    likelihood = float((data.times * (np.log(scale).sum(axis=0) + np.log(last))).sum())
    return Hidden(
        *(part / part.sum(axis=-1, keepdims=True) for part in (begin, move, say, pay))
    ), likelihood


def _add(counts: Floats, first: Ints, second: Ints, parts: Floats) -> None:
    """Add rows of parts [n, K] to counts [a, K, b] where `first` and `second` say; not at -1."""
    a, k, b = counts.shape
    some = first >= 0
    cell = first[some] * b + second[some]
    for z in range(k):
        counts[:, z] += np.bincount(cell, parts[some, z], a * b).reshape(a, b)
