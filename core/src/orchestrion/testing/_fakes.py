"""Small components with known behaviour, to test agents, policies, tasks and trainers with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from attrs import define, field, frozen

from orchestrion._config.sections import Limits
from orchestrion._engine.calls import CallPath
from orchestrion._engine.episode import Engine
from orchestrion._engine.team import Team, member_of
from orchestrion._errors import UsageError
from orchestrion._interfaces import (
    Agent,
    Answer,
    Calls,
    Member,
    Model,
    OpenContext,
    Policy,
    RewardFunction,
    Situation,
    Task,
    View,
)
from orchestrion._keys import Key
from orchestrion._records import (
    JSON,
    Activation,
    Decision,
    Output,
    Problem,
    Scores,
    Split,
    Trajectory,
    Usage,
)


@define
class ScriptedAgent(Agent):
    """Return `outputs` in order, over all episodes; an exception among them is raised.

    `views` records what it was shown. `gate` makes every call wait until it is set.
    """

    outputs: Sequence[Output | Exception] = (Output("ok"),)
    options: Sequence[str] = ()
    pure: bool = False
    gate: asyncio.Event | None = None
    views: list[View] = field(factory=list)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return the next output, after the last one this one again."""
        self.views.append(view)
        if self.gate is not None:
            await self.gate.wait()
        output = self.outputs[min(len(self.views), len(self.outputs)) - 1]
        if isinstance(output, Exception):
            raise output
        return output


@define
class ScriptedModel(Model):
    """Answer with `texts` in order, then always with the last one."""

    texts: Sequence[str] = ("ok",)
    requests: list[Mapping[str, JSON]] = field(factory=list)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return the next text, at one call and no tokens."""
        self.requests.append(request)
        text = self.texts[min(len(self.requests), len(self.texts)) - 1]
        return Answer({"text": text, "stop": "end"}, Usage(calls=1))


@frozen
class Fixed(Policy):
    """Start `steps` in order, each a name or several activations, then stop."""

    steps: Sequence[str | Sequence[Activation]] = ()

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return for each situation the step after the turns it has."""
        return [self._decision(situation) for situation in situations]

    def _decision(self, situation: Situation) -> Decision:
        done = len(situation.trajectory)
        for step in self.steps:
            start = (Activation(step),) if isinstance(step, str) else tuple(step)
            if done < len(start):
                return Decision(start)
            done -= len(start)
        return Decision(stop=True)


@frozen
class ListTask(Task):
    """Has `count` problems in every split; solved if `solved` is true of the trajectory."""

    count: int = 4
    solved: Callable[[Trajectory], bool] = bool

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return `count` problems; their ids start with the split's name."""
        return [Problem(f"{split}-{i}", text=f"problem {i}") for i in range(self.count)]

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return 1 if solved, else 0."""
        solved = self.solved(trajectory)
        return Scores(float(solved), solved)


def engine_for(
    agents: Mapping[str, Agent],
    policy: Policy,
    task: Task | None = None,
    reward: RewardFunction | None = None,
    limits: Limits | None = None,
    calls: CallPath | None = None,
    timeout: float | None = None,
    turns: int | None = None,
) -> Engine:
    """Return an engine for a team of given components, without a config.

    Raises:
        UsageError: a component has `open`; `opened_engine` opens it.
    """
    for part in (*agents.values(), policy, task, reward):
        if callable(getattr(part, "open", None)):
            raise UsageError(
                f"{type(part).__name__} has open(), which yields what acts in its place: write "
                "`async with opened_engine(...) as engine:` instead of engine_for(...)"
            )
    roster = tuple(member_of(name, agent) for name, agent in agents.items())
    team = Team(agents, roster, policy, task or ListTask(), reward)
    return _engine(team, limits, calls, timeout, turns)


def _engine(
    team: Team,
    limits: Limits | None = None,
    calls: CallPath | None = None,
    timeout: float | None = None,
    turns: int | None = None,
) -> Engine:
    return Engine(team, calls, limits or Limits(turns=turns), timeout)


@asynccontextmanager
async def opened_engine(
    agents: Mapping[str, Agent],
    policy: Policy,
    task: Task | None = None,
    reward: RewardFunction | None = None,
    key: Key = Key(0),  # noqa: B008  immutable
    **settings: Any,
) -> AsyncIterator[Engine]:
    """Open components that have `open`, and return an engine for them, as `engine_for` does.

    Args:
        agents: the team.
        policy: starts them.
        task: `ListTask` by default.
        reward: the reward function, if any.
        key: randomness of what is opened.
        settings: the other arguments of `engine_for`.
    """
    async with AsyncExitStack() as stack:

        async def runtime(part: Any, path: str, roster: tuple[Member, ...] = ()) -> Any:
            if not callable(getattr(part, "open", None)):
                return part
            context = OpenContext(path, key.child("open", path), roster)
            return await stack.enter_async_context(part.open(context))

        team = {name: await runtime(agent, f"agents.{name}") for name, agent in agents.items()}
        roster = tuple(member_of(name, agent) for name, agent in team.items())
        others = (
            await runtime(policy, "policy", roster),
            await runtime(task, "task", roster) or ListTask(),
            await runtime(reward, "reward", roster),
        )
        yield _engine(Team(team, roster, *others), **settings)
