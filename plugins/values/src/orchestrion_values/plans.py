"""Fixed sequences of choices as arms: their values, by episodes that followed some of them.

Source: Thompson sampling with a Gaussian process over arms that have something in common (Srinivas,
Krause, Kakade, Seeger 2010; Chowdhury, Gopalan 2017), whose value may depend on the category of the
problem (a product of kernels: Krause, Ong 2011). The kernel of arms is a weighted sum: equal ends,
equal calls, equal orders of two calls, equal length, and the same sequence.

Deviations:
1. The arms are the best sequences so far and their neighbours; all would be too many.
2. The weights and variances are those with the highest posterior among some candidates, under a
   log-normal prior of the weights; the noise follows.
3. The process is of outcomes; what choices pay, such as their costs, is added to its mean.
4. Means of outcomes are cut at the lowest and the highest outcome that were seen; draws are not.
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
NOISE = 1e-4
"""Added to the variance of the noise, for data without any."""
KEPT, MOST, LONGEST = 8, 400, 8


class Setting(NamedTuple):
    """Of a Gaussian process; variances are in units of the noise of an episode.

    Args:
        last: variance of what equal last calls share.
        pair: equal last two calls.
        makes: each call that occurs in both.
        order: each pair of calls of which one precedes the other in both, at any distance.
        length: equal length.
        own: of a sequence's own.
        problem: of a problem's own, whatever the sequence.
        repeat: the part of the noise that is the same whenever similar sequences meet the same
            problem. Their episodes are no new evidence.
        share: the part of a sequence's value that depends on the category, if there are several.
    """

    last: float = 0.3
    pair: float = 0.1
    makes: float = 0.1
    order: float = 0.1
    length: float = 0.1
    own: float = 0.1
    problem: float = 0.1
    repeat: float = 0.6
    share: float = 0.0

    def of_arms(self, terms: Floats) -> Floats:
        """Return the covariance of arms [n, m], by their terms, see `_terms`."""
        result: Floats = np.tensordot(self[: len(terms)], terms, 1)
        return result


VARIANCES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
REPEATS = (0.0, 0.3, 0.6, 0.9, 0.98)
SHARES = (0.2, 0.5, 0.9)
"""Candidates; those of the variances are for all fields before `repeat`."""
WIDTH = 1.5
"""The standard deviation of the logarithm of each variance, around its default."""


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
        outcome: the mean of each outcome [n].
        covariance: of the outcomes [n, n].
        paid: what each arm pays; its value is the outcome and this [n].
        least: the lowest outcome that was seen.
        most: the highest one.
    """

    arms: tuple[Arm, ...]
    outcome: Floats
    covariance: Floats
    paid: Floats
    least: float
    most: float

    @property
    def mean(self) -> Floats:
        """Return the value of each arm [n]."""
        result: Floats = self.outcome.clip(self.least, self.most) + self.paid
        return result

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
        # Not cut: the best sequence may do better than all that was seen.
        drawn = self.outcome + random.standard_normal((count, len(self.arms))) @ root.T
        return [self.arms[i] for i in (drawn + self.paid).argmax(axis=1)]


class Process:
    """A Gaussian process of outcomes with the likeliest setting, given the tried arms.

    Args:
        tried: at least one episode.
        choices: their number, without stopping.
    """

    def __init__(self, tried: Sequence[ArmEpisode], choices: int) -> None:
        self.choices, self.tried = choices, [attempt.arm for attempt in tried]
        self.paid = _Paid(tried, choices)
        outcomes = np.array([attempt.reward - attempt.paid for attempt in tried])
        self.least, self.most = float(outcomes.min()), float(outcomes.max())
        self.spread = float(outcomes.std()) or 1.0
        # As in `fitted`: of equal sequences the shortest is the best.
        outcomes -= FREE * self.spread * np.array([attempt.free for attempt in tried])
        self.y = outcomes / self.spread
        names = np.unique([attempt.problem for attempt in tried], return_inverse=True)[1]
        self.same = names[:, None] == names
        self.met = np.array([attempt.category for attempt in tried])
        self.related = self.met[:, None] == self.met
        self._terms_of_tried = self._terms(self.tried, self.tried)
        self._posteriors: dict[Setting, float] = {}
        self.setting = self._likeliest()
        self._inverse, self._mean, self._noise = self._fit()

    def _likeliest(self) -> Setting:
        """Return the best setting, found by improving one field after the other."""
        variances = dict.fromkeys(Setting._fields[:-2], VARIANCES)
        candidates: dict[str, Any] = {**variances, "repeat": REPEATS}
        best, before = Setting(), None
        if not self.related.all():
            best, candidates["share"] = Setting(share=0.5), SHARES
        while best != before:
            before = best
            for name, values in candidates.items():
                others = [best._replace(**{name: value}) for value in values]
                best = max([best, *others], key=self._posterior)
        return best

    def _posterior(self, setting: Setting) -> float:
        """Return twice the logarithm of the posterior density, but for a constant."""
        if setting not in self._posteriors:
            n = len(self.y)
            root = np.linalg.cholesky(self._covariance(setting))
            ones, y = np.linalg.solve(root, np.stack([np.ones(n), self.y], axis=1)).T
            left = y - (ones @ y) / (ones @ ones) * ones
            noise = float(left @ left) / n + NOISE
            size = 2 * float(np.log(root.diagonal()).sum())
            shift = np.log(np.divide(setting[:-2], Setting()[:-2])) / WIDTH
            self._posteriors[setting] = -size - n * float(np.log(noise)) - float(shift @ shift)
        return self._posteriors[setting]

    def _covariance(self, setting: Setting) -> Floats:
        """Return the covariance of the episodes' outcomes [n, n], in units of the noise."""
        alike = setting.of_arms(self._terms_of_tried)
        size = np.sqrt(alike.diagonal())
        noise = np.where(self.same, setting.repeat * alike / size / size[:, None], 0.0)
        np.fill_diagonal(noise, 1.0)
        near = np.where(self.related, 1.0, 1.0 - setting.share)
        result: Floats = noise + near * alike + setting.problem * self.same
        return result

    def _fit(self) -> tuple[Floats, float, float]:
        """Return the inverse covariance [n, n], the mean and the variance of the noise."""
        inverse = np.linalg.inv(self._covariance(self.setting))
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
        return self._beliefs(tuple(dict.fromkeys(self.tried)), category)

    def promising(self, longest: int, category: str | None = None) -> Beliefs:
        """Return the values of the best arms so far and their neighbours of limited length."""
        return self._beliefs(
            _neighbours(self.seen(category).ranked, self.choices, longest), category
        )

    def _beliefs(self, arms: tuple[Arm, ...], category: str | None) -> Beliefs:
        """Return the values of arms on an unknown problem of a category, by default any."""
        near = np.where(self.met == category, 1.0, 1.0 - self.setting.share)
        ours = self.setting.of_arms(self._terms(arms, self.tried)) * near
        gain = ours @ self._inverse
        covariance = self.setting.of_arms(self._terms(arms, arms)) - gain @ ours.T
        outcomes = self.spread * (self._mean + gain @ (self.y - self._mean))
        covariance *= self.spread**2 * self._noise
        return Beliefs(arms, outcomes, covariance, self.paid.of(arms), self.least, self.most)

    def _terms(self, these: Sequence[Arm], those: Sequence[Arm]) -> Floats:
        """Return what arms have in common [6, n, m], in the order of the fields of `Setting`."""
        places: dict[Arm, int] = {}
        here, there = (
            np.array([places.setdefault(arm, len(places)) for arm in arms])
            for arms in (these, those)
        )
        shared = zip(self._features(these), self._features(those), strict=True)
        return np.stack([*(a @ b.T for a, b in shared), here[:, None] == there])

    def _features(self, arms: Sequence[Arm]) -> list[Floats]:
        """Return features of arms [n, w] for each term but the last; it is their products."""
        k, n = self.choices, len(arms)
        last, pair, makes = np.zeros((n, k + 2)), np.zeros((n, k, k + 1)), np.zeros((n, k))
        order, length = np.zeros((n, k, k)), np.zeros((n, LONGEST + 2))
        for i, arm in enumerate(arms):
            if arm == LEARNED:
                last[i, k + 1] = 1.0
                continue
            last[i, arm[-1] if arm else k] = 1.0
            if arm:
                pair[i, arm[-1], arm[-2] if len(arm) > 1 else k] = 1.0
                makes[i, list(arm)] = 1.0
            for at, later in enumerate(arm):
                order[i, list(arm[:at]), later] = 1.0
            length[i, min(len(arm), LONGEST)] = 1.0
            length[i, -1] = len(arm) / 4
        return [part.reshape(n, -1) for part in (last, pair, makes, order, length)]


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
