"""Fixed sequences of choices as arms: their values, by episodes that followed some of them.

Source: Thompson sampling with a Gaussian process over arms that have something in common (Srinivas,
Krause, Kakade, Seeger 2010; Chowdhury, Gopalan 2017), whose value may depend on the category of the
problem (a product of kernels: Krause, Ong 2011). The kernel of arms counts common calls, equal
length, equal ends, and common orders of two calls; each sequence and each problem has a term of its
own.

Deviations:
1. The arms are the best sequences so far and their neighbours; all would be too many.
2. The kernel (`ENDS` or `ORDER`), its strength and those of problems and categories are the
   likeliest combination of a grid; the noise follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from attrs import frozen

from orchestrion import Situation, is_blocked
from orchestrion_values.arrays import Floats
from orchestrion_values.fitted import FREE
from orchestrion_values.policy import ValuePolicy

Arm = tuple[int, ...]
"""Indices of choices in order; after the last the sequence stops."""
LEARNED: Arm = (-1,)
"""Stands for the learned policy, which is similar to no sequence."""
ALIKE = (0.03, 0.1, 0.3, 1.0)
PROBLEMS = (0.0, 0.1, 0.5, 2.0)
CATEGORIES = (0.0, 0.5)
"""Candidate shares of an arm's value that depend on the category."""
OWN = 0.5
"""The variance of a sequence's own term."""
KEPT, MOST, LONGEST = 8, 400, 8


@frozen
class Likeness:
    """Weights of the terms of the kernel.

    Args:
        last: equal last call.
        pair: equal last two calls.
        calls: counts of each call.
        makes: whether each call occurs.
        order: whether one call precedes another, at any distance.
        length: equal length.
        longer: length as a number, in quarters, for the costs of turns.
    """

    last: float = 0.0
    pair: float = 0.0
    calls: float = 0.0
    makes: float = 0.0
    order: float = 0.0
    length: float = 0.0
    longer: float = 0.0


ENDS = Likeness(last=1.0, pair=0.4, calls=0.4, length=0.4)
"""For tasks in which the last calls matter most, as each call answers anew."""
ORDER = Likeness(last=0.5, pair=0.4, makes=0.4, order=0.4, length=0.2, longer=1.0)
"""For tasks in which calls build on earlier ones, such as a reviewer's on a writer's."""


class ArmEpisode(NamedTuple):
    """An episode that followed an arm: the arm, its problem's id and category, and the reward.

    `free` is the number of choices before the last that had no reward.
    """

    arm: Arm
    problem: str
    reward: float
    category: str = ""
    free: int = 0


@frozen(eq=False)
class Beliefs:
    """The posterior of the arms' values.

    Args:
        arms: n of them.
        mean: of each value [n].
        covariance: of the values [n, n].
    """

    arms: tuple[Arm, ...]
    mean: Floats
    covariance: Floats

    @property
    def best(self) -> Arm:
        """Return the arm with the highest mean."""
        return self.ranked[0]

    @property
    def ranked(self) -> list[Arm]:
        """Return the arms, the highest mean first."""
        return [self.arms[i] for i in np.argsort(-self.mean, kind="stable")]

    def draws(self, random: np.random.Generator, count: int) -> list[Arm]:
        """Return the best arm in each of some draws of all values."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(values.clip(0))
        sampled = self.mean[:, None] + root @ random.standard_normal((len(self.arms), count))
        return [self.arms[i] for i in sampled.argmax(axis=0)]


class Process:
    """A Gaussian process with the likeliest kernel, given the tried arms.

    Args:
        tried: at least one episode.
        choices: their number, without stopping.
    """

    def __init__(self, tried: Sequence[ArmEpisode], choices: int) -> None:
        self.choices, self.tried = choices, [attempt.arm for attempt in tried]
        rewards = np.array([attempt.reward for attempt in tried])
        self.spread = float(rewards.std()) or 1.0
        # As in `fitted`: of equal sequences the shortest is the best.
        rewards -= FREE * self.spread * np.array([attempt.free for attempt in tried])
        y, n = rewards / self.spread, len(rewards)
        names = np.unique([attempt.problem for attempt in tried], return_inverse=True)[1]
        same = names[:, None] == names
        self.met = np.array([attempt.category for attempt in tried])
        related = self.met[:, None] == self.met
        shares = CATEGORIES if not related.all() else CATEGORIES[:1]
        likeliest = -np.inf
        for kind, share in product((ENDS, ORDER), shares):
            alike = self._alike(kind, self.tried, self.tried) * np.where(related, 1.0, 1.0 - share)
            for strength, problems in product(ALIKE, PROBLEMS):
                inverse = np.linalg.inv(np.eye(n) + strength * alike + problems * same)
                weight = inverse.sum(axis=0)
                mean = float(weight @ y / weight.sum())
                noise = float((y - mean) @ inverse @ (y - mean)) / n + 1e-4
                likely = float(np.linalg.slogdet(inverse)[1]) - n * np.log(noise)
                if likely > likeliest:
                    likeliest = likely
                    self.kind, self.inverse, self.strength = kind, inverse, strength
                    self.noise, self.mean, self.share = noise, mean, share
        self.left = y - self.mean

    def context(self, category: str) -> str | None:
        """Return the category if values depend on it, else None."""
        return category if self.share else None

    def seen(self, category: str | None = None) -> Beliefs:
        """Return the values of the tried arms."""
        return self.beliefs(tuple(dict.fromkeys(self.tried)), category)

    def promising(self, longest: int, category: str | None = None) -> Beliefs:
        """Return the values of the best arms so far and their neighbours of limited length."""
        best = self.seen(category).ranked
        return self.beliefs(_neighbours(best, self.choices, longest), category)

    def beliefs(self, arms: tuple[Arm, ...], category: str | None = None) -> Beliefs:
        """Return the values of arms on an unknown problem of a category, by default any."""
        near = np.where(self.met == category, 1.0, 1.0 - self.share)
        ours = self.strength * self._alike(self.kind, arms, self.tried) * near
        gain = ours @ self.inverse
        covariance = self.strength * self._alike(self.kind, arms, arms) - gain @ ours.T
        mean = self.spread * (self.mean + gain @ self.left)
        return Beliefs(arms, mean, self.spread**2 * self.noise * covariance)

    def _alike(self, kind: Likeness, these: Sequence[Arm], those: Sequence[Arm]) -> Floats:
        places: dict[Arm, int] = {}
        here, there = (
            np.array([places.setdefault(arm, len(places)) for arm in arms])
            for arms in (these, those)
        )
        result: Floats = self._rows(kind, these) @ self._rows(kind, those).T
        result += OWN * (here[:, None] == there)
        return result

    def _rows(self, kind: Likeness, arms: Sequence[Arm]) -> Floats:
        """Return features of arms [n, w]; their products are the kernel."""
        k, n = self.choices, len(arms)
        last, length = np.zeros((n, k + 2)), np.zeros((n, LONGEST + 2))
        pair, order, calls = np.zeros((n, k, k + 1)), np.zeros((n, k, k)), np.zeros((n, k))
        for i, arm in enumerate(arms):
            if arm == LEARNED:
                last[i, k + 1] = 1.0 / (kind.last or 1.0)
                continue
            last[i, arm[-1] if arm else k] = 1.0
            if arm:
                pair[i, arm[-1], arm[-2] if len(arm) > 1 else k] = 1.0
                calls[i] = np.bincount(arm, minlength=k)
            for at, later in enumerate(arm):
                order[i, list(arm[:at]), later] = 1.0
            length[i, min(len(arm), LONGEST)] = 1.0
            length[i, -1] = kind.longer / (kind.length or 1.0) * len(arm) / 4
        parts = (
            kind.last * last, kind.pair * pair, kind.calls * calls, kind.makes * (calls > 0),
            kind.order * order, kind.length * length,
        )  # fmt: skip
        return np.concatenate([part.reshape(n, -1) for part in parts], axis=1)


def _neighbours(best: Sequence[Arm], choices: int, longest: int) -> tuple[Arm, ...]:
    """Return the best arms, those one change away, and single choices."""
    result: dict[Arm, None] = {(): None}
    result |= {(c,): None for c in range(choices)}
    for arm in best[:KEPT]:
        if arm == LEARNED or len(result) > MOST:
            continue
        result |= {arm: None}
        result |= {(*arm[:i], *arm[i + 1 :]): None for i in range(len(arm))}
        for c in range(choices):
            if len(arm) < longest:
                result |= {(*arm[:i], c, *arm[i:]): None for i in range(len(arm) + 1)}
            result |= {(*arm[:i], c, *arm[i + 1 :]): None for i in range(len(arm))}
    return tuple(result)


def next_of(arm: Arm, policy: ValuePolicy, situation: Situation) -> int | None:
    """Return the index of the choice that a sequence takes next.

    Blocked choices are skipped. None if the sequence has ended and stopping is not a choice.
    """
    choices, at = policy.choices, 0
    for turn in situation.trajectory.turns:
        while at < len(arm):
            choice = choices[arm[at]]
            at += 1
            if choice is not None and (choice.agent, choice.option) == (turn.agent, turn.option):
                break
    for place in arm[at:]:
        choice = choices[place]
        if choice is not None and not is_blocked(choice, situation.observation):
            return place
    return choices.index(None) if None in choices else None
