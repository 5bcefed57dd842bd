"""What the training questions say about the models; nothing else is looked at.

Two things are estimated. *Votes*: a model's weight in a group is the log-odds of its answers
there, against the rate at which two wrong answers coincide,

    w = ln(p / (1 - p)) + ln(1 / c),    p shrunk to the model's overall accuracy,

which is the weight of an independent voter (Nitzan and Paroush 1982) among about 1 / c + 1
alternatives. *Difficulty*: questions fall into latent classes, in each of which every model is
right, wrong or silent with probabilities of its own (Lazarsfeld's latent class model, fitted by
expectation maximisation from a fixed start). So agreement counts for less where mistakes come
together, and a wrong answer of one model says something about the others.

Everything comes out as plain Python numbers, so that estimates can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion_recorded.table import Row, Table, same

VOTE_SCALE = 1 << 20
"""Votes are whole numbers of 1 / VOTE_SCALE, so that their sum does not depend on its order."""
_LEAST, _MOST = 0.05, 5.0  # of a vote
_GROUPS = 32  # the most frequent ones have estimates of their own
_EVEN = 1.0  # answers each model is thought to have given at the common rate
_CLASS_PRIOR = 8.0  # questions each class starts with, at the model's common rates
_STEPS = 60
_FLOOR = 3e-3  # no rate is 0: what never happened may happen yet
_UNKNOWN_OPTIONS = 10

Floats = NDArray[np.float64]
Rates = Sequence[Sequence[Sequence[float]]]
"""By group, class and model."""


@frozen
class Estimates:
    """By group, the last entry being for a group that was not seen.

    Args:
        groups: those with estimates of their own, in the order of the features.
        votes: weight of a model's vote, in units of 1 / VOTE_SCALE.
        prior: probability of each class.
        right: probability that a model is right; so also the next two.
        wrong: that it is wrong.
        none: that it gives no answer.
        coincide: how often two wrong answers to a question are the same.
        options: number of options where a table does not say.
    """

    groups: tuple[str, ...]
    votes: Sequence[Sequence[int]]
    prior: Sequence[Sequence[float]]
    right: Rates
    wrong: Rates
    none: Rates
    coincide: float
    options: int


def estimate(
    table: Table, shrinkage: float, classes: int, groups: Sequence[str] | None = None
) -> Estimates:
    """Estimate from a table that holds the training questions only.

    Args:
        shrinkage: how many answers in a group the overall rates count for.
        classes: latent classes of difficulty; 1 takes models for independent.
        groups: those that have estimates of their own; by default the most frequent ones.
    """
    groups = _groups(table.rows) if groups is None else tuple(groups)
    of = _places(table, groups)
    right, wrong, none = _outcomes(table)
    coincide = _coincide(table)
    prior, p, silent = _classes(right, wrong, none, of, len(groups), shrinkage, classes)
    return Estimates(
        groups,
        votes(table, groups, shrinkage),
        prior.tolist(),
        p.tolist(),
        ((1 - p) * (1 - silent)).tolist(),
        ((1 - p) * silent).tolist(),
        coincide,
        _options(table.rows),
    )


def votes(table: Table, groups: Sequence[str], shrinkage: float) -> list[list[int]]:
    """Estimate each model's vote, in units of 1 / VOTE_SCALE, by group and for an unknown group."""
    right, wrong, _ = _outcomes(table)
    rates = _by_group(right, right + wrong, _places(table, groups), len(groups), shrinkage)
    weights = np.clip(_logit(rates) - log(_coincide(table)), _LEAST, _MOST)
    return [[round(weight * VOTE_SCALE) for weight in row] for row in weights.tolist()]


def _places(table: Table, groups: Sequence[str]) -> Any:
    place = {name: i for i, name in enumerate(groups)}
    return np.array([place.get(row.group, len(groups)) for row in table.rows])


def _groups(rows: Sequence[Row]) -> tuple[str, ...]:
    counts = Counter(row.group for row in rows)
    frequent = sorted(counts, key=lambda name: (-counts[name], name))[:_GROUPS]
    return tuple(sorted(frequent))


def _options(rows: Sequence[Row]) -> int:
    """Return how many different right answers the training questions have, from 2 to 10."""
    return min(max(len({same(row.right) for row in rows}), 2), _UNKNOWN_OPTIONS)


def _outcomes(table: Table) -> tuple[Floats, Floats, Floats]:
    """[question, model] how far it was right, wrong, silent; all 0 where nothing is recorded."""
    outcomes = np.zeros((3, len(table.rows), len(table.models)))
    for n, row in enumerate(table.rows):
        truth = same(row.right)
        for m, model in enumerate(table.models):
            record = row.answers.get(model)
            if record is None:
                continue
            if record.answer is not None and record.score is not None:
                outcomes[0, n, m], outcomes[1, n, m] = record.score, 1 - record.score
            else:
                what = 2 if record.answer is None else int(same(record.answer) != truth)
                outcomes[what, n, m] = 1
    return outcomes[0], outcomes[1], outcomes[2]


def _coincide(table: Table) -> float:
    """Return how often two models that are both wrong say the same."""
    pairs = equal = 0
    for row in table.rows:
        truth = same(row.right)
        answers = [
            same(record.answer) for record in row.answers.values() if record.answer is not None
        ]
        counts = Counter(answer for answer in answers if answer != truth)
        wrong = sum(counts.values())
        pairs += wrong * (wrong - 1)
        equal += sum(count * (count - 1) for count in counts.values())
    return min(max((equal + 1) / (pairs + 3), 0.02), 0.98)


def _by_group(hits: Floats, tries: Floats, of: Any, groups: int, shrinkage: float) -> Floats:
    """Return rates [group + 1, model], shrunk to each model's overall rate, the last row."""
    common = (hits.sum() + 1) / (tries.sum() + 2)
    overall = (hits.sum(0) + _EVEN * common) / (tries.sum(0) + _EVEN)
    rates = np.tile(overall, (groups + 1, 1))
    for g in range(groups):
        inside = of == g
        count = tries[inside].sum(0) + shrinkage
        known = count > 0
        rates[g, known] = (hits[inside].sum(0) + shrinkage * overall)[known] / count[known]
    return np.asarray(np.clip(rates, 0.01, 0.99))


def _classes(
    right: Floats, wrong: Floats, none: Floats, of: Any, groups: int, shrinkage: float, classes: int
) -> tuple[Floats, Floats, Floats]:
    """Return shares of the classes [group + 1, class], and probabilities by group, class and model.

    The probabilities are of being right and, for those that are not, of being silent.
    """
    what = np.stack([right, wrong, none], 2).reshape(len(right), -1)
    models = right.shape[1]
    common = (what.sum(0).reshape(models, 3) + _FLOOR) / (
        (right + wrong + none).sum(0)[:, None] + 3 * _FLOOR
    )
    member = _first_guess(right, right + wrong + none, classes)
    for _ in range(_STEPS):
        counts = (member.T @ what).reshape(classes, models, 3) + _CLASS_PRIOR * (common + _FLOOR)
        rates = counts / counts.sum(2, keepdims=True)
        shares = _shares(member, of, groups, shrinkage)
        scores = what @ np.log(rates).reshape(classes, -1).T + np.log(shares[of])
        scores = np.exp(scores - scores.max(1, keepdims=True))
        member = scores / scores.sum(1, keepdims=True)
    silent = rates[:, :, 2] / (rates[:, :, 1] + rates[:, :, 2])
    p, quiet = (np.tile(rate, (groups + 1, 1, 1)) for rate in (rates[:, :, 0], silent))
    for g in range(groups):
        # What a group's models do better or worse, and are silent more or less often, than their
        # classes say, as shifts in logits.
        inside = of == g
        hits, misses, nothing = (what[inside].sum(0) for what in (right, wrong, none))
        p[g] = _shifted(p[g], shares[g][:, None], hits, hits + misses + nothing, shrinkage)
        quiet[g] = _shifted(
            quiet[g], shares[g][:, None] * (1 - p[g]), nothing, misses + nothing, shrinkage
        )
    return shares, np.clip(p, 1e-3, 1 - 1e-3), np.clip(quiet, 1e-3, 1 - 1e-3)


def _shifted(
    rates: Floats, weights: Floats, hits: Floats, tries: Floats, shrinkage: float
) -> Floats:
    """Return rates [class, model], shifted in logits so that they fit the counts."""
    wanted = (weights * rates).sum(0) / (weights * np.ones_like(rates)).sum(0)
    own = (hits + (shrinkage + 1) * wanted) / (tries + shrinkage + 1)
    return np.asarray(1 / (1 + np.exp(-_logit(rates) - (_logit(own) - _logit(wanted)))))


def _first_guess(right: Floats, recorded: Floats, classes: int) -> Floats:
    """Return classes of equal size by how many models are right, a little blurred."""
    share = right.sum(1) / np.maximum(recorded.sum(1), 1)
    rank = np.argsort(np.argsort(share, kind="stable"), kind="stable")
    member = np.full((len(share), classes), 0.2 / classes)
    member[np.arange(len(share)), rank * classes // len(share)] += 0.8
    return member


def _shares(member: Floats, of: Any, groups: int, shrinkage: float) -> Floats:
    overall = member.mean(0)
    shares = np.tile(overall, (groups + 1, 1))
    for g in range(groups):
        inside = member[of == g]
        shares[g] = (inside.sum(0) + (shrinkage + 1) * overall) / (len(inside) + shrinkage + 1)
    return np.asarray(np.clip(shares, 1e-6, None))


def _logit(p: Floats) -> Floats:
    clipped = np.clip(p, 1e-3, 1 - 1e-3)
    return np.asarray(np.log(clipped / (1 - clipped)))
