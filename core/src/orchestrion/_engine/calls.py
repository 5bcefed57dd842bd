"""What an activation works with: its handle for calls, and the engine behind it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from orchestrion._config.sections import Limits
from orchestrion._engine.attempts import Call
from orchestrion._engine.attempts import RetrySettings as RetrySettings
from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.callpath import CallPath as CallPath
from orchestrion._engine.recording import Recorded as Recorded
from orchestrion._engine.reuse import digest
from orchestrion._engine.team import Seat, Team, seats_of
from orchestrion._errors import RunError
from orchestrion._events import WARNING, event
from orchestrion._interfaces import Agent, Answer, Policy, Request, View
from orchestrion._keys import Key
from orchestrion._observers import EpisodeObservers
from orchestrion._records import JSON, NO_USAGE, Episode, Problem, Trajectory, Turn, Usage

REPORTS = 10_000
"""How many different failures, and how many episodes that were cut off, an engine reports."""

NO_LIMITS = Limits(turns=None)

RunEpisode = Callable[[str, Problem, Key, Policy | None, bool], Awaitable[Episode]]
"""Runs one episode from start to reward; see `Engine.run`."""

Elsewhere = Callable[[], AbstractAsyncContextManager[RunEpisode]]
Spread = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]


class Observers(Protocol):
    """Callbacks for what happens in episodes; None means nobody listens."""

    @property
    def turn_finished(self) -> Callable[[str, Turn], None] | None: ...
    @property
    def episode_finished(self) -> Callable[[Episode], None] | None: ...


class Host(ABC):
    """What calls, activations and loops use of the engine that runs them, an `Engine`."""

    def __init__(
        self,
        team: Team,
        calls: CallPath | None = None,
        limits: Limits = NO_LIMITS,
        timeout: float | None = None,
        observers: Observers | None = None,
    ) -> None:
        self.team, self.limits = team, limits
        self.calls = calls or CallPath()
        self.timeout = self.calls.time_limit(timeout)
        self.observers: Observers = observers or EpisodeObservers(None, None)
        self.seats = seats_of(team.agents)
        self.identities: dict[int, str] = {}
        """For each opened agent, by its `id`, a text that stands for it and its settings."""
        self.places: dict[int, str] = {}
        """For each opened component, by its `id`, how messages name it."""
        self.learnable: Callable[[], Mapping[str, JSON]] = dict
        """Returns the learnable settings of what is open, by config path."""
        self.problems: int | None = None
        """How many problems of each split are used, the first ones; None means all."""
        self.stage = ""
        """The part of the run, for reports."""
        self.viewer: Callable[[str, str], None] | None = None
        """Called with an agent's label and each piece of text it says, for people who watch."""
        self.active = 0
        """Episodes in which agents act, nested teams included."""
        self.unfinished = 0
        """Episodes under way, those that are being judged included."""
        self.idle = asyncio.Event()
        """Set while none is under way."""
        self.idle.set()
        self.failed_turns: dict[str, int] = {}
        """How often each agent failed with which error, by "agent: error"; of the latest ones."""
        self.cut_off: dict[str, str] = {}
        """The agents that an episode had started when it was cancelled, by its name; likewise."""
        self.elsewhere: Elsewhere | None = None
        """Opens a function like `run` that runs episodes in other processes; None for nowhere."""
        self.spread: Spread | None = None
        """Calls a function on many items in other processes, see `Session.spread`; or None."""
        self._batchers: dict[int, DecisionBatcher] = {}

    def place(self, component: object, kind: str) -> str:
        """Return how messages name a component: its place in the config if it has one."""
        return self.places.get(id(component)) or f"{kind} {type(component).__name__}"

    def name_of(self, seat: Seat) -> str:
        """Return how messages name an agent: its place in the config, else its name."""
        return self.places.get(id(seat.agent)) or f"agent {seat.name!r}"

    def identity(self, seat: Seat) -> str:
        """Return a text for an agent and its settings, for the keys of reused results."""
        # An agent made by an agent has none: it goes by its name.
        return self.identities.get(id(seat.agent), seat.name)

    def count_failure(self, who: str, message: str) -> None:
        """Count a failure of an agent, verifier or reward function."""
        event(WARNING, "failed", agent=who, error=message)
        label = f"{who}: {message}"
        _reports_to_keep(self.failed_turns)[label] = self.failed_turns.pop(label, 0) + 1

    def note_cut_off(self, episode: str, agents: str) -> None:
        _reports_to_keep(self.cut_off)[episode] = agents

    @abstractmethod
    async def nested(
        self,
        caller: ActivationCalls,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None,
    ) -> tuple[Trajectory, str]:
        """Run a nested team; return its trajectory, and why its policy failed, else "".

        It shares the call path, and the time limit of the turn it runs in, which `caller` is the
        handle of.
        """


def _reports_to_keep(reports: dict[str, Any]) -> dict[str, Any]:
    """Drop the oldest report if there are `REPORTS`: an engine may serve for months."""
    if len(reports) >= REPORTS:
        del reports[next(iter(reports))]
    return reports


class ActivationCalls:
    """The call path as one activation, verifier or reward function sees it (`Calls`).

    Its calls are named by `scope`, or else by `key`. `who` is the caller in reports, `label` for
    people who watch, `episode` the name that nested teams get. Handles may share the list `made`.
    """

    __slots__ = (
        "_engine",
        "_key",
        "_latest",
        "_next",
        "episode",
        "label",
        "made",
        "scope",
        "used",
        "who",
    )

    def __init__(
        self,
        engine: Host,
        key: Key,
        scope: str = "",
        who: str = "",
        label: str | None = None,
        episode: str = "",
        made: list[str] | None = None,
    ) -> None:
        self._engine, self._key, self.scope = engine, key, scope
        self.who, self.label, self.episode = who, label, episode
        self._next = 0
        self._latest: Call | None = None
        self.used = NO_USAGE
        """Usage of all calls through this handle so far."""
        self.made: list[str] = [] if made is None else made
        """Names of the calls, in order."""

    @property
    def watched(self) -> bool:
        return self._engine.viewer is not None

    def show(self, text: str) -> None:
        if self._engine.viewer is not None:
            self._engine.viewer(self.label or self.who, text)

    async def run(
        self, request: Request, do: Callable[[], Awaitable[Answer]], reserve: Usage = NO_USAGE
    ) -> Answer:
        # Taken before the first await: calls are numbered in the order they are made.
        index, self._next = self._next, self._next + 1
        place = f"{self.scope or self._key.hex()}/{index}"
        engine = self._engine
        call = Call.at(place, request, do, reserve, self.who, engine.stage)
        self.made.append(call.name)
        self._latest = call
        answer = await engine.calls.run(call)
        self._latest = None
        self.used = self.used + answer.usage
        return answer

    def trouble(self) -> str:
        """Return why the latest call is still tried, as the end of a message; "" if it is not."""
        call = self._latest
        if call is None or not call.error:
            return ""
        return f"; attempt {call.failures} at its last call failed: {call.error}"

    async def reuse(self, content: JSON, do: Callable[[], Awaitable[Any]]) -> Any:
        return await self._engine.calls.reuse.get(digest(content), do)

    async def team(
        self,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None = None,
    ) -> Trajectory:
        trajectory, error = await self._engine.nested(self, view, key, members, policy, turns)
        for turn in trajectory.turns:
            self.used = self.used + turn.usage
        if error:
            raise RunError(error)
        return trajectory
