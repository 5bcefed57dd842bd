"""Run episodes from start to reward; extend and judge unfinished ones for trainers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol

from attrs import evolve

from orchestrion._config.sections import Limits
from orchestrion._engine.activation import Setting, act
from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion._engine.checks import first_step, judged
from orchestrion._engine.deadline import result_of
from orchestrion._engine.loop import NO_LIMITS, Loop
from orchestrion._engine.recording import Facts, Failure
from orchestrion._engine.team import Seat, Team, member_of, seats_of
from orchestrion._errors import RunError
from orchestrion._events import WARNING, WHERE, event
from orchestrion._guards import FATAL, describe, raise_named
from orchestrion._interfaces import Agent, Branch, Policy, View
from orchestrion._interrupts import from_outside
from orchestrion._keys import Key
from orchestrion._observers import EpisodeObservers
from orchestrion._records import (
    JSON,
    Activation,
    Decision,
    Episode,
    Output,
    Problem,
    Scores,
    Status,
    Step,
    Trajectory,
    Turn,
    replace,
)

REPORTS = 10_000
"""How many different failures, and how many episodes that were cut off, an engine reports."""

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


def computed(function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield what a function returns for each item.

    A generator makes another error of StopIteration, which no future takes: whoever awaits a
    thread that raised it would wait for ever.
    """
    for item in items:
        yield function(*item)


class Engine:
    """Run episodes of one team; the module `orchestrion._interfaces` has the loop in words.

    `timeout` limits one activation, in seconds; None means no limit.
    """

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

    def batcher(self, policy: Policy) -> DecisionBatcher:
        """Return the batcher of a policy; all its episodes share it."""
        if id(policy) not in self._batchers:
            batcher = DecisionBatcher(policy, self.place(policy, "policy"))
            self._batchers[id(policy)] = batcher
        return self._batchers[id(policy)]

    async def run(
        self,
        name: str,
        problem: Problem,
        key: Key,
        policy: Policy | None = None,
        training: bool = False,
    ) -> Episode:
        """Run one episode from start to reward."""
        self.unfinished += 1
        self.idle.clear()
        where = WHERE.set({**WHERE.get(), "episode": name})
        try:
            step = self.first_step(problem, key)
            loop = Loop(self._setting(name, problem, key), name, step, training, self.limits)
            self.active += 1
            try:
                await loop.run(self.batcher(policy or self.team.policy))
            finally:
                self.active -= 1
            episode = await self.judge(loop.episode(), problem, loop.step.state, key)
        finally:
            WHERE.reset(where)
            self.unfinished -= 1
            if not self.unfinished:
                self.idle.set()
        if self.observers.episode_finished is not None:
            self.observers.episode_finished(episode)
        return episode

    def runner(self) -> AbstractAsyncContextManager[RunEpisode]:
        """Open the function to run episodes with: `run`, or one like it in other processes."""
        return nullcontext(self.run) if self.elsewhere is None else self.elsewhere()

    def cancelled_within(self, name: str) -> RunError:
        """Return the error of an episode that was cancelled, and not from outside."""
        agents = self.cut_off.get(name) or "no agent"
        return RunError(
            f"episode {name} was cancelled from within, in or after a turn of {agents}: an agent "
            "must not cancel the task it runs in"
        )

    async def act(self, agent: str, view: View, key: Key, label: str | None = None) -> Turn:
        """Return the turn of one agent of the team on a view that comes from elsewhere.

        Whatever the agent raises makes it a failed turn. It is part of no episode, and `key` is
        the agent's own. `label` is the agent's for the `viewer`.
        """
        handle = ActivationCalls(self, key, "", agent, label)
        try:
            output = await act(self, self.seats[agent], view, key, handle, self.timeout)
        except FATAL:
            raise
        except BaseException as error:
            if from_outside(error):
                raise
            failed = Output(usage=handle.used)
            return Turn(0, agent, view.option, failed, "failed", describe(error, self.timeout))
        return Turn(0, agent, view.option, output)

    def _setting(self, episode: str, problem: Problem, key: Key) -> Setting:
        return Setting(self, problem.public(), key, self.seats, self.team.roster, episode)

    def first_step(self, problem: Problem, key: Key) -> Step:
        task = self.team.task
        return first_step(task, problem, key, self.place(task, "task"))

    async def verify(self, branch: Branch, *, final: bool) -> Scores:
        """Return the verifier's scores of a branch, which may be unfinished."""
        key = branch.key.child("score", int(final))
        handle = ActivationCalls(self, key, who="verifier")
        task = self.team.task
        try:
            return await task.verify(
                branch.problem, branch.trajectory, branch.step.state, final=final, calls=handle
            )
        except Exception as error:
            raise_named(self.place(task, "task"), "verify()", error)

    async def judge(self, episode: Episode, problem: Problem, state: Any, key: Key) -> Episode:
        """Return the episode with scores and reward.

        If the verifier fails, the episode fails. If the reward function fails, the scores stay,
        the reward is None, and `error` says why.
        """
        made = list(episode.calls)
        episode = await self._judge(episode, problem, state, key, made)
        return replace(episode, calls=tuple(made)) if made else episode

    async def _judge(
        self, episode: Episode, problem: Problem, state: Any, key: Key, made: list[str]
    ) -> Episode:
        task, function = self.team.task, self.team.reward
        child = key.child("verify")
        handle = ActivationCalls(self, child, who="verifier", made=made)
        failure = self.calls.late(episode.id, child)
        if failure is None:
            try:
                scores = await self._result(
                    task.verify(problem, episode.trajectory, state, final=True, calls=handle),
                    self.place(task, "the verifier of"),
                )
                episode = judged(episode, scores)
            except BaseException as error:
                failure = await self._failed(error, episode.id, child, "verifier")
        if failure is not None:
            place = self.places.get(id(task))
            by = f" by {place}" if place else ""
            message = f"verifying{by}: {failure.message}"
            self.count_failure("verifier", message)
            return replace(episode, status=Status.FAILED, error=message, scores=None, reward=None)
        if function is None:
            return episode
        child = key.child("reward")
        handle = ActivationCalls(self, child, who="reward", made=made)
        failure = self.calls.late(episode.id, child)
        who = self.place(function, "reward function")
        if failure is None:
            try:
                reward = await self._result(function.score(episode, handle), who)
                return judged(episode, scores, reward, self.seats)
            except BaseException as error:
                failure = await self._failed(error, episode.id, child, "reward")
        self.count_failure(who, failure.message)
        return replace(episode, error=episode.error or f"{who}: {failure.message}")

    async def _result(self, work: Coroutine[Any, Any, Any], who: str) -> Any:
        """Return the result of a verifier or reward function, within the time limit of a turn."""
        return await result_of(work, self.timeout, who)

    async def _failed(self, error: BaseException, episode: str, key: Key, who: str) -> Failure:
        """Return the failure of a verifier or reward function; record it if it was late.

        Raises:
            BaseException: the error is the run's own, or the user's interrupt.
        """
        if isinstance(error, FATAL) or from_outside(error):
            raise error
        failure = Failure(describe(error, self.timeout))
        if isinstance(error, TimeoutError):
            facts = Facts(who=who, stage=self.stage)
            await self.calls.record_late(episode, key, failure, facts)
        return failure

    async def extend(
        self, name: str, branch: Branch, activations: tuple[Activation, ...], key: Key
    ) -> Branch:
        """Return a branch after these activations, which run in parallel."""
        loop = Loop(
            self._setting(name, branch.problem, key),
            name,
            branch.step,
            training=True,
            trajectory=branch.trajectory,
            started=1 + max((turn.index for turn in branch.trajectory.turns), default=-1),
            decisions=[Decision(activations)],
        )
        await loop.start(activations)
        return Branch(branch.problem, loop.trajectory, loop.step, key)

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
        setting = Setting(
            self,
            view.problem.public(),
            key,
            seats_of(members),
            tuple(member_of(name, agent) for name, agent in members.items()),
            caller.episode,
            given=view.turns,
            who=f"{caller.who or view.agent}/",
            label=f"{caller.label} > " if caller.label else "",
        )
        limits = evolve(self.limits, turns=turns or self.limits.turns)
        step = Step(None, view.observation)
        loop = Loop(setting, view.agent, step, False, limits, nested=True)
        self.active += 1
        try:
            await loop.run(self.batcher(policy))
        finally:
            self.active -= 1
        return loop.trajectory, loop.error


def _reports_to_keep(reports: dict[str, Any]) -> dict[str, Any]:
    """Drop the oldest report if there are `REPORTS`: an engine may serve for months."""
    if len(reports) >= REPORTS:
        del reports[next(iter(reports))]
    return reports
