"""Fixed strategies, evaluated exactly on any split: what learning has to beat.

    from orchestrion_recorded.baselines import best_cascade, evaluate, matrix
    settings = RecordedTask(table=path)
    recording = Recording(settings, settings.read())
    train, test = matrix(recording, "train"), matrix(recording, "test")
    result = evaluate(test, best_cascade(train, weight=0.2))
    result.correct.mean(), result.cost.mean(), result.reward(0.2).mean()

Every search looks at the matrix it is given and at nothing else: give it the training questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from orchestrion import Split
from orchestrion_recorded.case import ABSENT, Case
from orchestrion_recorded.estimate import votes
from orchestrion_recorded.recording import Recording

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FOLDS = 5
_CODES = 1 << 10  # more than there can be different answers to a question


@frozen
class Strategy:
    """Ask `first`; stop if `agree` of them agree, else ask `then` as well. Models by index.

    Without `then`, it is a fixed set of models.
    """

    first: tuple[int, ...]
    agree: int = 0
    then: int | None = None

    @property
    def asked(self) -> tuple[int, ...]:
        """Everyone who may be asked."""
        return self.first if self.then is None else (*self.first, self.then)

    def without(self, model: int) -> Strategy:
        """Return the same without one of them."""
        first = tuple(m for m in self.first if m != model)
        if self.then is None or self.then == model:
            return Strategy(first)
        if not first:
            return Strategy((self.then,))
        return Strategy(first, min(self.agree, len(first) + 1), self.then)


@frozen(eq=False)
class StrategyResult:
    """What a strategy gives, question by question: how good it was, and the cost."""

    correct: Floats
    cost: Floats

    def reward(self, weight: float) -> Floats:
        """Return right minus weighted cost."""
        return np.asarray(self.correct - weight * self.cost)


@frozen(slots=False, eq=False)
class Matrix:
    """Questions by models.

    Args:
        models: their names.
        ids: of the questions.
        codes: code of the answer; negative for none.
        right: how good the answer is: 1 or 0, or its score.
        votes: what each vote counts for.
        costs: of asking.
        askable: whether there is a record.
        groups: of the questions.
        single: one model is asked at most, as where there are scores and no votes.
    """

    models: tuple[str, ...]
    ids: tuple[str, ...]
    codes: Ints
    right: Floats
    votes: Ints
    costs: Floats
    askable: Bools
    groups: tuple[str, ...] = ()
    single: bool = False

    @cached_property
    def backing(self) -> Ints:
        """Return what model i's vote adds to the answer of model j [i, question, j]."""
        answered = self.codes >= 0
        equal = (self.codes.T[:, :, None] == self.codes[None]) & answered.T[:, :, None]
        return np.asarray(np.where(equal, self.votes.T[:, :, None], 0))

    def rows(self, chosen: Sequence[int]) -> Matrix:
        """Return some of the questions, by place."""
        at = list(chosen)
        return evolve(
            self,
            ids=tuple(self.ids[i] for i in at),
            codes=self.codes[at],
            right=self.right[at],
            votes=self.votes[at],
            costs=self.costs[at],
            askable=self.askable[at],
            groups=tuple(self.groups[i] for i in at),
        )

    def key(self, totals: Ints) -> Ints:
        """Return totals of each model's answer so that a plain comparison also settles ties."""
        keys = totals * _CODES + (_CODES - 1 - self.codes)
        return np.asarray(np.where((self.codes >= 0) & (totals > 0), keys, -1))


def matrix(recording: Recording, split: Split, ids: Sequence[str] | None = None) -> Matrix:
    """Return a split of an opened task, or some of its questions."""
    wanted = [problem.id for problem in recording.problems(split)] if ids is None else ids
    cases: list[Case] = [recording.cases[name] for name in wanted]
    answers = np.array([case.codes for case in cases], np.int64)
    return Matrix(
        recording.models,
        tuple(wanted),
        answers,
        np.array([case.worth for case in cases], np.float64),
        np.array([recording.votes[case.group] for case in cases], np.int64),
        np.array([case.costs for case in cases], np.float64),
        answers != ABSENT,
        tuple(case.row.group for case in cases),
        recording.table.scored,
    )


def cross_fitted(recording: Recording, data: Matrix, folds: int = FOLDS) -> Matrix:
    """Return training questions with votes that were estimated without them.

    Votes weigh what models did on the very questions that a search looks at, which makes cascades
    that lean on many votes look better than they are. Question i is in fold i modulo `folds`; its
    votes come from the questions of the others.
    """
    groups, shrinkage = recording.estimates.groups, recording.settings.shrinkage
    place = {name: i for i, name in enumerate(groups)}
    fitted = data.votes.copy()
    for fold in range(min(folds, len(data.ids))):
        rest = recording.table.only(name for i, name in enumerate(data.ids) if i % folds != fold)
        if rest.rows:
            ballots = recording.ballots(votes(rest, groups, shrinkage))
            for i in range(fold, len(data.ids), folds):
                fitted[i] = ballots[place.get(data.groups[i], len(groups))]
    return evolve(data, votes=fitted)


def evaluate(data: Matrix, strategy: Strategy) -> StrategyResult:
    """Return what a strategy gives on each question. A model without a record is passed over."""
    after = _After(data, strategy.first)
    correct, cost = after.correct, after.cost
    if strategy.then is not None:
        go = (after.agreement < strategy.agree) & data.askable[:, strategy.then]
        correct = np.where(go, after.voted[:, strategy.then], correct)
        cost = cost + np.where(go, data.costs[:, strategy.then], 0.0)
    return StrategyResult(correct, cost)


class _After:
    """The state after the first ones were asked, question by question."""

    def __init__(self, data: Matrix, first: Sequence[int]) -> None:
        self.data = data
        chosen, n = list(first), len(data.ids)
        self.cost = (data.costs * data.askable)[:, chosen].sum(1)
        self._totals = data.backing[chosen].sum(0)
        # Where nobody's answer leads, it is the first column: worth nothing.
        keys = np.hstack([np.full((n, 1), -1), data.key(self._totals)[:, chosen]])
        worth = np.hstack([np.zeros((n, 1)), data.right[:, chosen]])
        rows, leads = np.arange(n), keys.argmax(1)
        self._key, self.correct = keys[rows, leads], worth[rows, leads]
        codes = data.codes[:, chosen]
        equal = (codes[:, :, None] == codes[:, None]) & (codes >= 0)[:, None]
        self.agreement = equal.sum(2).max(1, initial=0)

    @cached_property
    def voted(self) -> Floats:
        """[question, model] how good the vote is once that model was asked as well."""
        data = self.data
        overtakes = data.key(self._totals + data.votes) > self._key[:, None]
        return np.asarray(np.where(overtakes, data.right, self.correct[:, None]))


@frozen(eq=False)
class Candidates:
    """Many strategies with their mean accuracy and cost."""

    strategies: tuple[Strategy, ...]
    accuracy: Floats
    cost: Floats

    def best(self, weight: float) -> Strategy:
        """Return the one with the highest mean reward; of equals the first, which asks fewer."""
        return self.strategies[int(np.argmax(np.round(self.accuracy - weight * self.cost, 12)))]


def candidates(data: Matrix, limit: int, models: Sequence[int] | None = None) -> Candidates:
    """Return every cascade that asks at most `limit` models first, and every fixed set of so many.

    They ask only the models given by index; all by default.
    """
    free = list(range(len(data.models)) if models is None else models)
    strategies: list[Strategy] = [Strategy(())]
    accuracy, cost = [np.zeros(1)], [np.zeros(1)]
    for size in range(1, (1 if data.single else limit) + 1):
        for first in combinations(free, size):
            after = _After(data, first)
            mean, spent = after.correct.mean(), after.cost.mean()
            strategies.append(Strategy(first))
            accuracy.append(np.array([mean]))
            cost.append(np.array([spent]))
            if data.single:
                continue
            others = [m for m in free if m not in first]
            levels = range(1, size + 2)
            gain = (after.voted - after.correct[:, None]) * data.askable
            go = np.array([after.agreement < level for level in levels], float) / len(data.ids)
            accuracy.append((mean + go @ gain[:, others]).ravel())
            cost.append((spent + go @ (data.costs * data.askable)[:, others]).ravel())
            strategies += [Strategy(first, k, then) for k in levels for then in others]
    return Candidates(tuple(strategies), np.concatenate(accuracy), np.concatenate(cost))


def best_single(data: Matrix, weight: float) -> Strategy:
    """Return the one model whose answers alone are worth most."""
    return max(
        (Strategy((m,)) for m in range(len(data.models))),
        key=lambda strategy: float(evaluate(data, strategy).reward(weight).mean()),
    )


def best_set(
    data: Matrix, weight: float, beam: int = 32, models: Sequence[int] | None = None
) -> Strategy:
    """Return the best fixed sequence, found by beam search.

    The vote does not depend on the order of asking, so a sequence is a set; asking nobody is one.
    `beam` sets of each size are extended.
    """
    free = range(len(data.models)) if models is None else models
    best, best_reward = Strategy(()), 0.0
    front: list[tuple[int, ...]] = [()]
    for _ in list(free)[: 1 if data.single else None]:
        grown = sorted(
            {tuple(sorted((*chosen, m))) for chosen in front for m in free if m not in chosen}
        )
        rewards = [
            float(evaluate(data, Strategy(chosen)).reward(weight).mean()) for chosen in grown
        ]
        ranked = sorted(range(len(grown)), key=lambda i: (-rewards[i], grown[i]))[:beam]
        front = [grown[i] for i in ranked]
        if rewards[ranked[0]] > best_reward + 1e-12:
            best, best_reward = Strategy(front[0]), rewards[ranked[0]]
    return best


def best_cascade(data: Matrix, weight: float, limit: int = 3) -> Strategy:
    """Return the best cascade, by exhaustive search: ask up to `limit`, maybe one more."""
    return candidates(data, limit).best(weight)


def best_by_category(
    data: Matrix,
    weight: float,
    shrinkage: float = 20.0,
    models: Sequence[int] | None = None,
    limit: int = 1,
) -> dict[str, Strategy]:
    """Return the best strategy for each group of questions: a look-up, and no learning.

    Strategies ask nobody, up to `limit` models, or another as well unless so many agree. A group's
    mean reward is shrunk towards the mean over all questions, which counts for `shrinkage` of them.
    Under "" is what is best over all, for groups that were not seen.
    """
    overall = candidates(data, limit, models=models)
    means = overall.accuracy - weight * overall.cost
    chosen = {"": overall.best(weight)}
    for group in sorted({*data.groups} - {""}):
        rows = [i for i, own in enumerate(data.groups) if own == group]
        own = candidates(data.rows(rows), limit, models=models)
        shrunk = len(rows) * (own.accuracy - weight * own.cost) + shrinkage * means
        chosen[group] = own.strategies[int(np.argmax(np.round(shrunk, 9)))]
    return chosen


def evaluate_by_category(data: Matrix, chosen: Mapping[str, Strategy]) -> StrategyResult:
    """Return what a look-up by group gives on each question."""
    correct, cost = np.zeros(len(data.ids)), np.zeros(len(data.ids))
    for group in {*data.groups}:
        rows = [i for i, own in enumerate(data.groups) if own == group]
        result = evaluate(data.rows(rows), chosen.get(group, chosen[""]))
        correct[rows], cost[rows] = result.correct, result.cost
    return StrategyResult(correct, cost)


def oracle(data: Matrix, weight: float) -> StrategyResult:
    """Return the model whose answer is worth most, or nobody where none is worth its price."""
    worth = np.where(data.askable, data.right - weight * data.costs, -np.inf)
    best, rows = worth.argmax(1), np.arange(len(data.ids))
    pays = worth[rows, best] > 0
    correct, cost = data.right[rows, best], data.costs[rows, best]
    return StrategyResult(np.where(pays, correct, 0.0), np.where(pays, cost, 0.0))


def describe(data: Matrix, strategy: Strategy) -> str:
    """Return a strategy in words."""
    names = " + ".join(data.models[m] for m in strategy.first) or "nobody"
    if len(strategy.first) > 4:
        names = f"{len(strategy.first)} models"
    if strategy.then is None:
        return names
    return f"{names}; unless {strategy.agree} agree: {data.models[strategy.then]}"
