"""One episode: ask the policy, start what it says, append what comes back, judge the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from attrs import evolve, frozen

from orchestrion.engine.batch import DecisionBatcher
from orchestrion.engine.calls import ActivationCalls, CallPath
from orchestrion.engine.checks import (
    booked,
    cancelled_from_outside,
    check_decision,
    describe,
    judged,
)
from orchestrion.engine.deadline import Deadline, resume
from orchestrion.engine.reuse import digest
from orchestrion.engine.team import Seat, Team, seats_of
from orchestrion.errors import (
    BudgetError,
    OrchestrionError,
    ReplayError,
    RunError,
    StoreError,
)
from orchestrion.interfaces import Agent, Branch, Policy, Situation, Task, View
from orchestrion.keys import Key
from orchestrion.records import (
    NO_USAGE,
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    Scores,
    Status,
    Step,
    Trajectory,
    Turn,
    Usage,
)

__all__ = ["Engine", "EpisodeLimits", "Observers", "first_step"]

EMPTY = Trajectory()

# Not an agent's failure but the run's: the episode cannot go on.
_FATAL = (BudgetError, ReplayError, StoreError)
# What plugin code may raise of its own: it must neither end the process nor look like our own
# cancellation.
_FAILURES = (Exception, SystemExit, asyncio.CancelledError)


@frozen
class EpisodeLimits:
    """Per episode, None means no limit. Counts, so that where an episode ends is repeatable."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None

    def passed(self, usage: Usage) -> bool:
        """Whether an episode's usage is over a limit."""
        return (self.calls is not None and usage.calls > self.calls) or (
            self.tokens is not None and usage.tokens > self.tokens
        )


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
    """Runs episodes of one team; see the module `orchestrion.interfaces` for the loop in words.

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
        self.limits = limits or EpisodeLimits()
        self.timeout = timeout
        self.observers: Observers = observers or _Silent()
        self.active = 0
        """Episodes under way, nested ones included."""
        self.failed_turns: dict[str, int] = {}
        """How often each (agent, error) came up."""
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
            found = self._batchers[id(policy)] = DecisionBatcher(policy)
        return found

    async def rest(
        self, seconds: float | None, work: Coroutine[Any, Any, Any], waits_for: Any
    ) -> Any:
        """What a started piece of work gives in the end, within a time limit."""
        if seconds is None:
            return await resume(work, waits_for)
        deadline = self._deadlines.get(seconds)
        if deadline is None:
            # One for all activations with this limit.
            deadline = self._deadlines[seconds] = Deadline(seconds)
        return await deadline.within(work, waits_for)

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
        step = first_step(self.team.task, problem, key)
        loop = _Loop(self, name, problem, step, key, self.team.seats, training)
        loop.limit(self.limits)
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

    async def verify(self, branch: Branch, *, final: bool) -> Scores:
        """The verifier's score of a branch, which may be unfinished."""
        handle = ActivationCalls(self, branch.key.child("score", int(final)))
        return await self.team.task.verify(
            branch.problem, branch.trajectory, branch.step.state, final=final, calls=handle
        )

    async def judge(self, episode: Episode, problem: Problem, state: Any, key: Key) -> Episode:
        """The episode with scores and reward. A verifier that fails makes the episode fail."""
        handle = ActivationCalls(self, key.child("verify"))
        try:
            work = self.team.task.verify(
                problem, episode.trajectory, state, final=True, calls=handle
            )
            scores = await self._result(work)
            episode = judged(episode, scores)
            if self.team.reward is not None:
                handle = ActivationCalls(self, key.child("reward"))
                reward = await self._result(self.team.reward.score(episode, handle))
                episode = judged(episode, scores, reward)
        except _FATAL:
            raise
        except _FAILURES as error:
            if cancelled_from_outside(error):
                raise
            message = f"verifying: {describe(error, self.timeout)}"
            self._count_failure("verifier", message)
            return evolve(episode, status=Status.FAILED, error=message, scores=None, reward=None)
        return episode

    async def _result(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a verifier or reward function gives, within the time limit of an activation."""
        try:
            waits_for = work.send(None)
        except StopIteration as stop:
            return stop.value
        return await self.rest(self.timeout, work, waits_for)

    async def extend(
        self, name: str, branch: Branch, activations: tuple[Activation, ...], key: Key
    ) -> Branch:
        """A branch after these activations, which run in parallel."""
        loop = _Loop(self, name, branch.problem, branch.step, key, self.team.seats, True)
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
    ) -> Trajectory:
        """A nested team's trajectory; it shares the call path and the worker threads."""
        seats = seats_of(members, self._executor, {})
        step = Step(None, view.observation)
        loop = _Loop(self, f"{view.agent}", view.problem, step, key, seats, False)
        loop.limit(evolve(self.limits, turns=turns or self.limits.turns))
        loop.nested, loop.steps = True, False
        self.active += 1
        try:
            await loop.run(self.batcher(policy))
        finally:
            self.active -= 1
        return loop.trajectory

    def seats(self, agents: Mapping[str, Agent], identities: Mapping[str, str]) -> dict[str, Seat]:
        """Seats that use this engine's worker threads."""
        return seats_of(agents, self._executor, identities)

    def _count_failure(self, who: str, message: str) -> None:
        label = f"{who}: {message}"
        self.failed_turns[label] = self.failed_turns.get(label, 0) + 1


def first_step(task: Task, problem: Problem, key: Key) -> Step:
    """The environment at the beginning of an episode.

    Raises:
        RunError: the task's `start` broke its contract.
    """
    start = getattr(task, "start", None)
    if start is None:
        return Step()
    try:
        step = start(problem, key.child("start"))
    except Exception as error:
        raise _broken(task, "start", error) from error
    if type(step) is not Step:
        raise RunError(f"task {type(task).__name__}: start() must give a Step")
    return step


def _broken(component: object, method: str, error: Exception) -> Exception:
    """An error of plugin code with the component and method it came from."""
    if isinstance(error, OrchestrionError):
        return error
    return RunError(f"{type(component).__name__}.{method}() raised {describe(error, None)}")


class _Loop:
    """The state of one episode under way. Not kept after it."""

    __slots__ = (
        "acts",
        "counts",
        "decisions",
        "engine",
        "final",
        "indices",
        "key",
        "limits",
        "name",
        "nested",
        "problem",
        "public",
        "running",
        "seats",
        "started",
        "status",
        "step",
        "steps",
        "training",
        "trajectory",
        "used",
    )

    def __init__(
        self,
        engine: Engine,
        name: str,
        problem: Problem,
        step: Step,
        key: Key,
        seats: Mapping[str, Seat],
        training: bool,
    ) -> None:
        self.engine, self.name, self.problem, self.step, self.key = (
            engine,
            name,
            problem,
            step,
            key,
        )
        self.public = problem.public()
        self.seats, self.training = seats, training
        self.limit(EpisodeLimits())
        self.nested = False
        # A task without an environment need not be asked.
        self.steps = getattr(type(engine.team.task), "step", Task.step) is not Task.step
        self.trajectory = EMPTY
        self.decisions: list[Decision] = []
        self.running: dict[asyncio.Task[Turn], Activation] = {}
        self.acts: dict[str, int] = {}
        self.indices: set[int] = set()
        self.started = 0
        self.final = False
        self.status = Status.COMPLETED
        self.used = NO_USAGE

    def limit(self, limits: EpisodeLimits) -> None:
        """Set the limits; usage is summed up only where one of them needs it."""
        self.limits = limits
        self.counts = limits.calls is not None or limits.tokens is not None

    def episode(self) -> Episode:
        """What happened, not judged yet."""
        return Episode(
            id=self.name,
            problem=self.public,
            trajectory=self.trajectory,
            decisions=tuple(self.decisions),
            status=self.status,
            observation=self.step.observation,
        )

    async def run(self, batcher: DecisionBatcher) -> None:
        """Until the policy stops, an output is final, the task is done or a limit is reached."""
        try:
            while not (self.final or self.step.done):
                left = self._turns_left()
                if (left == 0 and not self.running) or (
                    self.counts and self.limits.passed(self.used)
                ):
                    self.status = Status.LIMIT
                    return
                situation = Situation(
                    self.public,
                    self.trajectory,
                    self.step.observation,
                    tuple(self.running.values()) if self.running else (),
                    left,
                    self.training,
                )
                count = len(self.decisions)
                decision = await batcher.decide(
                    situation, self.key.child("decide", count), self.engine.active <= 1
                )
                check_decision(decision, batcher.policy)
                self.decisions.append(decision)
                if decision.stop:
                    return
                start = decision.start
                if not start and not self.running:
                    raise RunError(
                        f"policy {type(batcher.policy).__name__} neither started an agent nor "
                        f"stopped, with nothing running (episode {self.name})"
                    )
                if left is not None and len(start) > left:
                    start = start[:left]
                    self.status = Status.LIMIT
                if decision.wait == "all" and not self.running:
                    await self.start(start, count)
                else:
                    await self._overlap(start, count, decision.wait)
                if self.status is Status.LIMIT:
                    return
        finally:
            if self.running:
                await self._cancel_running()

    def _turns_left(self) -> int | None:
        return None if self.limits.turns is None else self.limits.turns - self.started

    async def start(self, activations: tuple[Activation, ...], decision: int) -> None:
        """Start activations and wait for all of them; their turns join in order."""
        if len(activations) == 1:
            only = activations[0]
            self._finish(await self._turn(only, self._index(only), self._nth(only), decision))
            return
        tasks: list[asyncio.Task[Turn]] = []
        try:
            async with asyncio.TaskGroup() as group:
                for one in activations:
                    turn = self._turn(one, self._index(one), self._nth(one), decision)
                    tasks.append(group.create_task(turn))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        for task in tasks:
            self._finish(task.result())

    async def _overlap(self, activations: tuple[Activation, ...], decision: int, wait: str) -> None:
        """Start activations beside those that run; wait for the first, or for all."""
        for one in activations:
            turn = self._turn(one, self._index(one), self._nth(one), decision)
            self.running[asyncio.create_task(turn)] = one
        when = asyncio.FIRST_COMPLETED if wait == "each" else asyncio.ALL_COMPLETED
        done, _ = await asyncio.wait(self.running, return_when=when)
        # The set has no order; the dictionary has that of activation.
        for task in [task for task in self.running if task in done]:
            del self.running[task]
            self._finish(task.result())

    async def _cancel_running(self) -> None:
        """Leave no orphan; what was cut off is on record."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        for task, activation in self.running.items():
            if task.cancelled() or task.exception() is not None:
                index = activation.index if activation.index is not None else self.started
                self.started = max(self.started, index + 1)
                turn = Turn(index, activation.agent, activation.option, status="cancelled")
                self.trajectory = self.trajectory.append(turn)
            else:
                self.trajectory = self.trajectory.append(task.result())
        self.running = {}

    def _index(self, activation: Activation) -> int:
        index = self.started
        if activation.index is not None:
            index = activation.index
            taken = self.indices
            if type(index) is not int or index < 0 or index in taken:
                raise RunError(
                    f"the policy gave an activation of {activation.agent!r} the index {index!r}; "
                    "an index is a whole number that no other turn of the episode has"
                )
            taken.add(index)
        self.started += 1
        return index

    def _nth(self, activation: Activation) -> int:
        # Keys go by how often an agent acted, not by when: arrival must not change a draw.
        nth = self.acts.get(activation.agent, 0)
        self.acts[activation.agent] = nth + 1
        return nth

    def _finish(self, turn: Turn) -> None:
        self.trajectory = self.trajectory.append(turn)
        if self.counts:
            self.used = self.used + turn.output.usage
        if turn.output.final:
            self.final = True
        if self.steps:
            key = self.key.child("step", turn.index)
            task = self.engine.team.task
            try:
                self.step = task.step(self.step.state, turn, key)
            except Exception as error:
                raise _broken(task, "step", error) from error
            if type(self.step) is not Step:
                raise RunError(f"task {type(task).__name__}: step() must give a Step")
        observe = self.engine.observers.turn_finished
        if observe is not None and not self.nested:
            observe(self.name, turn)

    async def _turn(self, activation: Activation, index: int, nth: int, decision: int) -> Turn:
        agent, option = activation.agent, activation.option
        engine = self.engine
        seat = self.seats.get(agent)
        if seat is None or option is not None or seat.options or self.step.observation is not None:
            refusal = self._refusal(seat, activation)
            if refusal:
                engine._count_failure(agent, refusal)
                return Turn(index, agent, option, status="failed", error=refusal, decision=decision)
            assert seat is not None
        view = View(
            agent, option, self.public, self.trajectory, self.step.observation, activation.reads
        )
        key = self.key.child("act", agent, nth)
        timeout = activation.timeout if activation.timeout is not None else engine.timeout
        handle: ActivationCalls | None = None
        try:
            if seat.pure:
                output = await self._pure(seat, view, timeout)
            else:
                handle = ActivationCalls(engine, key)
                work = seat.act(view, key, handle)
                try:
                    waits_for = work.send(None)
                except StopIteration as stop:
                    # It never had to wait: no timer, and no way through the event loop.
                    output = booked(stop.value, handle.used)
                else:
                    output = booked(await engine.rest(timeout, work, waits_for), handle.used)
        except _FATAL:
            raise
        except _FAILURES as error:
            if cancelled_from_outside(error):
                raise
            message = describe(error, timeout)
            engine._count_failure(agent, message)
            charged = Output(usage=handle.used) if handle is not None else Output()
            return Turn(
                index, agent, option, charged, "failed", message, decision, activation.reads
            )
        return Turn(index, agent, option, output, "completed", "", decision, activation.reads)

    def _refusal(self, seat: Seat | None, activation: Activation) -> str:
        """Why an activation cannot start; empty if it can."""
        agent, option = activation.agent, activation.option
        if seat is None:
            raise RunError(
                f"the policy started {agent!r}, which is not in the team ({', '.join(self.seats)})"
            )
        if option is None:
            if seat.options:
                raise RunError(f"the policy started {agent!r} without one of its options")
        elif option not in seat.options:
            raise RunError(
                f"the policy started {agent!r} with option {option!r}; "
                f"it has {', '.join(sorted(seat.options)) or 'none'}"
            )
        observation: Observation | None = self.step.observation
        if observation is not None and observation.blocked:
            blocked = observation.blocked
            if agent in blocked or (option is not None and f"{agent}:{option}" in blocked):
                return "blocked by the task"
        return ""

    async def _pure(self, seat: Seat, view: View, seconds: float | None) -> Output:
        """The output of a pure agent, computed once for equal content."""
        content = seat.memo(view) if seat.memo is not None else _content(view)
        name = digest("act", seat.identity, view.option, content)
        key = Key(name.encode()[:32])

        async def compute() -> Output:
            handle = ActivationCalls(self.engine, key, scope=name)
            work = seat.act(view, key, handle)
            try:
                waits_for = work.send(None)
            except StopIteration as stop:
                return booked(stop.value, handle.used)
            return booked(await self.engine.rest(seconds, work, waits_for), handle.used)

        output: Output = await self.engine.calls.reuse.get(name, compute)
        return output


def _content(view: View) -> Any:
    """All that a view shows, as JSON."""
    observation = view.observation
    return [
        view.problem.text,
        view.problem.data,
        [[turn.agent, turn.option, turn.output.content, turn.output.data] for turn in view.turns],
        [observation.text, observation.data] if observation is not None else None,
    ]
