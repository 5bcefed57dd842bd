"""Small stand-ins with known behaviour, to test agents, policies, tasks and trainers with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from attrs import define, field, frozen

from orchestrion._engine.calls import CallPath
from orchestrion._engine.episode import Engine, EpisodeLimits
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

__all__ = ["Fixed", "ListTask", "ScriptedAgent", "ScriptedModel", "engine_for", "opened_engine"]


@define
class ScriptedAgent(Agent):
    """Says `outputs` in order, call by call, over all episodes; an exception in it is raised.

    `views` keeps what it was shown. `gate`, if set, holds every call until it is set.
    """

    outputs: Sequence[Output | Exception] = (Output("ok"),)
    options: Sequence[str] = ()
    pure: bool = False
    gate: asyncio.Event | None = None
    views: list[View] = field(factory=list)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """The next output; the last one again when they are used up."""
        self.views.append(view)
        if self.gate is not None:
            await self.gate.wait()
        output = self.outputs[min(len(self.views), len(self.outputs)) - 1]
        if isinstance(output, Exception):
            raise output
        return output


@define
class ScriptedModel(Model):
    """Answers with `texts` in order; the last one again when they are used up."""

    texts: Sequence[str] = ("ok",)
    requests: list[Mapping[str, JSON]] = field(factory=list)

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """The next text; one call and no tokens."""
        self.requests.append(request)
        text = self.texts[min(len(self.requests), len(self.texts)) - 1]
        return Answer({"text": text, "stop": "end"}, Usage(calls=1))


@frozen
class Fixed(Policy):
    """Starts `steps` one after the other, each a name or a set of activations, then stops."""

    steps: Sequence[str | Sequence[Activation]] = ()

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """The step that follows on as many turns as there are."""
        return [self._one(situation) for situation in situations]

    def _one(self, situation: Situation) -> Decision:
        done = len(situation.trajectory)
        for step in self.steps:
            start = (Activation(step),) if isinstance(step, str) else tuple(step)
            if done < len(start):
                return Decision(start)
            done -= len(start)
        return Decision(stop=True)


@frozen
class ListTask(Task):
    """Problems "0" to "n-1" in every split; solved if `solved` says so of the trajectory."""

    count: int = 4
    solved: Callable[[Trajectory], bool] = bool

    def problems(self, split: Split) -> Sequence[Problem]:
        """`count` problems; their ids start with the split's name."""
        return [Problem(f"{split}-{i}", text=f"problem {i}") for i in range(self.count)]

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """1 if solved, else 0."""
        good = self.solved(trajectory)
        return Scores(float(good), good)


def engine_for(
    agents: Mapping[str, Agent],
    policy: Policy,
    task: Task | None = None,
    reward: RewardFunction | None = None,
    limits: EpisodeLimits | None = None,
    calls: CallPath | None = None,
    timeout: float | None = None,
    turns: int | None = None,
) -> Engine:
    """An engine for a team put together by hand, without a config.

    Raises:
        UsageError: a component has `open`; `opened_engine` opens it.
    """
    for part in (*agents.values(), policy, task, reward):
        if callable(getattr(part, "open", None)):
            raise UsageError(
                f"{type(part).__name__} has open(), which yields what acts in its place: write "
                "`async with opened_engine(...) as engine:` instead of engine_for(...)"
            )
    return _engine(agents, policy, task, reward, limits, calls, timeout, turns)


def _engine(
    agents: Mapping[str, Agent],
    policy: Policy,
    task: Task | None = None,
    reward: RewardFunction | None = None,
    limits: EpisodeLimits | None = None,
    calls: CallPath | None = None,
    timeout: float | None = None,
    turns: int | None = None,
) -> Engine:
    roster = tuple(member_of(name, agent) for name, agent in agents.items())
    team = Team({}, roster, policy, task or ListTask(), reward)
    limits = limits or EpisodeLimits(turns=turns)
    engine = Engine(team, calls, limits, timeout)
    engine.team = Team(engine.seats(agents, {}), roster, policy, team.task, reward)
    return engine


@asynccontextmanager
async def opened_engine(
    agents: Mapping[str, Agent],
    policy: Policy,
    task: Task | None = None,
    reward: RewardFunction | None = None,
    key: Key = Key(0),  # noqa: B008  immutable
    **settings: Any,
) -> AsyncIterator[Engine]:
    """Like `engine_for`, with components that have `open`: they are open until the block ends.

    Args:
        agents: the team.
        policy: starts them.
        task: `ListTask` by default.
        reward: the reward function, if any.
        key: randomness of what is opened.
        settings: the others of `engine_for`.
    """
    async with AsyncExitStack() as stack:

        async def runtime(part: Any, path: str, roster: tuple[Member, ...] = ()) -> Any:
            if not callable(getattr(part, "open", None)):
                return part
            context = OpenContext(path, key.child("open", path), roster)
            return await stack.enter_async_context(part.open(context))

        team = {name: await runtime(agent, f"agents.{name}") for name, agent in agents.items()}
        roster = tuple(member_of(name, agent) for name, agent in team.items())
        engine = _engine(
            team,
            await runtime(policy, "policy", roster),
            await runtime(task, "task", roster),
            await runtime(reward, "reward", roster),
            **settings,
        )
        stack.callback(engine.close)
        yield engine
