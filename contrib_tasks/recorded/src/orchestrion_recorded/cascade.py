"""The policy `cascade` and its trainer `best-cascade`.

A cascade asks some agents, stops if enough of them agree, and else asks one more. The trainer tries
every two-level cascade on all training questions of the task `recorded`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Literal

from attrs import Factory, frozen

from orchestrion import (
    JSON,
    Activation,
    CheckpointError,
    Decision,
    Episode,
    Key,
    Member,
    Meta,
    Metrics,
    OpenContext,
    Output,
    Plan,
    Policy,
    Problem,
    RewardFunction,
    Saved,
    Scores,
    Session,
    Situation,
    Split,
    Task,
    Trainer,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    choice_name,
    choices,
    is_blocked,
    parse_choice,
)
from orchestrion_recorded.table import same

STOP = Decision(stop=True)


@frozen
class Cascade:
    """Asks some agents at once; stops if enough of them gave the same answer, else asks one more.

    Answers are those that the task `recorded` shows; elsewhere, what the agents said. An agent
    that the task blocks is passed over. The trainer `best-cascade` finds the settings.

    Args:
        first: whom to ask to begin with: "agent", "agent:option", or an option that only one
            agent has.
        agree: how many equal answers suffice; 0 never asks another, and one more than there are
            in `first` always does.
        then: whom to ask if they do not agree; empty for nobody.
    """

    first: list[str] = Factory(list)
    agree: Annotated[int, Meta(ge=0)] = 1
    then: str = ""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Check the names against the team."""
        first = [choice_of(name, ctx.roster) for name in self.first]
        then = choice_of(self.then, ctx.roster) if self.then else None
        yield CascadeRunner(ctx.roster, Steps(tuple(first), self.agree, then))


@frozen
class Steps:
    """What a cascade does: see `Cascade`."""

    first: tuple[Activation, ...] = ()
    agree: int = 1
    then: Activation | None = None


class CascadeRunner(Policy):
    """A cascade, or one for each category of problems, that can be exchanged: its learned state."""

    def __init__(self, roster: Sequence[Member], steps: Steps) -> None:
        self._roster = roster
        self.set(steps)

    def set(self, steps: Steps, categories: Mapping[str, Steps] | None = None) -> None:
        """Act like this from now on; on problems of some categories by steps of their own."""
        self.steps, self.categories = steps, dict(categories or {})

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return the first ones, the other one, or the end."""
        return [self._decide(situation) for situation in situations]

    def _decide(self, situation: Situation) -> Decision:
        seen = situation.observation
        steps = self.categories.get(situation.problem.category, self.steps)
        if not len(situation.trajectory):
            start = tuple(choice for choice in steps.first if not is_blocked(choice, seen))
            if start:
                return Decision(start)
        then = steps.then
        if then is None or is_blocked(then, seen):
            return STOP
        earlier = {(turn.agent, turn.option) for turn in situation.trajectory}
        if (then.agent, then.option) in earlier or self._agreement(steps, situation) >= steps.agree:
            return STOP
        return Decision((then,))

    def _agreement(self, steps: Steps, situation: Situation) -> int:
        """Return how many of the first ones gave the most frequent answer."""
        wanted = {(choice.agent, choice.option) for choice in steps.first}
        answers = [
            answer_of(turn.option or turn.agent, turn.output.content, situation)
            for turn in situation.trajectory
            if turn.status == "completed" and (turn.agent, turn.option) in wanted
        ]
        return max(Counter(answer for answer in answers if answer).values(), default=0)

    def save(self) -> Saved:
        """Return the names of its choices."""
        data = _saved(self.steps)
        if self.categories:
            data["categories"] = {name: _saved(steps) for name, steps in self.categories.items()}
        return Saved(data=data)

    def load(self, saved: Saved) -> None:
        """Take over a saved cascade."""
        try:
            own = saved.data.get("categories", {})
            self.set(
                self._steps(saved.data),
                {category: self._steps(data) for category, data in own.items()},
            )
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"this is not the state of a cascade: {error!r}") from None
        except UsageError as error:
            raise CheckpointError(f"the cascade was learned for another team: {error}") from None

    def _steps(self, data: Mapping[str, JSON]) -> Steps:
        first = tuple(parse_choice(name, self._roster) for name in data["first"])
        then = parse_choice(data["then"], self._roster) if data["then"] else None
        return Steps(first, data["agree"], then)


def _saved(steps: Steps) -> dict[str, JSON]:
    return {
        "first": [choice_name(choice) for choice in steps.first],
        "agree": steps.agree,
        "then": choice_name(steps.then) if steps.then is not None else "",
    }


def answer_of(name: str, content: str, situation: Situation) -> str:
    """Return what an agent answered, in the form in which answers are compared."""
    data = situation.observation.data if situation.observation is not None else None
    answers = data.get("answers") if isinstance(data, dict) else None
    if isinstance(answers, dict):
        return same(answers.get(name) or "")
    return same(content)


def choice_of(name: str, roster: Sequence[Member]) -> Activation:
    """Return the choice with this name, or the only one with this option.

    Raises:
        UsageError: there is none, or there are several.
    """
    by_option = [choice for choice in choices(roster) if choice.option == name]
    if len(by_option) == 1 and name not in map(choice_name, choices(roster)):
        return by_option[0]
    return parse_choice(name, roster)


class TableTrainer(Trainer):
    """The part that the trainers of this package share: they search the table, and ask nobody."""

    task: Any
    trainer: ClassVar[str]
    policy: ClassVar[tuple[str, type[Policy]]]
    """The policy's name and its runtime."""

    @property
    def iterations(self) -> int:
        return 1

    def check(self, session: Session) -> None:
        """Raise UsageError for another policy, task or team."""
        from orchestrion_recorded.recording import Recording

        name, runner = self.policy
        if not isinstance(session.policy, runner):
            raise UsageError(f"the trainer {self.trainer} trains the policy {name}")
        if not isinstance(self.task, Recording):
            raise UsageError(
                f"the trainer {self.trainer} needs the task recorded; set `task: task`"
            )
        asking(self.task.models, session)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """See `Trainer.plan`: the table has every answer."""
        return Plan()


@frozen
class BestCascade(TableTrainer):
    """Finds the best two-level cascade for the task `recorded`, and hands it to `cascade`.

    The table knows every answer, so nothing is asked: all cascades are evaluated exactly on all
    training questions, under the task's own vote and the run's reward. Votes count for what they
    were worth on other questions than the one at hand (cross-fitting, in five parts).

    Args:
        task: the task `recorded`, as `task`.
        reward: the run's reward, as `reward`; it must be linear in outcome and cost.
        search: every `cascade` of that kind; the best fixed `set` of any size (by beam search); or
            a look-up by `category` of question: for each nobody, one model, or one and another
            unless so many agree.
        most: how many a cascade asks first.
        beam: how many sets of each size are extended.
    """

    task: Task
    reward: RewardFunction
    search: Literal["cascade", "set", "category"] = "cascade"
    most: Annotated[int, Meta(ge=1, le=4)] = 3
    beam: Annotated[int, Meta(ge=1)] = 32

    trainer = "best-cascade"
    policy = ("cascade", CascadeRunner)

    async def iterate(self, i: int, session: Session) -> Metrics:
        """Search, and hand over what was found."""
        from orchestrion_recorded import baselines

        self.check(session)
        runner: CascadeRunner = session.policy
        task: Any = self.task  # its runtime, a Recording
        weight = await price_weight(self.reward)
        team = asking(task.models, session)
        ids = [problem.id for problem in session.problems("train")]
        data = baselines.cross_fitted(task, baselines.matrix(task, "train", ids))
        models = list(team)
        if self.search == "category":
            chosen = baselines.best_by_category(data, weight, models=models)
        elif self.search == "set":
            chosen = {"": baselines.best_set(data, weight, self.beam, models)}
        else:
            chosen = {"": baselines.candidates(data, self.most, models=models).best(weight)}
        steps = {
            group: Steps(
                tuple(team[model] for model in strategy.first),
                strategy.agree,
                None if strategy.then is None else team[strategy.then],
            )
            for group, strategy in chosen.items()
        }
        runner.set(steps.pop(""), steps)
        result = baselines.evaluate_by_category(data, chosen)
        return {
            "reward": float(result.reward(weight).mean()),
            "accuracy": float(result.correct.mean()),
            "cost": float(result.cost.mean()),
        }


def asking(models: tuple[str, ...], session: Session) -> dict[int, Activation]:
    """Return the choice of the team that asks each model, by the model's index."""
    activations: dict[int, Activation] = {}
    for place, model in enumerate(models):
        for choice in choices(session.roster):
            if (choice.option or choice.agent) == model:
                activations.setdefault(place, choice)
    if not activations:
        raise UsageError("no agent of the team asks a model of the table; use the agent `recorded`")
    return activations


async def price_weight(reward: RewardFunction) -> float:
    """Return the weight of cost against a right answer, by trying the reward on made-up episodes.

    Raises:
        UsageError: the reward is not linear in outcome and cost.
    """
    wrong, right = await _score(reward, 0.0, 0.0), await _score(reward, 1.0, 0.0)
    paid, paid_twice = await _score(reward, 1.0, 1.0), await _score(reward, 1.0, 1.0, 1.0)
    worth, price = right - wrong, right - paid
    if worth <= 0 or price < 0 or abs(right - paid_twice - 2 * price) > 1e-9:
        raise UsageError(
            "this search needs a reward that rises with the outcome and falls in proportion to "
            "the cost of the turns, such as outcome-minus-cost"
        )
    return price / worth


async def _score(reward: RewardFunction, value: float, *costs: float) -> float:
    turns = [
        Turn(n, "a", output=Output("tried", usage=Usage(1, cost=cost)))
        for n, cost in enumerate(costs)
    ]
    episode = Episode(
        "tried", Problem("tried"), Trajectory(turns), scores=Scores(value, value == 1.0)
    )
    calls: Any = _NoCalls()
    scored = await reward.score(episode, calls)
    if scored is None:
        raise UsageError("this search needs a reward for every episode; this one gives none")
    return scored.total


class _NoCalls:
    """For a reward that is a formula."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError("this search needs a reward that makes no calls")
