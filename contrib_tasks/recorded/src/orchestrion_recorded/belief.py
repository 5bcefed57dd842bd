"""How likely each answer seen, and each model, is right: exact under the estimates.

Given the true answer and a question's class, models answer independently, except that wrong
answers gather: they follow a Polya urn, so that two of them coincide with the estimated rate.
Candidates are the answers seen, and one that nobody gave yet for each option left.

What asking one model more is worth comes out with it: the probability that the likeliest answer
is right, expected over what the model may say, minus what it is now (the value of information;
Howard 1966). It is never negative, and 0 for a model whose answer could not change the choice.

Only who agrees with whom counts, not what was said, so questions of a group share most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion_recorded.case import SILENT, Case
from orchestrion_recorded.estimate import Estimates, Floats

_KEPT = 50_000  # beliefs; about 1 KB each
Heard = tuple[tuple[int, int], ...]
"""Who was asked, with the number of the answer, as first met; SILENT for none."""


@frozen
class Belief:
    """Probabilities given what was seen.

    Args:
        answers: of each answer seen that it is right, in the order in which the models asked,
            taken by index, first gave it.
        models: by model, that it is right, whether or not it was asked.
        gains: by model, how much likelier the likeliest answer is to be right after asking it;
            0 for those asked.
    """

    answers: Sequence[float]
    models: Sequence[float]
    gains: Sequence[float]


@frozen(eq=False)
class Outlook:
    """What may come after some answers, for several kinds of questions at once.

    Args:
        now: [kind] probability that the likeliest answer seen is right.
        says: [kind, model, what] how likely it gives no answer, each one seen, and a new one.
        gains: [kind, model] as in `Belief`.
    """

    now: Floats
    says: Floats
    gains: Floats


Kinds = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Groups and numbers of options, each [kind]."""


class Believer:
    """Work out beliefs, and keep those about single questions."""

    def __init__(self, estimates: Estimates) -> None:
        self._coincide = estimates.coincide
        self._log_prior = np.log(estimates.prior)
        # [group, class, model]
        self._right, self._wrong, self._none = map(
            np.array, (estimates.right, estimates.wrong, estimates.none)
        )
        self._log_wrong, self._log_none = np.log(self._wrong), np.log(self._none)
        self._log_gain = np.log(self._right) - self._log_wrong
        self._belief = lru_cache(_KEPT)(self._work_out)

    def believe(self, case: Case, models: Sequence[int]) -> tuple[Belief, Sequence[int]]:
        """Return what is believed after models were asked, and the codes of the belief's answers.

        `models` are in ascending order, and none of them is absent.
        """
        codes: dict[int, int] = {}
        answers = tuple(
            (m, SILENT if case.codes[m] == SILENT else codes.setdefault(case.codes[m], len(codes)))
            for m in models
        )
        return self._belief(case.group, case.options, answers), tuple(codes)

    def outlook(self, kinds: Kinds, answers: Heard) -> Outlook:
        """Return what a planner has to know after these answers, by ascending model."""
        groups, options = kinds
        weights, urn = self._weigh(groups, options, answers)
        right, wrong, none = self._spread(weights, groups)
        codes = np.arange(weights.shape[1] - 1)
        known = urn.again[:, :-1] @ wrong
        known += right[:, :-1] - urn.again[:, codes, codes, None] * wrong[:, :-1]
        silent = none.sum(1)
        new = np.maximum(1 - silent - known.sum(1), 0.0) * (urn.left > 0)[:, None]
        return Outlook(
            weights[:, :-1].sum(2).max(1, initial=0.0),
            np.concatenate([silent[:, None], known, new[:, None]], 1).transpose(0, 2, 1),
            _gains(weights, right, wrong, none, urn),
        )

    def _weigh(
        self, groups: NDArray[np.int64], options: NDArray[np.int64], heard: Heard
    ) -> tuple[Floats, _Urn]:
        """[kind, answer or new, class] how likely, with the urn that went into it."""
        counts = [0] * len({code for _, code in heard if code != SILENT})
        evidence = np.repeat(self._log_prior[groups, None], len(counts) + 1, 1)
        for m, code in heard:
            if code == SILENT:
                evidence += self._log_none[groups, None, :, m]
            else:
                counts[code] += 1
                evidence += self._log_wrong[groups, None, :, m]
                evidence[:, code] += self._log_gain[groups, :, m]
        urn = _Urn(self._coincide, options, len(heard), counts)
        evidence += urn.drawn[:, :, None]
        weights = np.exp(evidence - evidence.max((1, 2), keepdims=True))
        return weights / weights.sum((1, 2), keepdims=True), urn

    def _spread(self, weights: Floats, groups: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """[kind, answer, model] how likely that is right, and the model right, wrong or silent."""
        right, wrong, none = (
            weights @ rates[groups] for rates in (self._right, self._wrong, self._none)
        )
        return right, wrong, none

    def _work_out(self, group: int, options: int, heard: Heard) -> Belief:
        groups = np.array([group])
        weights, urn = self._weigh(groups, np.array([options]), heard)
        right, wrong, none = self._spread(weights, groups)
        answers, models = weights[0].sum(1), right[0].sum(0)
        gains = _gains(weights, right, wrong, none, urn)[0]
        for m, code in heard:
            models[m] = answers[code] if code != SILENT else 0.0
            gains[m] = 0.0
        return Belief(answers[:-1].tolist(), models.tolist(), gains.tolist())


class _Urn:
    """ln P(how wrong answers fall together), if each answer seen, or at the end one that was not,
    is right; and by what factor one more wrong answer changes it.

    Args:
        coincide: how often two wrong answers are the same.
        options: [kind] there are.
        models: how many were asked.
        counts: of each answer seen.
    """

    def __init__(
        self, coincide: float, options: NDArray[np.int64], models: int, counts: Sequence[int]
    ) -> None:
        wrong = options - 1
        alpha = (1 - coincide) / np.maximum(coincide - 1 / wrong, 0.02)
        alpha = alpha.clip(0.5, 50.0)[:, None]
        steps = np.arange(models + 1)
        # Cumulative logarithms: of one wrong answer's weight, and of all together.
        single = _running(np.log(alpha / wrong[:, None] + steps))
        together = _running(np.log(alpha + steps))
        seen, total = np.array([*counts, 0]), sum(counts)
        others = total - seen
        self.left = options - len(counts)
        self.drawn = single[:, seen].sum(1)[:, None] - single[:, seen] - together[:, others]
        # Where every option was named, one of those seen is right.
        self.drawn[:, -1] += [log(left) if left > 0 else -1e9 for left in self.left.tolist()]
        step = np.exp(together[:, others] - together[:, others + 1])
        again = np.exp(single[:, seen + 1] - single[:, seen])
        self.again = again[:, :, None] * step[:, None]
        """[kind, answer given, or a new one; answer that is right]: factor of the answer given,
        wrong."""


def _running(steps: Floats) -> Floats:
    return np.concatenate([np.zeros((len(steps), 1)), steps.cumsum(1)], 1)


def _gains(weights: Floats, right: Floats, wrong: Floats, none: Floats, urn: _Urn) -> Floats:
    """[kind, model] what one more answer adds to the probability of the likeliest.

    Args:
        weights: [kind, answer, class] probability that it is right; the last row is for all unseen.
        right: [kind, answer, model] that, and that the model is right; so also the next two.
        wrong: that the model is wrong.
        none: that it is silent.
        urn: how wrong answers fall.
    """
    seen = weights.shape[1] - 1
    # Summed over what the model may say: P(it says so, and the then likeliest answer is right).
    best = none[:, :-1].max(1, initial=0.0)
    for code in range(seen):
        after = wrong[:, :-1] * urn.again[:, code, :-1, None]
        after[:, code] = right[:, code]
        best += after.max(1)
    # One of the options left, which are all alike.
    left = urn.left[:, None]
    other = (wrong[:, :-1] * urn.again[:, -1, :-1, None]).max(1, initial=0.0)
    new = np.maximum(right[:, -1] / np.maximum(left, 1), other)
    best += np.where(left > 0, left * new, 0.0)
    now = weights[:, :-1].sum(2).max(1, initial=0.0)
    return np.asarray(np.maximum(best - now[:, None], 0.0))
