"""The policy `inquiry` and its trainer `best-inquiry`: plans that go by who agrees with whom.

A plan is found by backward induction (Bellman 1957) on the belief that `estimate` fits (latent
classes): the value of stopping is how likely the likeliest answer is right; that of asking, what
is expected after each thing the model may say, minus its price. After `DEPTH` answers, only one
more is looked at. Looking one answer ahead from the start would underrate what two cheap answers
tell together.

A plan is a tree in plain data: `{"ask": name, "then": [...]}`, where `then` holds what follows if
the model gave no answer, if it gave the first, second, ... of the answers heard before, or at last
a new one. `None` stops.

The belief is least right about whom to begin with, since a group's models fail together more often
than classes say. So each group's opening (nobody, one of the models, or whoever the plan begins
with) is the one with the highest mean reward on the training questions, where each question is
judged by plans made without it (cross-fitting in three parts), shrunk towards the mean over all
groups.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from attrs import frozen

from orchestrion import (
    JSON,
    Activation,
    CheckpointError,
    Decision,
    Key,
    Meta,
    Metrics,
    OpenContext,
    Policy,
    RewardFunction,
    Saved,
    Session,
    Situation,
    Task,
    UsageError,
    choice_name,
    choices,
    is_blocked,
)
from orchestrion_recorded.cascade import TableTrainer, answer_of, asking, price_weight
from orchestrion_recorded.case import ABSENT, SILENT, Case, leader, tally

if TYPE_CHECKING:
    from orchestrion_recorded.baselines import Matrix
    from orchestrion_recorded.belief import Believer, Heard
    from orchestrion_recorded.recording import Recording

__all__ = ["BestInquiry", "Inquiry", "InquiryRunner", "Planner", "Tree", "follow"]

DEPTH = 2
_SLACK = 1e-12  # a choice must be better by more than rounding

Tree = Any
"""A plan, see above; None stops."""


class Planner:
    """Works out plans for one price of cost, and keeps what it worked out.

    Args:
        believer: from the training questions.
        prices: by model, what asking costs in units of a right answer.
        models: those that may be asked, by index.
    """

    def __init__(self, believer: Believer, prices: Sequence[float], models: Sequence[int]) -> None:
        self._believer, self._prices, self._models = believer, prices, tuple(models)
        self._kept: dict[tuple[int, int, Heard], tuple[float, int | None]] = {}

    def best(self, group: int, options: int, answers: Heard) -> tuple[float, int | None]:
        """Return the value of going on in the best way, and the model to ask; None to stop.

        Args:
            group: of the question, among the estimates' groups.
            options: how many answers there are.
            answers: models with the number of their answer, by ascending model.
        """
        place = group, options, answers
        if place not in self._kept:
            self._kept[place] = self._work_out(*place)
        return self._kept[place]

    def _work_out(self, group: int, options: int, answers: Heard) -> tuple[float, int | None]:
        outlook = self._believer.outlook(group, options, answers)
        best, choice = outlook.now, None
        asked = {m for m, _ in answers}
        for m in self._models:
            if m in asked or 1 - self._prices[m] <= best:
                continue
            if len(answers) < DEPTH:
                worth = sum(
                    chance * self.best(group, options, _and(answers, m, code))[0]
                    for code, chance in enumerate(outlook.says[m], SILENT)
                    if chance > 0
                )
            else:
                worth = outlook.now + outlook.gains[m]
            if worth - self._prices[m] > best + _SLACK:
                best, choice = worth - self._prices[m], m
        return best, choice

    def tree(
        self, group: int, options: int, names: Sequence[str], first: int | None = None
    ) -> Tree:
        """Return the plan for a kind of question.

        Args:
            group: among the estimates' groups.
            options: how many answers there are.
            names: by model, what the plan calls it.
            first: the model to begin with; by default the one that is best.
        """
        return self._tree(group, options, names, (), first)

    def _tree(
        self, group: int, options: int, names: Sequence[str], path: Heard, first: int | None
    ) -> Tree:
        model = self.best(group, options, _ordered(path))[1] if first is None else first
        if model is None:
            return None
        codes = len({code for _, code in path if code != SILENT})
        last = min(codes, options - 1)  # where every option was named, there is no new one
        then = [
            self._tree(group, options, names, (*path, (model, code)), None)
            for code in range(SILENT, last + 1)
        ]
        return {"ask": names[model], "then": then}


def follow(tree: Tree, answers: Mapping[str, object]) -> str | None:
    """Return whom to ask next under a plan, or None to stop.

    Args:
        tree: the plan.
        answers: by name, the answer; None where it gave none.
    """
    codes: dict[object, int] = {}
    while tree is not None and tree["ask"] in answers:
        answer = answers[tree["ask"]]
        code = SILENT if answer is None else codes.setdefault(answer, len(codes))
        place = code - SILENT
        tree = tree["then"][place] if place < len(tree["then"]) else None
    return None if tree is None else str(tree["ask"])


def _and(answers: Heard, model: int, code: int) -> Heard:
    return _ordered((*answers, (model, code)))


def _ordered(path: Heard) -> Heard:
    """Return the same by ascending model, answers numbered as first met in that order."""
    codes: dict[int, int] = {}
    return tuple(
        (m, SILENT if code == SILENT else codes.setdefault(code, len(codes)))
        for m, code in sorted(path)
    )


STOP = Decision(stop=True)
Plans = Mapping[str, Mapping[int, Tree]]
"""By category and number of options; the category "" is for those that have none of their own."""


@frozen
class Inquiry:
    """Asks one agent after the other by a plan for each kind of question, until it says stop.

    A plan goes by who gave no answer and who agrees with whom. The trainer `best-inquiry` finds the
    plans; before that nobody is asked.
    """

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Begin without a plan."""
        yield InquiryRunner(choices(ctx.roster))


class InquiryRunner(Policy):
    """Plans at work: its learned state."""

    def __init__(self, able: Sequence[Activation], plans: Plans | None = None) -> None:
        self.able = {choice_name(choice): choice for choice in able}
        self.plans: Plans = plans or {}

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return the next one, or the end."""
        return [self._next(situation) for situation in situations]

    def _next(self, situation: Situation) -> Decision:
        tree, seen = self._plan(situation), situation.observation
        answers: dict[str, object] = {}
        for turn in situation.trajectory:
            name = choice_name(Activation(turn.agent, turn.option))
            text = turn.output.content if turn.status == "completed" else ""
            answers[name] = answer_of(turn.option or turn.agent, text, situation) or None
        while (wanted := follow(tree, answers)) is not None:
            if not is_blocked(self.able[wanted], seen):
                return Decision((self.able[wanted],))
            answers[wanted] = None  # cannot be asked, so it gives no answer
        return STOP

    def _plan(self, situation: Situation) -> Tree:
        """Return the plan for the question's category, and the nearest number of options."""
        plans = self.plans.get(situation.problem.category or "") or self.plans.get("")
        if not plans:
            return None
        data: Any = situation.problem.data
        options = data.get("options") if isinstance(data, dict) else None
        wanted = options if isinstance(options, int) else max(plans)
        return plans[min(plans, key=lambda own: (abs(own - wanted), own))]

    def save(self) -> Saved:
        """Return the plans, each kept once."""
        trees: list[Tree] = []
        places: dict[str, dict[str, int]] = {}
        for category, plans in self.plans.items():
            own = places[category] = {}
            for options, tree in plans.items():
                if tree not in trees:
                    trees.append(tree)
                own[str(options)] = trees.index(tree)
        return Saved(data={"plans": trees, "for": places})

    def load(self, saved: Saved) -> None:
        """Take over saved plans."""
        data: Any = saved.data
        try:
            for tree in data["plans"]:
                self._check(tree)
            self.plans = {
                category: {int(options): data["plans"][at] for options, at in own.items()}
                for category, own in data["for"].items()
            }
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise CheckpointError(
                f"this is not the state of an inquiry of this team: {error!r}"
            ) from None

    def _check(self, tree: Tree) -> None:
        """Raise KeyError where a plan asks someone whom the team has not."""
        if tree is not None:
            self.able[tree["ask"]]
            for part in tree["then"]:
                self._check(part)


FOLDS = 3
NOBODY, PLANNED = -1, None
"""Openings beside the models' indices: ask nobody at all; begin as planned."""


@frozen
class BestInquiry(TableTrainer):
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

    trainer = "best-inquiry"
    policy = ("inquiry", InquiryRunner)

    def check(self, session: Session) -> None:
        """Raise UsageError also for a table of scores."""
        super().check(session)
        table = cast("Recording", self.task).table
        if table.scored:
            raise UsageError(
                f"{table.source} has scores, and the trainer best-inquiry needs answers "
                "that can agree; take the policy values and the trainer bandit"
            )

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
        """Return a planner that knows these questions, and what votes count for by them."""
        from orchestrion_recorded.belief import Believer
        from orchestrion_recorded.estimate import estimate

        task, settings = self.task, self.settings
        table, known = task.table.only(ids), task.estimates.groups
        estimates = estimate(table, task.settings.shrinkage, settings.classes, known)
        return Planner(Believer(estimates), self.prices, self.models), task.ballots(estimates.votes)

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
        """Return the plan with an opening."""
        return None if first == NOBODY else planner.tree(group, options, names, first)

    def _played(self, tree: Tree, case: Case, votes: Sequence[int]) -> float:
        answers: dict[str, object] = {}
        asked: list[int] = []
        while (name := follow(tree, answers)) is not None:
            m = self.task.models.index(name)
            answers[name] = case.said[m] if case.said[m] >= 0 else None
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
    """Return the models in the best cascades, best first."""
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
