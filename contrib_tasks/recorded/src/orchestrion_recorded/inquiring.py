"""The trainer `best-inquiry`: plans from the table's estimates, openings from its answers.

Plans are those of `planning`, worked out on the belief that `estimate` fits (latent classes). What
the belief gets wrong most is whom to begin with, since a group's models fail together more than
classes say. So each group's opening (nobody, one of the models, or whoever the plan begins with) is
the one with the highest mean reward on the training questions, where each question is judged by
plans made without it (cross-fitting in three parts), shrunk towards the mean over all groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from attrs import frozen

from orchestrion import (
    JSON,
    Meta,
    Metrics,
    Plan,
    RewardFunction,
    Session,
    Split,
    Task,
    Trainer,
    UsageError,
    choice_name,
)
from orchestrion_recorded.case import ABSENT, Case
from orchestrion_recorded.inquiry import InquiryRunner
from orchestrion_recorded.planning import Planner, Tree, follow
from orchestrion_recorded.search import asking, price_weight
from orchestrion_recorded.vote import leader, tally

if TYPE_CHECKING:
    from orchestrion_recorded.baselines import Matrix

__all__ = ["BestInquiry"]

FOLDS = 3
NOBODY, PLANNED = -1, None
"""Openings beside the models' indices: ask nobody at all; begin as planned."""


@frozen
class BestInquiry(Trainer):
    """Finds the plans of the policy `inquiry` for the task `recorded`.

    The table knows every answer, so nothing is asked.

    Args:
        task: the task `recorded`, as `task`; its questions have right answers, not scores.
        reward: the run's reward, as `reward`; it must be linear in outcome and cost.
        models: how many models plans may ask: those in the best cascades.
        classes: latent classes of difficulty.
        shrinkage: how many questions of a group the mean over all groups counts for.
    """

    task: Task
    reward: RewardFunction
    models: Annotated[int, Meta(ge=1, le=10)] = 6
    classes: Annotated[int, Meta(ge=1, le=20)] = 8
    shrinkage: Annotated[float, Meta(ge=0)] = 20.0

    smoke: ClassVar[Mapping[str, JSON]] = {"models": 2}

    @property
    def iterations(self) -> int:
        """One."""
        return 1

    def check(self, session: Session) -> None:
        """Refuse every policy but `inquiry`, and every task but `recorded` with right answers."""
        from orchestrion_recorded.recording import Recording

        if not isinstance(session.policy, InquiryRunner):
            raise UsageError("the trainer best-inquiry trains the policy inquiry")
        if not isinstance(self.task, Recording):
            raise UsageError("the trainer best-inquiry knows the task recorded only: task: task")
        if self.task.table.scored:
            raise UsageError(
                f"{self.task.table.source} has scores, and the trainer best-inquiry needs answers "
                "that can agree; take the policy values and the trainer bandit"
            )
        asking(self.task.models, session)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Nothing: the table knows it all."""
        return Plan()

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Plan, choose openings, and hand the plans over."""
        from orchestrion_recorded import baselines

        self.check(session)
        task: Any = self.task  # its runtime, a Recording
        weight = await price_weight(self.reward)
        ids = [problem.id for problem in session.problems("train")]
        data = baselines.cross_fitted(task, baselines.matrix(task, "train", ids))
        team = asking(task.models, session)
        search = _Search(self, task, data, weight, _shortlist(data, weight, team, self.models))
        groups = [task.cases[name].group for name in ids]
        rewards = search.rewards(ids)
        chosen = _openings(rewards, groups, self.shrinkage)
        names = [choice_name(team[m]) if m in team else "" for m in range(len(task.models))]
        session.policy.plans = search.plans(ids, chosen, names)
        places = [chosen.get(group, chosen[-1]) for group in groups]
        total = sum(row[place] for row, place in zip(rewards, places, strict=True))
        return {"reward": total / len(ids)}


class _Search:
    """Plans on all training questions, and on parts of them."""

    def __init__(
        self, settings: BestInquiry, task: Any, data: Matrix, weight: float, models: Sequence[int]
    ) -> None:
        self.settings, self.task, self.models = settings, task, models
        self.weight = weight
        priced = (data.costs * data.askable).sum(0) / data.askable.sum(0).clip(min=1)
        self.prices = (weight * priced).tolist()
        self.openings = [NOBODY, PLANNED, *models]

    def planner(self, ids: Sequence[str]) -> tuple[Planner, list[list[int]]]:
        """A planner that knows these questions, and what votes count for by them."""
        from orchestrion_recorded.belief import Believer
        from orchestrion_recorded.estimate import estimate

        task, settings = self.task, self.settings
        table, known = task.table.only(ids), task.estimates.groups
        found = estimate(table, task.settings.shrinkage, settings.classes, known)
        return Planner(Believer(found), self.prices, self.models), task.ballots(found.votes)

    def rewards(self, ids: Sequence[str]) -> list[list[float]]:
        """[question, opening] what plans bring that were made without the question."""
        result: list[list[float]] = [[] for _ in ids]
        for fold in range(FOLDS):
            rest = [name for n, name in enumerate(ids) if n % FOLDS != fold] or ids
            planner, ballots = self.planner(rest)
            trees: dict[tuple[int, int], list[Tree]] = {}
            for n in range(fold, len(ids), FOLDS):
                case: Case = self.task.cases[ids[n]]
                kind = case.group, case.options
                if kind not in trees:
                    trees[kind] = [
                        self.tree(planner, *kind, self.task.models, o) for o in self.openings
                    ]
                votes = ballots[case.group]
                result[n] = [self._played(tree, case, votes) for tree in trees[kind]]
        return result

    def tree(
        self, planner: Planner, group: int, options: int, names: Sequence[str], first: int | None
    ) -> Tree:
        """The plan with an opening."""
        return None if first == NOBODY else planner.tree(group, options, names, first)

    def _played(self, tree: Tree, case: Case, votes: Sequence[int]) -> float:
        heard: dict[str, object] = {}
        asked: list[int] = []
        while (name := follow(tree, heard)) is not None:
            m = self.task.models.index(name)
            heard[name] = case.said[m] if case.said[m] >= 0 else None
            if case.said[m] != ABSENT:
                asked.append(m)
        leads = leader(tally(case.said, votes, asked, len(case.labels)))
        return float(leads >= 0 and leads == case.right) - self.weight * sum(
            case.costs[m] for m in asked
        )

    def plans(
        self, ids: Sequence[str], chosen: Mapping[int, int], names: Sequence[str]
    ) -> dict[str, dict[int, Tree]]:
        """By category and number of options seen there, the plan; "" for other categories."""
        planner, _ = self.planner(ids)
        known = self.task.estimates.groups
        kinds = {(self.task.cases[n].group, self.task.cases[n].options) for n in ids}
        kinds |= {(len(known), options) for _, options in kinds}
        result: dict[str, dict[int, Tree]] = {}
        for group, options in sorted(kinds):
            first = self.openings[chosen.get(group, chosen[-1])]
            name = known[group] if group < len(known) else ""
            result.setdefault(name, {})[options] = self.tree(planner, group, options, names, first)
        return result


def _shortlist(data: Matrix, weight: float, team: Mapping[int, Any], count: int) -> list[int]:
    """The models in the best cascades, best first."""
    from orchestrion_recorded.baselines import candidates

    every = candidates(data, 2, models=list(team))
    best: dict[int, float] = {}
    for strategy, reward in zip(
        every.strategies, (every.accuracy - weight * every.cost).tolist(), strict=True
    ):
        last = () if strategy.then is None else (strategy.then,)
        for m in (*strategy.first, *last):
            best[m] = max(best.get(m, reward), reward)
    return sorted(best, key=lambda m: (-best[m], m))[:count]


def _openings(
    rewards: Sequence[Sequence[float]], groups: Sequence[int], shrinkage: float
) -> dict[int, int]:
    """By group, the place of the opening whose shrunk mean reward is highest; -1: over all."""
    import numpy as np

    table, of = np.array(rewards), np.array(groups)
    means = table.mean(0)
    chosen = {-1: int(np.round(means, 9).argmax())}
    for group in sorted({*groups}):
        own = table[of == group]
        shrunk = own.sum(0) + shrinkage * means
        chosen[group] = int(np.round(shrunk, 9).argmax())
    return chosen
