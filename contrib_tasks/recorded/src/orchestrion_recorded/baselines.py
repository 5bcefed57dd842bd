"""Fixed strategies, evaluated exactly on any split: what learning has to beat.

    from orchestrion_recorded.baselines import best_cascade, evaluate, matrix
    recording = RecordedTask(table=path).recording()
    train, test = matrix(recording, "train"), matrix(recording, "test")
    result = evaluate(test, best_cascade(train, weight=0.2))
    result.correct.mean(), result.cost.mean(), result.reward(0.2).mean()

Every search looks at the matrix it is given and at nothing else: give it the training questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from orchestrion import Key
from orchestrion.runs import Estimate, difference
from orchestrion_recorded.matrix import (
    Candidates,
    Matrix,
    Result,
    Strategy,
    candidates,
    cross_fitted,
    evaluate,
    matrix,
)

__all__ = [
    "Candidates",
    "Matrix",
    "Result",
    "Strategy",
    "ahead",
    "best_by_category",
    "best_cascade",
    "best_set",
    "best_single",
    "candidates",
    "cross_fitted",
    "crossovers",
    "describe",
    "evaluate",
    "evaluate_by_category",
    "everybody",
    "matrix",
    "oracle",
]


def best_single(data: Matrix, weight: float) -> Strategy:
    """The one model whose answers alone are worth most."""
    return max(
        (Strategy((m,)) for m in range(len(data.models))),
        key=lambda one: float(evaluate(data, one).reward(weight).mean()),
    )


def best_set(
    data: Matrix, weight: float, beam: int = 32, models: Sequence[int] | None = None
) -> Strategy:
    """The best fixed sequence, found by beam search.

    The vote does not depend on the order of asking, so a sequence is a set; asking nobody is one.

    Args:
        data: the training questions.
        weight: of cost.
        beam: how many sets of each size are extended.
        models: those that may be asked; all by default.
    """
    free = range(len(data.models)) if models is None else models
    best, best_reward = Strategy(()), 0.0
    front: list[tuple[int, ...]] = [()]
    for _ in list(free)[: 1 if data.single else None]:
        grown = sorted({tuple(sorted((*one, m))) for one in front for m in free if m not in one})
        rewards = [float(evaluate(data, Strategy(one)).reward(weight).mean()) for one in grown]
        ranked = sorted(range(len(grown)), key=lambda i: (-rewards[i], grown[i]))[:beam]
        front = [grown[i] for i in ranked]
        if rewards[ranked[0]] > best_reward + 1e-12:
            best, best_reward = Strategy(front[0]), rewards[ranked[0]]
    return best


def best_cascade(data: Matrix, weight: float, most: int = 3, *, final: bool = False) -> Strategy:
    """The best two-level cascade, by exhaustive search: ask up to `most`, maybe one more."""
    return candidates(data, most, final=final).best(weight)


def best_by_category(
    data: Matrix, weight: float, shrinkage: float = 20.0, models: Sequence[int] | None = None
) -> dict[str, Strategy]:
    """Return the best strategy for each group of questions: a look-up, and no learning.

    Strategies ask nobody, one model, or one and another unless so many agree. A group's mean reward
    is shrunk towards the mean over all questions.

    Args:
        data: the training questions.
        weight: of cost.
        shrinkage: how many questions the overall mean counts for.
        models: those that may be asked; all by default.

    Returns:
        By group; under "" what is best over all, for groups that were not seen.
    """
    overall = candidates(data, 1, models=models)
    means = overall.accuracy - weight * overall.cost
    chosen = {"": overall.best(weight)}
    for group in sorted({*data.groups} - {""}):
        rows = [i for i, own in enumerate(data.groups) if own == group]
        own = candidates(data.rows(rows), 1, models=models)
        shrunk = len(rows) * (own.accuracy - weight * own.cost) + shrinkage * means
        chosen[group] = own.strategies[int(np.argmax(np.round(shrunk, 9)))]
    return chosen


def evaluate_by_category(data: Matrix, chosen: Mapping[str, Strategy]) -> Result:
    """What a look-up by group gives on each question."""
    correct, cost = np.zeros(len(data.ids)), np.zeros(len(data.ids))
    for group in {*data.groups}:
        rows = [i for i, own in enumerate(data.groups) if own == group]
        result = evaluate(data.rows(rows), chosen.get(group, chosen[""]))
        correct[rows], cost[rows] = result.correct, result.cost
    return Result(correct, cost)


def everybody(data: Matrix) -> Strategy:
    """The vote of all."""
    return Strategy(tuple(range(len(data.models))))


def oracle(data: Matrix, weight: float) -> Result:
    """The model whose answer is worth most, or nobody where none is worth its price."""
    worth = np.where(data.askable, data.right - weight * data.costs, -np.inf)
    best, rows = worth.argmax(1), np.arange(len(data.ids))
    pays = worth[rows, best] > 0
    correct, cost = data.right[rows, best], data.costs[rows, best]
    return Result(np.where(pays, correct, 0.0), np.where(pays, cost, 0.0))


def ahead(first: Result, second: Result, weight: float, key: Key) -> Estimate:
    """How much more reward the first gives on a question, with a paired 95 % interval."""
    return difference(
        first.reward(weight).tolist(), second.reward(weight).tolist(), key.child("ahead")
    )


def crossovers(data: Matrix) -> list[float]:
    """Cost weights at which the best single model changes, from low to high.

    The last one is where even the best value is not worth its price. There two choices are
    worth the same on average, and telling questions apart pays most.
    """
    singles = [
        (float((data.costs * data.askable)[:, m].mean()), float(data.right[:, m].mean()))
        for m in range(len(data.models))
    ]
    hull = [(0.0, 0.0)]
    for point in sorted(singles, key=lambda one: (one[0], -one[1])):
        if point[1] <= hull[-1][1]:
            continue  # dearer, and no better
        if point[0] <= hull[-1][0]:
            hull.pop()  # better, and no dearer: only nobody against a free model
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    return sorted(_slope(a, b) for a, b in pairwise(hull))


def _slope(a: tuple[float, float], b: tuple[float, float]) -> float:
    return (b[1] - a[1]) / (b[0] - a[0])


def describe(data: Matrix, strategy: Strategy) -> str:
    """A strategy in words."""
    names = " + ".join(data.models[m] for m in strategy.first) or "nobody"
    if len(strategy.first) > 4:
        names = f"{len(strategy.first)} models"
    if strategy.then is None:
        return names
    then = data.models[strategy.then] + (" (final)" if strategy.final else "")
    return f"{names}; unless {strategy.agree} agree: {then}"
