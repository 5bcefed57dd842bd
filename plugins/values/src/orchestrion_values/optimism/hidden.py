"""A small hidden-state model of episodes, learned by expectation-maximisation (Baum and Welch).

A state z of K is drawn by the category of the problem; a choice a moves it by T_a, and is then
heard to say y with probability E_a(y | z); an end pays the i-th amount with probability
R_e(i | z). All are shared by all categories and all times. Pseudo-counts keep every probability
above 0, and T_a near "stays as it is". From several random beginnings the likeliest is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion_values.optimism.seen import Floats, Ints

__all__ = ["Hidden", "Sequences", "fit"]

STAY = 1.0
"""Pseudo-counts of staying in a state."""
SHORT, LONG, ON = 15, 60, 10
"""Steps: of each random beginning, of the best of them, and of a model that goes on."""
SAMPLE = 800
"""Different episodes, at most, that beginnings are tried on."""
FEW = 0.1
"""Pseudo-counts of everything else."""


@frozen(eq=False)
class Sequences:
    """n different episodes of up to t calls.

    Args:
        category: of the problem [n].
        choice: of each call [n, t]; -1 after the last.
        said: what it said [n, t].
        end: which choice ended it, or the number of choices if none did [n].
        paid: which amount the end paid [n].
        times: how often [n].
    """

    category: Ints
    choice: Ints
    said: Ints
    end: Ints
    paid: Ints
    times: Floats

    def some(self, most: int) -> Sequences:
        """At most so many of them, evenly spread."""
        rows = slice(None, None, max(1, -(-len(self.times) // most)))
        return Sequences(
            self.category[rows],
            self.choice[rows],
            self.said[rows],
            self.end[rows],
            self.paid[rows],
            self.times[rows],
        )


@frozen(eq=False)
class Hidden:
    """The model.

    Args:
        begin: [categories, K].
        move: T [choices, K, K].
        say: E [choices, K, symbols].
        pay: R [choices + 1, K, amounts].
    """

    begin: Floats
    move: Floats
    say: Floats
    pay: Floats

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """As they are saved."""
        return {"begin": self.begin, "move": self.move, "say": self.say, "pay": self.pay}

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Numbers of categories, choices, symbols, amounts."""
        return len(self.begin), len(self.move), self.say.shape[2], self.pay.shape[2]

    @classmethod
    def of(cls, arrays: Mapping[str, Floats]) -> Hidden:
        """As they were saved."""
        return cls(arrays["begin"], arrays["move"], arrays["say"], arrays["pay"])


def fit(
    data: Sequences,
    shape: tuple[int, int, int, int],
    k: int,
    start: Hidden | None,
    tries: int,
    seed: int,
) -> Hidden:
    """The likeliest model that is found.

    Args:
        data: episodes.
        shape: numbers of categories, choices, symbols, amounts.
        k: K.
        start: a model to go on from.
        tries: random beginnings.
        seed: of the beginnings.
    """
    rng = np.random.default_rng(seed)
    found = [] if start is None else [_climb(start, data, ON)]
    if tries:
        few = data.some(SAMPLE)
        begun = [_climb(_random(shape, k, rng), few, SHORT) for _ in range(tries)]
        found.append(_climb(_likeliest(begun), data, LONG))
    return _likeliest(found)


def _likeliest(found: Sequence[tuple[Hidden, float]]) -> Hidden:
    return max(found, key=lambda pair: pair[1])[0]


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
    likelihood = -np.inf
    for _ in range(steps):
        model, now = _step(model, data)
        if now - likelihood < 1e-6 * abs(now):
            break
        likelihood = now
    return model, likelihood


def _step(model: Hidden, data: Sequences) -> tuple[Hidden, float]:
    """One step; the log-likelihood is that of the model before it."""
    n, length = data.choice.shape
    k = model.begin.shape[1]
    going = data.choice >= 0
    at = np.where(going, data.choice, 0)
    # Likelihood of what each call said, by the state after it; 1 where there was no call.
    heard = model.say.transpose(0, 2, 1)[at, np.where(going, data.said, 0)]
    heard[~going] = 1.0
    stay = np.eye(k)
    moves = model.move[at]
    moves[~going] = stay
    forward = np.empty((length + 1, n, k))
    scale = np.empty((length + 1, n))
    forward[0] = model.begin[data.category]
    scale[0] = 1.0
    for t in range(length):
        now = np.einsum("ni,nij->nj", forward[t], moves[:, t]) * heard[:, t]
        scale[t + 1] = now.sum(axis=1)
        forward[t + 1] = now / scale[t + 1, :, None]
    backward = model.pay[data.end, :, data.paid]
    last = (forward[length] * backward).sum(axis=1)
    backward = backward / last[:, None]
    weight = data.times[:, None]
    pay = np.full_like(model.pay, FEW)
    # Views with the state as the last axis, so that whole rows are added.
    np.add.at(pay.transpose(0, 2, 1), (data.end, data.paid), forward[length] * backward * weight)
    move = np.full_like(model.move, FEW) + STAY * stay
    say = np.full_like(model.say, FEW)
    for t in range(length - 1, -1, -1):
        rows = np.flatnonzero(going[:, t])
        after = heard[:, t] * backward / scale[t + 1, :, None]
        both = forward[t][:, :, None] * moves[:, t] * after[:, None, :] * weight[:, :, None]
        np.add.at(move, at[rows, t], both[rows])
        then = forward[t + 1] * backward * weight
        np.add.at(say.transpose(0, 2, 1), (at[rows, t], data.said[rows, t]), then[rows])
        backward = np.einsum("nij,nj->ni", moves[:, t], after)
    begin = np.full_like(model.begin, FEW)
    np.add.at(begin, data.category, forward[0] * backward * weight)
    likelihood = float((data.times * (np.log(scale).sum(axis=0) + np.log(last))).sum())
    return Hidden(
        *(part / part.sum(axis=-1, keepdims=True) for part in (begin, move, say, pay))
    ), likelihood
