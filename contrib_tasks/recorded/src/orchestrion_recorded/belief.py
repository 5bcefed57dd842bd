"""How likely each answer seen, and each model, is right: exact under the estimates.

Given the true answer and a question's class, models answer independently, except that wrong
answers gather: they follow a Polya urn, so that two of them coincide with the estimated rate.
Candidates are the answers seen, and one that nobody gave yet for each option left.

Written for single steps: plain numbers, no arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, log
from operator import add, mul

from attrs import frozen

from orchestrion_recorded.case import SILENT, Case
from orchestrion_recorded.estimate import Estimates

__all__ = ["Belief", "believe"]


@frozen
class Belief:
    """Probabilities given what was seen.

    Args:
        answers: by code, that this answer is right; 0 for those not seen.
        models: by model, that it is right, whether or not it was asked.
    """

    answers: Sequence[float]
    models: Sequence[float]


@lru_cache(4096)
def _urn(coincide: float, options: int, longest: int) -> tuple[list[float], list[float]]:
    """Cumulative logarithms of the urn: of one wrong answer's weight, and of all together."""
    wrong = options - 1
    alpha = min(max((1 - coincide) / max(coincide - 1 / wrong, 0.02), 0.5), 50.0)
    one, together = [0.0], [0.0]
    for k in range(longest):
        one.append(one[-1] + log(alpha / wrong + k))
        together.append(together[-1] + log(alpha + k))
    return one, together


def believe(case: Case, asked: Sequence[int], estimates: Estimates) -> Belief:
    """What is likely after these models were asked.

    Args:
        case: the question.
        asked: models by index, each once, none of them absent.
        estimates: from the training questions.
    """
    g, said = case.group, case.said
    log_gain, log_wrong, log_none = (
        estimates.log_gain[g],
        estimates.log_wrong[g],
        estimates.log_none[g],
    )
    # ln P(class, everybody wrong or silent), and by answer ln of what changes if it is right
    base = list(estimates.prior[g])
    gains: dict[int, list[float]] = {}
    counts: dict[int, int] = {}
    for model in asked:
        code = said[model]
        if code == SILENT:
            base = list(map(add, base, log_none[model]))
            continue
        base = list(map(add, base, log_wrong[model]))
        before = gains.get(code)
        counts[code] = counts.get(code, 0) + 1
        gain = log_gain[model]
        gains[code] = list(map(add, before, gain)) if before else list(gain)
    joint, unseen = _joint(case, base, gains, counts, estimates.coincide)
    return _normal(case, asked, joint, unseen, estimates.right[g])


def _joint(
    case: Case,
    base: list[float],
    gains: dict[int, list[float]],
    counts: dict[int, int],
    coincide: float,
) -> tuple[dict[int, list[float]], list[float]]:
    """ln P(answer is right, class, all seen) by code, and for an answer not seen."""
    answered = sum(counts.values())
    one, together = _urn(coincide, case.options, len(case.said))
    drawn = sum(one[count] for count in counts.values())
    joint = {}
    for code, gain in gains.items():
        count = counts[code]
        pattern = drawn - one[count] - together[answered - count]
        joint[code] = [pattern + x for x in map(add, base, gain)]
    left = case.options - len(counts)
    # Where every option was named, one of those seen is right.
    pattern = drawn - together[answered] + log(left) if left > 0 else -1e9
    return joint, [pattern + a for a in base]


def _normal(
    case: Case,
    asked: Sequence[int],
    joint: dict[int, list[float]],
    unseen: list[float],
    right: Sequence[Sequence[float]],
) -> Belief:
    most = max(map(max, [unseen, *joint.values()]))
    weights = {code: [exp(x - most) for x in row] for code, row in joint.items()}
    classes = [exp(x - most) for x in unseen]
    for row in weights.values():
        classes = list(map(add, classes, row))
    total = sum(classes)
    answers = [0.0] * len(case.labels)
    for code, row in weights.items():
        answers[code] = sum(row) / total
    shares = [one / total for one in classes]
    # One product of a row of rates and the shares; written out for the usual number of classes.
    if len(shares) == 4:
        a, b, c, d = shares
        models = [a * r[0] + b * r[1] + c * r[2] + d * r[3] for r in right]
    else:
        models = [sum(map(mul, shares, row)) for row in right]
    for model in asked:
        code = case.said[model]
        models[model] = answers[code] if code >= 0 else 0.0
    return Belief(answers, models)
