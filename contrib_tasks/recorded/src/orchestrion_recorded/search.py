"""The trainer `best-cascade`: every two-level cascade is tried on all training questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

from attrs import frozen

from orchestrion import (
    JSON,
    Activation,
    Answer,
    Calls,
    Episode,
    Key,
    Meta,
    Metrics,
    Output,
    Plan,
    Policy,
    Problem,
    Request,
    RewardFunction,
    Scores,
    Session,
    Split,
    Task,
    Trainer,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
    choices,
)
from orchestrion_recorded.cascade import CascadeRunner, Steps

__all__ = ["BestCascade", "asking", "price_weight"]


@frozen
class BestCascade(Trainer):
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

    @property
    def iterations(self) -> int:
        """One."""
        return 1

    def check(self, session: Session) -> None:
        """Refuse every policy but `cascade`, and every task but `recorded`."""
        from orchestrion_recorded.recording import Recording

        if not isinstance(session.policy, CascadeRunner):
            raise UsageError("the trainer best-cascade trains the policy cascade")
        if not isinstance(self.task, Recording):
            raise UsageError("the trainer best-cascade knows the task recorded only: task: task")
        asking(self.task.models, session)

    def plan(self, i: int, sizes: Mapping[Split, int]) -> Plan:
        """Nothing: the table knows it all."""
        return Plan()

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
    """The choice of the team that asks each model, by the model's index."""
    found: dict[int, Activation] = {}
    for place, model in enumerate(models):
        for choice in choices(session.roster):
            if (choice.option or choice.agent) == model:
                found.setdefault(place, choice)
    if not found:
        raise UsageError("no agent of the team asks a model of the table; use the agent `recorded`")
    return found


async def price_weight(reward: RewardFunction) -> float:
    """The weight of cost against a right answer, by trying the reward on made-up episodes.

    Raises:
        UsageError: the reward is not linear in outcome and cost.
    """
    wrong, right = await _tried(reward, 0.0, 0.0), await _tried(reward, 1.0, 0.0)
    one, two = await _tried(reward, 1.0, 1.0), await _tried(reward, 1.0, 1.0, 1.0)
    worth, price = right - wrong, right - one
    if worth <= 0 or price < 0 or abs(right - two - 2 * price) > 1e-9:
        raise UsageError(
            "this search needs a reward that rises with the outcome and falls in proportion to "
            "the cost of the turns, such as outcome-minus-cost"
        )
    return price / worth


async def _tried(reward: RewardFunction, value: float, *costs: float) -> float:
    turns = [
        Turn(n, "a", output=Output("tried", usage=Usage(1, cost=cost)))
        for n, cost in enumerate(costs)
    ]
    episode = Episode(
        "tried", Problem("tried"), Trajectory(turns), scores=Scores(value, value == 1.0)
    )
    scored = await reward.score(episode, _NoCalls())
    if scored is None:
        raise UsageError("this search needs a reward for every episode; this one gives none")
    return scored.total


class _NoCalls(Calls):
    """For a reward that is a formula."""

    async def run(
        self, request: Request, do: Callable[[], Awaitable[Answer]], reserve: Usage | None = None
    ) -> Answer:
        """Refused."""
        raise UsageError("this search cannot go on under a reward that makes calls")

    async def reuse(self, content: JSON, do: Callable[[], Awaitable[Any]]) -> Any:
        """Done."""
        return await do()

    async def team(
        self,
        view: View,
        key: Key,
        members: Any,
        policy: Policy,
        turns: int | None = None,
    ) -> Trajectory:
        """Refused."""
        raise UsageError("this search cannot go on under a reward that runs a team")
