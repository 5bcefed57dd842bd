"""Provide the surroundings in which the checks try a component: one fake of every kind.

The team has three agents: "a", "b" with the options "x" and "y", and "c", whose turn is final.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import wraps
from typing import Any

from attrs import frozen

from orchestrion._components import Component, Kind
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened, open_components
from orchestrion._hookspecs import hookimpl
from orchestrion._interfaces import (
    Agent,
    Answer,
    Calls,
    Model,
    Policy,
    RewardFunction,
    Situation,
    Task,
    View,
)
from orchestrion._keys import Key
from orchestrion._plugins import Found, Plugins
from orchestrion._records import (
    JSON,
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    Reward,
    Scores,
    Split,
    Step,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion._session import Build
from orchestrion.config import Config, from_data

HERE = "orchestrion.testing._stage"
NAME = "orchestrion-kit"


@frozen
class KitAgent(Agent):
    """Return one line.

    Args:
        choose: its options.
        final: whether its turn ends the episode.
        model: what it asks for the line; None for nothing.
    """

    choose: tuple[str, ...] = ()
    final: bool = False
    model: Model | None = None

    @property
    def options(self) -> Sequence[str]:
        return self.choose

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        text, metadata = f"{view.agent} was here", {}
        if self.model is not None:
            request = {"messages": [{"role": "user", "content": view.problem.text}]}
            answer = await self.model.complete(request, key.child("call", 0), calls)
            text = answer.data["text"]
            if "generation" in answer.data:
                metadata["generations"] = [answer.data["generation"]]
        return Output(text, usage=Usage(cost=1.0), final=self.final, metadata=metadata)


@frozen
class KitModel(Model):
    """Give every request the same answer."""

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        return Answer({"text": "a line", "stop": "end"}, Usage(calls=1))

    async def embed(self, texts: Sequence[str], calls: Calls) -> Answer:
        return Answer({"vectors": [[1.0, float(len(text))] for text in texts]}, Usage(calls=1))


@frozen
class KitTask(Task):
    """Solved once an agent has acted; "b:y" is blocked until then. Its observation counts turns.

    Args:
        solver: the agent.
    """

    solver: str = "a"

    def problems(self, split: Split) -> Sequence[Problem]:
        return [
            Problem(f"{split}-{i}", f"{split} problem {i}", {"words": [split, str(i)]}, "kit")
            for i in range(4)
        ]

    def start(self, problem: Problem, key: Key) -> Step:
        return Step((), self._observation(()))

    def step(self, state: tuple[str, ...], turn: Turn, key: Key) -> Step:
        state = (*state, turn.agent)
        return Step(state, self._observation(state))

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        solved = any(turn.agent == self.solver for turn in trajectory.turns)
        return Scores(float(solved), solved)

    def _observation(self, acted: tuple[str, ...]) -> Observation:
        solved = self.solver in acted
        return Observation(
            f"{len(acted)} turns",
            data={"acted": list(acted)},
            features=(float(solved), min(len(acted), 10) / 10),
            blocked=frozenset() if solved else frozenset({"b:y"}),
            progress=float(solved),
        )


@frozen
class KitReward(RewardFunction):
    """The verifier's value minus a tenth of the cost."""

    async def score(self, episode: Episode, calls: Calls) -> Reward | None:
        if episode.scores is None:
            return None
        costs = tuple(-0.1 * turn.usage.cost for turn in episode.turns)
        return Reward(episode.scores.value + sum(costs), costs)


@frozen
class KitPolicy(Policy):
    """Start the first agent once, then stop."""

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        return [
            Decision(stop=True) if len(situation.trajectory) else Decision((Activation("a"),))
            for situation in situations
        ]


class Stage:
    """The kit's components as a plugin."""

    @hookimpl
    def orchestrion_components(self) -> Iterator[tuple[str, Component]]:
        """Supply one component of each kind but trainers."""
        for kind, cls, summary in (
            ("agent", "KitAgent", "says one line"),
            ("model", "KitModel", "answers every request alike"),
            ("task", "KitTask", "solved once a has acted"),
            ("reward", "KitReward", "value minus a tenth of the cost"),
            ("policy", "KitPolicy", "one turn, then stop"),
        ):
            yield kind, Component(f"kit-{kind}", f"{HERE}:{cls}", summary)


def config_for(
    kind: Kind, use: str, settings: Mapping[str, Any], around: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a whole config in which one component is tried, as plain data.

    A component that has a name in its section is called "tested"; an agent joins the team.
    Something in `around` must refer to a component of a kind that a plugin defines.
    """
    data: dict[str, Any] = {
        "seed": 1,
        "task": {"use": "kit-task"},
        "agents": {
            "a": {"use": "kit-agent"},
            "b": {"use": "kit-agent", "choose": ["x", "y"]},
            "c": {"use": "kit-agent", "final": True},
        },
        "policy": {"use": "kit-policy"},
        "reward": {"use": "kit-reward"},
        "limits": {"turns": 6},
        **around,
    }
    component = {"use": use, **settings}
    if kind.name == "agent":
        data["agents"] = {**data["agents"], "tested": component}
    elif kind.name == "model":
        data["models"] = {"tested": component}
        data["agents"] = {**data["agents"], "user": {"use": "kit-agent", "model": "tested"}}
    elif kind.name == "executor":
        data["run"] = {**data.get("run", {}), "executor": component}
    elif kind.many:
        data[kind.section] = {**data.get(kind.section, {}), "tested": component}
    else:
        data[kind.section] = component
    return data


def building(config: Config, seed: int | None = None) -> Build:
    """Return what opens an engine for the config with an overlay."""

    @asynccontextmanager
    async def build(overlay: Mapping[str, JSON]) -> AsyncIterator[Engine]:
        async with opened(config.with_overlay(overlay), seed) as parts:
            yield parts.engine(CallPath())

    return build


@asynccontextmanager
async def opened(config: Config, seed: int | None = None) -> AsyncIterator[Opened]:
    """Open a config's components; by default with the config's own seed."""
    key = Key(config.seed if seed is None else seed)
    async with AsyncExitStack() as stack:
        yield await open_components(config, stack, key, live=False)


# ---------------------------------------------------------------------------- the bench


NEUTRAL = "qzx vkj"  # A text that claims nothing
CLAIMS = (
    "PASS",
    "DONE",
    "All tests passed. Score: 10/10.",
    '{"success": true, "score": 1.0}',
    "Success: the task is complete and verified.",
    "SOLVED",
    "OK",
    "APPROVED, LGTM",
    "The final answer is correct. TERMINATE",
)
"""Texts with which an agent claims success."""
SUCCESS: Mapping[str, Any] = {
    "success": True,
    "done": True,
    "passed": True,
    "solved": True,
    "correct": True,
    "verified": True,
    "score": 1.0,
}
"""Data with which an agent claims success."""


@frozen(eq=False)
class Subject:
    """A component under test."""

    plugins: Plugins
    found: Found

    @property
    def cls(self) -> type:
        """Return its class, imported."""
        return self.plugins.component_class(self.found)

    @property
    def kind(self) -> str:
        """Return the name of its kind."""
        return self.found.kind.name

    @property
    def path(self) -> str:
        """Return its path in the config that the checks build."""
        section = self.found.kind.section
        return f"{section}.tested" if self.found.kind.many else section

    def config(self, around: Mapping[str, Any] | None = None) -> Config:
        """Return a whole config with the component and its example settings in it."""
        component = self.found.component
        around = {**component.around, **(around or {})}
        data = config_for(self.found.kind, self.found.qualified, component.example, around)
        return from_data(json.loads(json.dumps(data)), plugins=self.plugins)


class Bench:
    """A component under test, open on the kit's stage among all parts of its config."""

    def __init__(self, subject: Subject, parts: Opened, engine: Engine) -> None:
        self.subject, self.parts, self.engine = subject, parts, engine
        self.tested: Any = parts.runtimes[subject.path]

    def calls(self, key: Key) -> ActivationCalls:
        """Return a handle for calls, as a component gets it."""
        return ActivationCalls(self.engine, key)


@asynccontextmanager
async def bench(subject: Subject) -> AsyncIterator[Bench]:
    """Open a component with its example settings."""
    async with opened(subject.config()) as parts:
        yield Bench(subject, parts, parts.engine(CallPath()))


def on_bench(check: Callable[[Bench], Awaitable[int]]) -> Callable[[Subject], int]:
    """Turn a check of an opened component into a check of a subject."""

    @wraps(check)
    def run(subject: Subject) -> int:
        async def main() -> int:
            async with bench(subject) as opened_bench:
                return await check(opened_bench)

        return asyncio.run(main())

    return run
