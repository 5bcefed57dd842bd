"""The policy `inquiry` and its trainer `best-inquiry`: plans that go by who agrees with whom.

A plan is a tree in plain data: `{"ask": name, "then": [...]}`, where `then` holds what follows if
the model gave no answer, if it gave the first, second, ... of the answers heard before, or at last
a new one. `None` stops. `planning` finds the plans.
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
from orchestrion_recorded.cascade import STOP, TableTrainer, answer_of, asking, price_weight
from orchestrion_recorded.case import SILENT

if TYPE_CHECKING:
    from orchestrion_recorded.recording import Recording

Tree = Any
"""A plan, see above; None stops."""


def follow(tree: Tree, answers: Mapping[str, object]) -> str | None:
    """Return whom to ask next under a plan, or None to stop; None among answers is no answer."""
    codes: dict[object, int] = {}
    while tree is not None and tree["ask"] in answers:
        answer = answers[tree["ask"]]
        code = SILENT if answer is None else codes.setdefault(answer, len(codes))
        place = code - SILENT
        tree = tree["then"][place] if place < len(tree["then"]) else None
    return None if tree is None else str(tree["ask"])


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


@frozen
class BestInquiry(TableTrainer):
    """Finds the plans of the policy `inquiry` for the task `recorded`.

    The table knows every answer, so nothing is asked.

    Args:
        task: the task `recorded`, as `task`; its questions have right answers, not scores.
        reward: the run's reward, as `reward`; it must be linear in outcome and cost.
        models: how many models plans may ask: those without which the best cascades are worse.
        classes: latent classes of difficulty.
        shrinkage: how many questions of a group the mean over all groups counts for.
    """

    task: Task
    reward: RewardFunction
    models: Annotated[int, Meta(ge=1, le=10)] = 6
    classes: Annotated[int, Meta(ge=1, le=20)] = 8
    shrinkage: Annotated[float, Meta(ge=0)] = 60.0

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
        from orchestrion_recorded.baselines import cross_fitted, matrix
        from orchestrion_recorded.planning import PlanSearch, shortlist

        self.check(session)
        task: Any = self.task  # its runtime, a Recording
        weight = await price_weight(self.reward)
        ids = [problem.id for problem in session.problems("train")]
        team = asking(task.models, session)
        data = cross_fitted(task, matrix(task, "train", ids))
        models = shortlist(data, weight, list(team), self.models)
        search = PlanSearch(task, data, weight, models, self.classes)
        chosen, reward = search.openings(self.shrinkage)
        names = [choice_name(team[m]) if m in team else "" for m in range(len(task.models))]
        session.policy.plans = search.plans(chosen, names)
        return {"reward": reward}
