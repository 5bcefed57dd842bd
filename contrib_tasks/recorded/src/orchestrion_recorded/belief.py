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
from math import exp, log

import numpy as np
from attrs import frozen

from orchestrion_recorded.case import SILENT, Case
from orchestrion_recorded.estimate import Estimates, Floats, PerModel

__all__ = ["Belief", "Believer", "Heard", "Outlook"]

_KEPT = 50_000  # beliefs; about 1 KB each
Heard = tuple[tuple[int, int], ...]
"""Who was asked, with the number of the answer, as first met; SILENT for none."""
Pattern = tuple[int, int, Heard]
"""Group, number of options, and what was heard."""


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
    """What may come after some answers.

    Args:
        now: probability that the likeliest answer seen is right.
        says: by model, how likely it gives no answer, each one seen, and a new one.
        gains: by model, as in `Belief`.
    """

    now: float
    says: Sequence[Sequence[float]]
    gains: Sequence[float]


@frozen(eq=False)
class _Group:
    """A group's rates as probabilities; arrays are [class, model], the prior [class]."""

    log_prior: Floats
    log_gain: Floats
    log_wrong: Floats
    log_none: Floats
    right: Floats
    wrong: Floats
    none: Floats


class Believer:
    """Works out beliefs, and keeps them.

    Args:
        estimates: from the training questions.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._coincide = estimates.coincide
        self._groups = [
            _group(*rates)
            for rates in zip(
                estimates.prior,
                estimates.log_gain,
                estimates.log_wrong,
                estimates.log_none,
                estimates.right,
                strict=True,
            )
        ]
        self._kept: dict[Pattern, Belief] = {}

    def believe(self, case: Case, asked: Sequence[int]) -> tuple[Belief, Sequence[int]]:
        """Return what is likely after these models were asked.

        Args:
            case: the question.
            asked: models by index in ascending order, none of them absent.

        Returns:
            The belief, and the codes of its answers.
        """
        codes: dict[int, int] = {}
        answers = tuple(
            (m, SILENT if case.said[m] == SILENT else codes.setdefault(case.said[m], len(codes)))
            for m in asked
        )
        pattern = case.group, case.options, answers
        belief = self._kept.get(pattern)
        if belief is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            belief = self._kept[pattern] = self._work_out(*pattern)
        return belief, tuple(codes)

    def outlook(self, group: int, options: int, answers: Heard) -> Outlook:
        """Return what a planner has to know after these answers, by ascending model."""
        weights, rates, urn = self._weigh(group, options, answers)
        right, wrong, none = weights @ rates.right, weights @ rates.wrong, weights @ rates.none
        seen = range(len(weights) - 1)
        known = right[:-1] + urn.again[:-1] @ wrong - urn.again[seen, seen, None] * wrong[:-1]
        silent = none.sum(0)
        new = np.maximum(1 - silent - known.sum(0), 0.0) if urn.left > 0 else np.zeros_like(silent)
        return Outlook(
            float(weights[:-1].sum(1).max(initial=0.0)),
            np.concatenate([silent[None], known, new[None]]).T.tolist(),
            _gains(weights, rates, urn).tolist(),
        )

    def _weigh(self, group: int, options: int, said: Heard) -> tuple[Floats, _Group, _Urn]:
        """[answer or new, class] how likely, with what that was worked out from."""
        rates = self._groups[group]
        counts = [0] * len({code for _, code in said if code != SILENT})
        evidence = np.tile(rates.log_prior, (len(counts) + 1, 1))
        for m, code in said:
            if code == SILENT:
                evidence += rates.log_none[:, m]
            else:
                counts[code] += 1
                evidence += rates.log_wrong[:, m]
                evidence[code] += rates.log_gain[:, m]
        urn = _Urn(self._coincide, options, len(said), counts)
        evidence += np.array(urn.drawn)[:, None]
        weights = np.exp(evidence - evidence.max())
        return weights / weights.sum(), rates, urn

    def _work_out(self, group: int, options: int, said: Heard) -> Belief:
        weights, rates, urn = self._weigh(group, options, said)
        answers = weights.sum(1)
        models, gains = weights.sum(0) @ rates.right, _gains(weights, rates, urn)
        for m, code in said:
            models[m] = answers[code] if code != SILENT else 0.0
            gains[m] = 0.0
        return Belief(answers[:-1].tolist(), models.tolist(), gains.tolist())


def _group(prior: Sequence[float], *by_model: PerModel) -> _Group:
    gain, wrong, none, right = (np.array(rows).T.copy() for rows in by_model)
    return _Group(np.array(prior), gain, wrong, none, right, np.exp(wrong), np.exp(none))


class _Urn:
    """ln P(how wrong answers fall together), if each answer seen, or at the end one that was not,
    is right; and by what factor one more wrong answer changes it.

    Args:
        coincide: how often two wrong answers are the same.
        options: there are.
        asked: how many models were.
        counts: of each answer seen.
    """

    def __init__(self, coincide: float, options: int, asked: int, counts: Sequence[int]) -> None:
        single, together = _urn(coincide, options, asked + 1)
        total, everything = sum(counts), sum(single[count] for count in counts)
        self.left = options - len(counts)
        wrong = [total - count for count in counts] + [total]
        own = [single[count] for count in counts] + [0.0]
        self.drawn = [everything - mine - together[n] for mine, n in zip(own, wrong, strict=True)]
        # Where every option was named, one of those seen is right.
        self.drawn[-1] += log(self.left) if self.left > 0 else -1e9
        step = [exp(together[n] - together[n + 1]) for n in wrong]
        again = [exp(single[count + 1] - single[count]) for count in [*counts, 0]]
        self.again = np.outer(again, step)
        """[answer given, or a new one; answer that is right]: factor of the answer given, wrong."""


@lru_cache(4096)
def _urn(coincide: float, options: int, longest: int) -> tuple[list[float], list[float]]:
    """Cumulative logarithms of the urn: of one wrong answer's weight, and of all together."""
    wrong = options - 1
    alpha = min(max((1 - coincide) / max(coincide - 1 / wrong, 0.02), 0.5), 50.0)
    single, together = [0.0], [0.0]
    for k in range(longest):
        single.append(single[-1] + log(alpha / wrong + k))
        together.append(together[-1] + log(alpha + k))
    return single, together


def _gains(weights: Floats, rates: _Group, urn: _Urn) -> Floats:
    """By model, what one more answer adds to the probability of the likeliest.

    Args:
        weights: [answer, class] probability that it is right; the last row is for all unseen.
        rates: of the group.
        urn: how wrong answers fall.
    """
    seen = len(weights) - 1
    right, wrong, none = weights @ rates.right, weights @ rates.wrong, weights @ rates.none
    # Summed over what the model may say: P(it says so, and the then likeliest answer is right).
    best = none[:-1].max(0) if seen else np.zeros(none.shape[1])
    for code in range(seen):
        after = wrong[:-1] * urn.again[code, :-1, None]
        after[code] = right[code]
        best += after.max(0)
    if urn.left > 0:
        # One of the options left, which are all alike.
        new = right[-1] / urn.left
        if seen:
            new = np.maximum(new, (wrong[:-1] * urn.again[-1, :-1, None]).max(0))
        best += urn.left * new
    now = weights[:-1].sum(1).max() if seen else 0.0
    return np.asarray(np.maximum(best - now, 0.0))
