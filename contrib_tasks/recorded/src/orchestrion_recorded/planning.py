"""How `best-inquiry` finds its plans.

Plans come from backward induction (Bellman 1957) on the belief that `estimate` fits (latent
classes): the value of stopping is how likely the likeliest answer is right; that of asking, what
is expected after each thing the model may say, minus its price. After `DEPTH` answers, only one
more is looked at. Looking one answer ahead from the start would underrate what two cheap answers
tell together.

The belief is least right about whom to begin with, since a group's models fail together more often
than classes say. So each group begins as planned, or with one of the models, or asks nobody, or
follows the cascade that is best over all groups: whichever has the highest mean reward on the
training questions, where each question is judged by plans made without it (cross-fitting in three
parts), shrunk towards the mean over all groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from orchestrion_recorded.baselines import Ints, Matrix, Strategy, candidates
from orchestrion_recorded.belief import Believer, Heard
from orchestrion_recorded.case import ABSENT, SILENT, Case, leader, tally
from orchestrion_recorded.estimate import Floats, estimate
from orchestrion_recorded.inquiry import Tree, follow
from orchestrion_recorded.recording import Recording

DEPTH = 2
FOLDS = 3
_SLACK = 1e-12  # a choice must be better by more than rounding

Kind = tuple[int, int]
"""Of questions: the group, among the estimates' groups, and the number of options."""
Codes = tuple[int, ...]
Opening = int | Strategy | None
"""Begin with a model, by index; do as a cascade says; or None: as planned."""


class Planner:
    """Work out plans for all kinds of questions at once.

    `prices` are by model, in units of a right answer; only `models` may be asked.
    """

    def __init__(
        self,
        believer: Believer,
        prices: Sequence[float],
        models: Sequence[int],
        kinds: Sequence[Kind],
    ) -> None:
        self._believer, self._prices, self._models = believer, prices, tuple(models)
        self.kinds = list(kinds)
        groups, options = np.array(self.kinds).reshape(-1, 2).T
        self._kinds = groups, options
        self.best = cache(self._best)

    def _best(self, answers: Heard) -> tuple[Floats, Ints]:
        """Return by kind the value of going on in the best way, and the model to ask; -1 to stop.

        Args:
            answers: models with the number of their answer, by ascending model.
        """
        outlook = self._believer.outlook(self._kinds, answers)
        best, choice = outlook.now.copy(), np.full(len(self.kinds), -1)
        models_asked = {m for m, _ in answers}
        for m in self._models:
            if m in models_asked or (1 - self._prices[m] <= best).all():
                continue
            if len(answers) < DEPTH:
                worth = np.zeros(len(self.kinds))
                for code, chance in enumerate(outlook.says[:, m].T, SILENT):
                    if (chance > 0).any():
                        worth += chance * self.best(_ordered((*answers, (m, code))))[0]
            else:
                worth = outlook.now + outlook.gains[:, m]
            better = worth - self._prices[m] > best + _SLACK
            best[better], choice[better] = worth[better] - self._prices[m], m
        return best, choice

    def tree(self, kind: int, names: Sequence[str], opening: Opening = None) -> Tree:
        """Return the plan for the kind at a place; `names` are by model."""
        if isinstance(opening, Strategy):
            return _cascade(opening, names, self.kinds[kind][1], ())
        return self._tree(kind, names, (), opening)

    def _tree(self, kind: int, names: Sequence[str], path: Heard, first: int | None) -> Tree:
        model = int(self.best(_ordered(path))[1][kind]) if first is None else first
        if model < 0:
            return None
        codes = [code for _, code in path]
        return _asking(
            names[model],
            codes,
            self.kinds[kind][1],
            lambda code: self._tree(kind, names, (*path, (model, code)), None),
        )


def _cascade(strategy: Strategy, names: Sequence[str], options: int, codes: Codes) -> Tree:
    """Return a cascade as a plan, after some answers."""
    order = [*strategy.first, strategy.then]
    model = order[len(codes)] if len(codes) < len(order) else None
    answered = Counter(code for code in codes if code != SILENT)
    enough = max(answered.values(), default=0) >= strategy.agree
    if model is None or (len(codes) == len(strategy.first) and enough):
        return None
    return _asking(
        names[model],
        codes,
        options,
        lambda code: _cascade(strategy, names, options, (*codes, code)),
    )


def _asking(name: str, codes: Sequence[int], options: int, then: Callable[[int], Tree]) -> Tree:
    """Return the plan that asks a model after these answers."""
    # Where every option was named, there is no new one.
    last = min(len({*codes} - {SILENT}), options - 1)
    return {"ask": name, "then": [then(code) for code in range(SILENT, last + 1)]}


def _ordered(path: Heard) -> Heard:
    """Return the same by ascending model, answers numbered as first met in that order."""
    codes: dict[int, int] = {}
    return tuple(
        (m, SILENT if code == SILENT else codes.setdefault(code, len(codes)))
        for m, code in sorted(path)
    )


class PlanSearch:
    """Plan on all training questions, and on parts of them; plans ask only `models`."""

    def __init__(
        self, task: Recording, data: Matrix, weight: float, models: Sequence[int], classes: int
    ) -> None:
        self._task, self._data, self._weight, self._classes = task, data, weight, classes
        priced = (data.costs * data.askable).sum(0) / data.askable.sum(0).clip(min=1)
        self._prices, self._models = (weight * priced).tolist(), models
        self._cases = [task.cases[name] for name in data.ids]
        self._kinds = sorted({(case.group, case.options) for case in self._cases})

    def openings(self, shrinkage: float) -> tuple[dict[int, int], float]:
        """Return by group, -1 for others, the place of the best opening; and its mean reward."""
        rewards, groups = self._rewards(), [case.group for case in self._cases]
        chosen = best_openings(rewards, groups, shrinkage)
        mean = rewards[np.arange(len(groups)), [chosen[group] for group in groups]].mean()
        return chosen, float(mean)

    def plans(self, chosen: Mapping[int, int], names: Sequence[str]) -> dict[str, dict[int, Tree]]:
        """Return by category and number of options the plan; "" stands for other categories."""
        known = self._task.estimates.groups
        kinds = {*self._kinds, *((len(known), options) for _, options in self._kinds)}
        planner, openings, _ = self._learn(range(len(self._cases)), sorted(kinds))
        result: dict[str, dict[int, Tree]] = {}
        for place, (group, options) in enumerate(planner.kinds):
            opening = openings[chosen.get(group, chosen[-1])]
            name = known[group] if group < len(known) else ""
            result.setdefault(name, {})[options] = planner.tree(place, names, opening)
        return result

    def _learn(
        self, places: Sequence[int], kinds: Sequence[Kind]
    ) -> tuple[Planner, Sequence[Opening], Sequence[Sequence[int]]]:
        """Return what these questions teach: a planner, openings, and what votes count for."""
        task, data = self._task, self._data.rows(places)
        known = task.estimates.groups
        estimates = estimate(
            task.table.only(data.ids), task.settings.shrinkage, self._classes, known
        )
        planner = Planner(Believer(estimates), self._prices, self._models, kinds)
        cascade = candidates(data, 2, models=self._models).best(self._weight)
        openings = [None, Strategy(()), *self._models, cascade]
        return planner, openings, task.ballots(estimates.votes)

    def _rewards(self) -> Floats:
        """[question, opening] what plans bring that were made without the question."""
        every, names = range(len(self._cases)), self._task.models
        rewards = np.zeros((len(every), len(self._models) + 3))
        for fold in range(FOLDS):
            rest = [n for n in every if n % FOLDS != fold] or every
            planner, openings, votes = self._learn(rest, self._kinds)
            trees = {
                kind: [planner.tree(place, names, opening) for opening in openings]
                for place, kind in enumerate(self._kinds)
            }
            for n in every[fold::FOLDS]:
                case = self._cases[n]
                for o, tree in enumerate(trees[case.group, case.options]):
                    rewards[n, o] = self._played(tree, case, votes[case.group])
        return rewards

    def _played(self, tree: Tree, case: Case, votes: Sequence[int]) -> float:
        answers: dict[str, object] = {}
        models_asked: list[int] = []
        while (name := follow(tree, answers)) is not None:
            m = self._task.models.index(name)
            answers[name] = case.codes[m] if case.codes[m] >= 0 else None
            if case.codes[m] != ABSENT:
                models_asked.append(m)
        leads = leader(tally(case.codes, votes, models_asked, len(case.labels)))
        right = float(leads >= 0 and leads == case.right)
        return right - self._weight * sum(case.costs[m] for m in models_asked)


def shortlist(data: Matrix, weight: float, models: Sequence[int], count: int) -> list[int]:
    """Return the models in the best cascades that are worse without them, best first."""
    every = candidates(data, 2, models=models)
    values = (every.accuracy - weight * every.cost).tolist()
    rewards = dict(zip(every.strategies, values, strict=True))
    best = dict.fromkeys(models, -np.inf)
    for strategy, reward in rewards.items():
        for m in strategy.asked:
            if reward > max(rewards[strategy.without(m)], best[m]) + _SLACK:
                best[m] = reward
    return sorted(best, key=lambda m: (-best[m], m))[:count]


def best_openings(rewards: Floats, groups: Sequence[int], shrinkage: float) -> dict[int, int]:
    """Return by group the column with the highest mean, shrunk to that of all; -1: over all.

    `rewards` are [question, opening]; the mean over all groups counts for `shrinkage` questions.
    """
    of, means = np.array(groups), rewards.mean(0)
    chosen = {-1: int(np.round(means, 9).argmax())}
    for group in sorted({*groups}):
        shrunk = rewards[of == group].sum(0) + shrinkage * means
        chosen[group] = int(np.round(shrunk, 9).argmax())
    return chosen
