"""Episodes from start to reward, and what trainers do with unfinished ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from attrs import evolve

from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.calls import ActivationCalls, CallPath, Facts
from orchestrion._engine.checks import (
    FATAL,
    broken,
    check_step,
    describe,
    judged,
)
from orchestrion._engine.deadline import Deadline, exited, resume
from orchestrion._engine.loop import EpisodeLimits, Loop, late_at
from orchestrion._engine.team import Seat, Team, member_of, seats_of
from orchestrion._interfaces import Agent, Branch, Policy, View
from orchestrion._interrupts import from_outside
from orchestrion._keys import Key
from orchestrion._records import (
    JSON,
    NO_USAGE,
    Activation,
    Decision,
    Episode,
    Problem,
    Scores,
    Status,
    Step,
    Trajectory,
    Turn,
)

__all__ = ["Engine", "EpisodeLimits", "Observers"]


class Observers(Protocol):
    """Who is told what happens; a None attribute means nobody listens."""

    @property
    def turn_finished(self) -> Callable[[str, Turn], None] | None: ...
    @property
    def episode_finished(self) -> Callable[[Episode], None] | None: ...


class _Silent:
    turn_finished: Callable[[str, Turn], None] | None = None
    episode_finished: Callable[[Episode], None] | None = None


class Engine:
    """Runs episodes of one team; see the module `orchestrion._interfaces` for the loop in words.

    Args:
        team: opened components.
        calls: the run's call path.
        limits: per episode.
        timeout: seconds for one activation; None means no limit.
        observers: told of turns and episodes.
    """

    def __init__(
        self,
        team: Team,
        calls: CallPath | None = None,
        limits: EpisodeLimits | None = None,
        timeout: float | None = None,
        observers: Observers | None = None,
    ) -> None:
        self.team = team
        self.calls = calls or CallPath()
        # What took too long is on record. No clock of a replay adds to it.
        timeout = None if self.calls.replay else timeout
        self.limits = limits or EpisodeLimits()
        self.timeout = timeout
        self.observers: Observers = observers or _Silent()
        self.identities: dict[int, str] = {}
        """What each opened agent is, settings and all, by its id: for members of nested teams."""
        self.places: dict[int, str] = {}
        """Where each opened component stands, and who supplies it, by its id: for messages."""
        self.learnable: Callable[[], Mapping[str, JSON]] = dict
        """Gives the learnable settings of what is open, by config path."""
        self.problems: int | None = None
        """How many problems of each split may be used, the first ones; None means all."""
        self.stage = ""
        """The part of the run that it works for, as reports call it."""
        self.viewer: Callable[[str, str], None] | None = None
        """Is given who says something and a piece of it, as it comes."""
        self.active = 0
        """Episodes under way, nested ones included."""
        self.failed_turns: dict[str, int] = {}
        """How often each (agent, error) came up."""
        self.cut_off: dict[str, str] = {}
        """Whom an episode had started when it was cancelled, by its name."""
        self._executor = ThreadPoolExecutor(256, "orchestrion-agent")
        self._batchers: dict[int, DecisionBatcher] = {}
        self._deadlines: dict[float, Deadline] = {}

    def close(self) -> None:
        """Let go of the worker threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def batcher(self, policy: Policy) -> DecisionBatcher:
        """The one batcher of a policy."""
        found = self._batchers.get(id(policy))
        if found is None:
            place = self.place(policy, "policy")
            found = self._batchers[id(policy)] = DecisionBatcher(policy, place)
        return found

    def place(self, component: object, kind: str) -> str:
        """What messages call a component: its place in the config if it has one."""
        return self.places.get(id(component)) or f"{kind} {type(component).__name__}"

    def name_of(self, seat: Seat) -> str:
        """What messages call an agent: its place in the config, else its name."""
        return self.places.get(id(seat.agent)) or f"agent {seat.name!r}"

    async def rest(
        self, seconds: float | None, work: Coroutine[Any, Any, Any], waits_for: Any, who: str
    ) -> Any:
        """What a started piece of work gives in the end, within a time limit."""
        if seconds is None:
            return await resume(work, waits_for)
        deadline = self._deadlines.get(seconds)
        if deadline is None:
            # One for all activations with this limit.
            deadline = self._deadlines[seconds] = Deadline(seconds)
        return await deadline.within(work, waits_for, who)

    async def run(
        self,
        name: str,
        problem: Problem,
        key: Key,
        policy: Policy | None = None,
        training: bool = False,
    ) -> Episode:
        """One episode from start to reward.

        Raises:
            BudgetError, ReplayError, StoreError: the run cannot go on.
            RunError: the policy or the task broke its contract.
        """
        step = self.first_step(problem, key)
        loop = Loop(self, name, problem, step, key, self.team.seats, training, self.limits)
        self.active += 1
        try:
            await loop.run(self.batcher(policy or self.team.policy))
        finally:
            self.active -= 1
        episode = loop.episode()
        episode = await self.judge(episode, problem, loop.step.state, key)
        if self.observers.episode_finished is not None:
            self.observers.episode_finished(episode)
        return episode

    def first_step(self, problem: Problem, key: Key) -> Step:
        """The environment at the beginning of an episode.

        Raises:
            RunError: the task's `start` broke its contract.
        """
        task = self.team.task
        start = getattr(task, "start", None)
        if start is None:
            return Step()
        try:
            step: Step = start(problem, key.child("start"))
        except BaseException as error:
            raise broken(self.place(task, "task"), "start", error) from error
        check_step(step, self.place(task, "task"), "start")
        return step

    async def verify(self, branch: Branch, *, final: bool) -> Scores:
        """The verifier's score of a branch, which may be unfinished."""
        key = branch.key.child("score", int(final))
        handle = ActivationCalls(self, key, who="verifier")
        task = self.team.task
        try:
            return await task.verify(
                branch.problem, branch.trajectory, branch.step.state, final=final, calls=handle
            )
        except Exception as error:
            raise broken(self.place(task, "task"), "verify", error) from error

    async def judge(self, episode: Episode, problem: Problem, state: Any, key: Key) -> Episode:
        """The episode with scores and reward.

        A verifier that fails makes the episode fail. A reward function that fails leaves its
        judgement alone: the reward is missing, and `error` says why.
        """
        made = list(episode.calls)
        episode = await self._judge(episode, problem, state, key, made)
        return evolve(episode, calls=tuple(made)) if made else episode

    async def _judge(
        self, episode: Episode, problem: Problem, state: Any, key: Key, made: list[str]
    ) -> Episode:
        handle = ActivationCalls(self, key.child("verify"), who="verifier", made=made)
        try:
            self._check_in_time(late_at(episode.id, key.child("verify")))
            work = self.team.task.verify(
                problem, episode.trajectory, state, final=True, calls=handle
            )
            scores = await self._result(work, self.place(self.team.task, "the verifier of"))
            episode = judged(episode, scores)
        except BaseException as error:
            told = await self._described(
                error, late_at(episode.id, key.child("verify")), "verifier"
            )
            place = self.places.get(id(self.team.task))
            by = f" by {place}" if place else ""
            message = self._failure("verifier", f"verifying{by}: {told}")
            return evolve(episode, status=Status.FAILED, error=message, scores=None, reward=None)
        function = self.team.reward
        if function is None:
            return episode
        handle = ActivationCalls(self, key.child("reward"), who="reward", made=made)
        try:
            self._check_in_time(late_at(episode.id, key.child("reward")))
            reward = await self._result(
                function.score(episode, handle), self.place(function, "reward function")
            )
            return judged(episode, scores, reward, self.team.seats)
        except BaseException as error:
            who = self.place(function, "reward function")
            told = await self._described(error, late_at(episode.id, key.child("reward")), "reward")
            message = self._failure(who, told)
            return evolve(episode, error=episode.error or f"{who}: {message}")

    async def _result(self, work: Coroutine[Any, Any, Any], who: str) -> Any:
        """What a verifier or reward function gives, within the time limit of an activation."""
        try:
            waits_for = work.send(None)
        except StopIteration as stop:
            return stop.value
        except GeneratorExit as error:
            raise exited(error) from error
        return await self.rest(self.timeout, work, waits_for, who)

    def _check_in_time(self, scope: str) -> None:
        """In a replay, whoever was too late in the recorded run is too late again."""
        if self.calls.replay and self.calls.lateness(scope) is not None:
            raise TimeoutError

    async def _described(self, error: BaseException, scope: str, who: str) -> str:
        """An error of a verifier or reward function in words; raises it if it is the run's."""
        if isinstance(error, FATAL) or from_outside(error):
            raise error
        late = self.calls.lateness(scope)
        if late is not None:
            return late[0]
        message = describe(error, self.timeout)
        if isinstance(error, TimeoutError):
            await self.calls.late(scope, message, NO_USAGE, Facts(who=who, stage=self.stage))
        return message

    def _failure(self, who: str, message: str) -> str:
        self.count_failure(who, message)
        return message

    async def extend(
        self, name: str, branch: Branch, activations: tuple[Activation, ...], key: Key
    ) -> Branch:
        """A branch after these activations, which run in parallel."""
        loop = Loop(self, name, branch.problem, branch.step, key, self.team.seats, True)
        loop.trajectory = branch.trajectory
        loop.started = 1 + max((turn.index for turn in branch.trajectory.turns), default=-1)
        loop.decisions.append(Decision(activations))
        await loop.start(activations, 0)
        return Branch(branch.problem, loop.trajectory, loop.step, key)

    async def nested(
        self,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None,
        who: str = "",
        label: str | None = None,
        episode: str = "",
    ) -> tuple[Trajectory, str]:
        """A nested team's trajectory, and why its policy could not go on, if it could not.

        It shares the call path and the worker threads, and the time limit of the turn it is run
        in: that cuts off everything inside. `who` and `label` name that turn to people, `episode`
        is the one it belongs to.
        """
        # Opened components by what they are; what an agent made itself, by its name.
        known = {name: self.identities.get(id(one), name) for name, one in members.items()}
        seats = seats_of(members, self._executor, known)
        step = Step(None, view.observation)
        limits = evolve(self.limits, turns=turns or self.limits.turns)
        loop = Loop(self, view.agent, view.problem, step, key, seats, False, limits, nested=True)
        loop.given = view.turns
        loop.episode_name = episode
        loop.who = f"{who or view.agent}/"
        loop.label = f"{label} > " if label else ""
        loop.roster = tuple(member_of(name, one) for name, one in members.items())
        self.active += 1
        try:
            await loop.run(self.batcher(policy))
        finally:
            self.active -= 1
        return loop.trajectory, loop.error

    def seats(self, agents: Mapping[str, Agent], identities: Mapping[str, str]) -> dict[str, Seat]:
        """Seats that use this engine's worker threads."""
        return seats_of(agents, self._executor, identities)

    def count_failure(self, who: str, message: str) -> None:
        """Note that an agent, verifier or reward function failed."""
        label = f"{who}: {message}"
        self.failed_turns[label] = self.failed_turns.get(label, 0) + 1
