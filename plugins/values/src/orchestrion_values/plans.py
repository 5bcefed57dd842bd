"""Fixed sequences of choices as arms: their values, by episodes that followed some of them.

Source: Thompson sampling with a Gaussian process over arms that have something in common (Srinivas,
Krause, Kakade, Seeger 2010; Chowdhury, Gopalan 2017), whose value may depend on the category of the
problem (a product of kernels: Krause, Ong 2011). The kernel of arms counts common calls, equal
length, equal ends, and common orders of two calls; each sequence and each problem has a term of its
own.

Deviations:
1. The arms are the best sequences so far and their neighbours; all would be too many.
2. The kernel (`ENDS`, `ORDER` or `LAST`) and the variances of its terms are the likeliest of some
   candidates; the noise follows.
3. The process is of outcomes; what choices pay, such as their costs, is added to its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
SHARES = (0.2, 0.5, 0.9)
"""Candidate shares of an arm's value that depend on the category, if there are several."""
ALIKE = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
PROBLEMS = (0.0, 0.1, 0.5, 2.0, 8.0)
AGAIN = (0.0, 0.3, 1.0, 3.0, 10.0)
"""Candidate variances of what arms are worth, of problems, and of an arm on one problem, in units
of the noise. Episodes of an arm on the same problem share the last: they are no new evidence."""
NOISE = 1e-4
"""Added to the variance of the noise, for data without any."""
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
        longer: length as a number, in quarters.
        own: the variance of a sequence's own term.
    """

    last: float = 0.0
    pair: float = 0.0
    calls: float = 0.0
    makes: float = 0.0
    order: float = 0.0
    length: float = 0.0
    longer: float = 0.0
    own: float = 0.5


ENDS = Likeness(last=1.0, pair=0.4, calls=0.4, length=0.4)
"""For tasks in which the last calls matter most, as each call answers anew."""
ORDER = Likeness(last=0.5, pair=0.4, makes=0.4, order=0.4, length=0.2, longer=1.0)
"""For tasks in which calls build on earlier ones, such as a reviewer's on a writer's."""
LAST = Likeness(last=1.0, own=0.001)
"""For tasks in which nothing but the last call matters."""


class ArmEpisode(NamedTuple):
    """An episode that followed an arm: the arm, its problem's id and category, and the reward.

    `free` is the number of choices before the last that had no reward; `paid` is the part of the
    reward that choices have, such as their costs.
    """

    arm: Arm
    problem: str
    reward: float
    category: str = ""
    free: int = 0
    paid: float = 0.0


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


class Setting(NamedTuple):
    """Of a Gaussian process: the kernel of arms, and the variances of its terms."""

    kind: Likeness
    share: float
    strength: float = 0.3
    problems: float = 0.1
    again: float = 0.0


class Process:
    """A Gaussian process of outcomes with the likeliest kernel, given the tried arms.

    Args:
        tried: at least one episode.
        choices: their number, without stopping.
    """

    def __init__(self, tried: Sequence[ArmEpisode], choices: int) -> None:
        self.choices, self.tried = choices, [attempt.arm for attempt in tried]
        self.paid = _Paid(tried, choices)
        outcomes = np.array([attempt.reward - attempt.paid for attempt in tried])
        self.spread = float(outcomes.std()) or 1.0
        # As in `fitted`: of equal sequences the shortest is the best.
        outcomes -= FREE * self.spread * np.array([attempt.free for attempt in tried])
        self.y = outcomes / self.spread
        names = np.unique([attempt.problem for attempt in tried], return_inverse=True)[1]
        self.same = names[:, None] == names
        self.met = np.array([attempt.category for attempt in tried])
        self.related = self.met[:, None] == self.met
        self._likelihoods: dict[Setting, float] = {}
        self._rows_of: dict[Likeness, Floats] = {}
        found = [self._likeliest(kind) for kind in (ENDS, ORDER, LAST)]
        self.setting = max(found, key=self._likelihood)
        # With `LAST` no longer sequence would be worth trying.
        self.searching = max(found[:2], key=self._likelihood)
        self._fits = {setting: self._fit(setting) for setting in {self.setting, self.searching}}

    def _likeliest(self, kind: Likeness) -> Setting:
        """Return the best variances, found by improving one after the other."""
        shares = (0.0,) if self.related.all() else SHARES
        candidates: dict[str, Any] = {
            "share": shares,
            "strength": ALIKE,
            "problems": PROBLEMS,
            "again": AGAIN,
        }
        best, before = Setting(kind, shares[len(shares) // 2]), None
        while best != before:
            before = best
            for name, values in candidates.items():
                others = [best._replace(**{name: value}) for value in values]
                best = max([best, *others], key=self._likelihood)
        return best

    def _likelihood(self, setting: Setting) -> float:
        """Return twice the logarithm of the likelihood, but for a constant."""
        if setting not in self._likelihoods:
            n = len(self.y)
            root = np.linalg.cholesky(self._covariance(setting))
            ones, y = np.linalg.solve(root, np.stack([np.ones(n), self.y], axis=1)).T
            left = y - (ones @ y) / (ones @ ones) * ones
            noise = float(left @ left) / n + NOISE
            size = 2 * float(np.log(root.diagonal()).sum())
            self._likelihoods[setting] = -size - n * float(np.log(noise))
        return self._likelihoods[setting]

    def _covariance(self, setting: Setting) -> Floats:
        """Return the covariance of the episodes' outcomes [n, n], in units of the noise."""
        kind, share, strength, problems, again = setting
        if kind not in self._rows_of:
            self._rows_of[kind] = self._alike(kind, self.tried, self.tried)
        alike = self._rows_of[kind] * np.where(self.related, 1.0, 1.0 - share)
        same = self.same
        result: Floats = np.eye(len(same)) + (strength + again * same) * alike + problems * same
        return result

    def _fit(self, setting: Setting) -> tuple[Floats, float, float]:
        """Return the inverse covariance [n, n], the mean and the variance of the noise."""
        inverse = np.linalg.inv(self._covariance(setting))
        weight = inverse.sum(axis=0)
        mean = float(weight @ self.y / weight.sum())
        left = self.y - mean
        noise = float(left @ inverse @ left) / len(left) + NOISE
        return inverse.astype(np.float64), mean, noise

    def context(self, category: str) -> str | None:
        """Return the category if there are several, else None."""
        return None if self.related.all() else category

    def seen(self, category: str | None = None) -> Beliefs:
        """Return the values of the tried arms."""
        return self._beliefs(self.setting, tuple(dict.fromkeys(self.tried)), category)

    def promising(self, longest: int, category: str | None = None) -> Beliefs:
        """Return the values of the best arms so far and their neighbours of limited length."""
        arms = _neighbours(self.seen(category).ranked, self.choices, longest)
        return self._beliefs(self.searching, arms, category)

    def _beliefs(self, setting: Setting, arms: tuple[Arm, ...], category: str | None) -> Beliefs:
        """Return the values of arms on an unknown problem of a category, by default any."""
        kind, share, strength, _, _ = setting
        inverse, mean, noise = self._fits[setting]
        near = np.where(self.met == category, 1.0, 1.0 - share)
        ours = strength * self._alike(kind, arms, self.tried) * near
        gain = ours @ inverse
        covariance = strength * self._alike(kind, arms, arms) - gain @ ours.T
        outcomes = self.spread * (mean + gain @ (self.y - mean))
        return Beliefs(arms, outcomes + self.paid.of(arms), self.spread**2 * noise * covariance)

    def _alike(self, kind: Likeness, these: Sequence[Arm], those: Sequence[Arm]) -> Floats:
        places: dict[Arm, int] = {}
        here, there = (
            np.array([places.setdefault(arm, len(places)) for arm in arms])
            for arms in (these, those)
        )
        result: Floats = self._rows(kind, these) @ self._rows(kind, those).T
        result += kind.own * (here[:, None] == there)
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


class _Paid:
    """What arms pay for their choices: the mean of each choice, so that it need not be learned.

    Args:
        tried: at least one episode.
        choices: their number, without stopping.
    """

    def __init__(self, tried: Sequence[ArmEpisode], choices: int) -> None:
        self.choices = choices
        fixed = [attempt for attempt in tried if attempt.arm != LEARNED]
        learned = [attempt.paid for attempt in tried if attempt.arm == LEARNED]
        self.learned = sum(learned) / max(1, len(learned))
        counts = self._counts([attempt.arm for attempt in fixed])
        paid = np.array([attempt.paid for attempt in fixed])
        # The little that is added makes choices that never occurred free.
        self.each = np.linalg.solve(counts.T @ counts + 1e-6 * np.eye(choices), counts.T @ paid)

    def _counts(self, arms: Sequence[Arm]) -> Floats:
        rows = [np.bincount(arm, minlength=self.choices) for arm in arms]
        return np.array(rows, np.float64).reshape(len(arms), self.choices)

    def of(self, arms: Sequence[Arm]) -> Floats:
        """Return what arms pay [n]."""
        learned = np.array([arm == LEARNED for arm in arms])
        fixed = self._counts([() if arm == LEARNED else arm for arm in arms]) @ self.each
        return np.where(learned, self.learned, fixed)


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
