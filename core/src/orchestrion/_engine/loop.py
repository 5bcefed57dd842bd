"""The loop of one episode: ask the policy, start what it says, append what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from attrs import frozen

from orchestrion._engine.activation import act, refusal, reused
from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.calls import ActivationCalls, Facts
from orchestrion._engine.checks import (
    FATAL,
    broken,
    check_decision,
    check_step,
    describe,
    nothing_given,
)
from orchestrion._engine.making import make_episode, make_situation, make_turn, make_view
from orchestrion._engine.team import Seat
from orchestrion._errors import CallError, ReplayError, RunError
from orchestrion._interfaces import Situation, Task
from orchestrion._interrupts import from_outside
from orchestrion._keys import Key
from orchestrion._records import (
    Activation,
    Decision,
    Episode,
    Output,
    Problem,
    Status,
    Step,
    Trajectory,
    Turn,
)

if TYPE_CHECKING:
    from orchestrion._engine.episode import Engine

__all__ = ["EpisodeLimits", "Loop"]


_Ended = tuple[int, int, asyncio.Task[Turn]]
_FIRST = itemgetter(0)


def late_at(episode: str, key: Key) -> str:
    """Where it is on record that something took too long; other episodes may share the key."""
    return f"{episode}:{key.hex()}"


@frozen
class EpisodeLimits:
    """Per episode, None means no limit. Counts, so that where an episode ends is repeatable."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None


NO_LIMITS = EpisodeLimits()


class Loop:
    """The state of one episode under way. Not kept after it.

    Args:
        engine: whose team, call path and time limit it uses.
        name: of the episode; a nested loop's is not told to anybody.
        problem: with its hidden part.
        step: the environment at the beginning.
        key: of the episode.
        seats: the agents it may start.
        training: whether decisions are taken to learn from.
        limits: on turns and usage.
        nested: whether it runs a team inside a turn: the task has no say in it, and nobody is
            told of its turns.
    """

    __slots__ = (
        "acts",
        "calls",
        "counts",
        "decisions",
        "ended",
        "engine",
        "episode_name",
        "error",
        "final",
        "given",
        "indices",
        "key",
        "label",
        "limits",
        "made",
        "name",
        "observe",
        "order",
        "public",
        "recorded",
        "roster",
        "running",
        "seats",
        "started",
        "status",
        "step",
        "steps",
        "tokens",
        "training",
        "trajectory",
        "waiter",
        "who",
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
        limits: EpisodeLimits = NO_LIMITS,
        nested: bool = False,
    ) -> None:
        self.engine, self.name, self.step, self.key = engine, name, step, key
        self.public = problem.public()
        self.seats, self.training, self.limits = seats, training, limits
        # Usage is summed up only where a limit needs it.
        self.counts = limits.calls is not None or limits.tokens is not None
        self.calls = self.tokens = 0
        self.made: list[str] = []
        """Names of the calls that the policy made to prepare its decisions."""
        # A task without an environment need not be asked.
        task = type(engine.team.task)
        self.steps = not nested and getattr(task, "step", Task.step) is not Task.step
        self.observe = None if nested else engine.observers.turn_finished
        # One of its own, so that policies can tell episodes apart by it.
        self.trajectory = Trajectory()
        self.decisions: list[Decision] = []
        self.given: tuple[Turn, ...] = ()
        # Before the names of agents: the turn that runs this team, if it is nested.
        self.who = self.label = ""
        self.episode_name = name
        """Unique in the run; of a nested team, that of the episode it is part of."""
        self.roster = engine.team.roster
        self.running: dict[asyncio.Task[Turn], Activation] = {}
        # Of these, what has ended and is not in the trajectory yet: start, index, task.
        self.ended: list[_Ended] = []
        self.waiter: asyncio.Future[None] | None = None
        self.acts: dict[str, int] = {}
        self.indices: set[int] = set()
        self.started = 0
        self.final = False
        # Which turns ended first, by decision, where nothing hangs on it and some still ran; and
        # what a replay goes by. None: never was more than one asked to end before the others.
        self.order: dict[int, list[int]] | None = None
        self.recorded: Mapping[int, list[int]] = {}
        self.status, self.error = Status.COMPLETED, ""

    def episode(self) -> Episode:
        """What happened, not judged yet."""
        if self.status is Status.COMPLETED:
            self.error = nothing_given(self.trajectory)
            if self.error:
                self.status = Status.FAILED
        return make_episode(
            self.name,
            self.public,
            self.trajectory,
            tuple(self.decisions),
            self.status,
            None,
            None,
            self.error,
            self.step.observation,
            tuple(self.made),
        )

    async def run(self, batcher: DecisionBatcher) -> None:
        """Until the policy stops, an output is final, the task is done or a limit is reached."""
        try:
            await self._ask(batcher)
        finally:
            if self.running:
                await self._cancel_running()
        if self.order is not None:
            await self.engine.calls.ordered(self._scope("order"), self.order)

    async def _ask(self, batcher: DecisionBatcher) -> None:
        try:
            while not (self.final or self.step.done):
                turns = self.limits.turns
                left = None if turns is None else turns - self.started
                if (left == 0 and not self.running) or (self.counts and self._spent()):
                    self.status = Status.LIMIT
                    return
                situation = make_situation(
                    self.public,
                    self.trajectory,
                    self.step.observation,
                    tuple(self.running.values()) if self.running else (),
                    left,
                    self.training,
                )
                if batcher.prepares and not await self._prepare(batcher, situation):
                    return
                key = self.key.child("decide", len(self.decisions))
                if self.engine.active <= 1:
                    # Nobody else can be ready.
                    decision = batcher.now(situation, key)
                else:
                    decision = await batcher.soon(situation, key)
                check_decision(decision, batcher.place)
                self.decisions.append(decision)
                if decision.stop:
                    if decision.error:
                        self.status, self.error = Status.FAILED, decision.error
                    return
                await self._follow(decision, left, batcher)
                if self.status is Status.LIMIT:
                    return
        except asyncio.CancelledError:
            # Should nobody have asked for it, one of these did it.
            started = self.decisions[-1].start if self.decisions else ()
            self.engine.cut_off[self.name] = ", ".join(one.agent for one in started)
            raise

    async def _prepare(self, batcher: DecisionBatcher, situation: Situation) -> bool:
        """Let the policy get what it needs; whether it did. If not, the episode has failed."""
        key = self.key.child("prepare", len(self.decisions))
        handle = ActivationCalls(self.engine, key, who="policy", made=self.made)
        try:
            await batcher.policy.prepare(situation, handle)
        except CallError as error:
            self.status, self.error = Status.FAILED, f"{batcher.place}: {error}"
            self.engine.count_failure(batcher.place, str(error))
            return False
        except FATAL:
            raise
        except Exception as error:
            raise broken(batcher.place, "prepare", error) from error
        return True

    def _spent(self) -> bool:
        """Whether usage is over a limit."""
        calls, tokens = self.limits.calls, self.limits.tokens
        return (calls is not None and self.calls > calls) or (
            tokens is not None and self.tokens > tokens
        )

    async def _follow(self, decision: Decision, left: int | None, batcher: DecisionBatcher) -> None:
        """Do what a decision says, as far as the limit on turns allows."""
        start, count = decision.start, len(self.decisions) - 1
        if not start and not self.running:
            raise RunError(
                f"{batcher.place} neither started an agent nor "
                f"stopped, with nothing running (episode {self.name})"
            )
        if left is not None and len(start) > left:
            start = start[:left]
            self.status = Status.LIMIT
        if not self.running and (decision.wait == "all" or len(start) == 1):
            await self.start(start, count)  # the first to finish is the only one: no task
        else:
            await self._overlap(start, count, decision)

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

    async def _overlap(
        self, activations: tuple[Activation, ...], count: int, decision: Decision
    ) -> None:
        """Start activations beside those that run; wait for the first, or for all."""
        for one in activations:
            index = self._index(one)
            task = asyncio.create_task(self._turn(one, index, self._nth(one), count))
            self.running[task] = one
            task.add_done_callback(partial(self._end, self.started, index))
        if decision.wait == "each" and len(self.running) > 1:
            taken = await (self._in_recorded_order if decision.arrival else self._in_any_order)(
                count
            )
        else:
            taken = await self._when_all_ended()
        self.ended = [] if taken is self.ended else [one for one in self.ended if one not in taken]
        # Those that are ready together join in the order of activation.
        for _, _, task in sorted(taken, key=_FIRST):
            del self.running[task]
            self._finish(task.result())

    def _end(self, number: int, index: int, task: asyncio.Task[Turn]) -> None:
        """An activation has ended; wake the loop if it waits for that."""
        self.ended.append((number, index, task))
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def _one_more(self) -> None:
        """Wait until another activation ends. What that costs does not grow with their number."""
        self.waiter = asyncio.get_running_loop().create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    async def _in_recorded_order(self, count: int) -> list[_Ended]:
        """What arrived first: as it is on record, else as it happens, and then recorded."""
        calls, scope = self.engine.calls, self._scope("arrival", count)
        recorded = calls.arrival(scope)
        if recorded is not None:
            return await self._when_ended(recorded)
        while not self.ended:
            await self._one_more()
        first = self.ended.copy()  # others may end while these are recorded
        await calls.arrived(scope, [index for _, index, _ in first])
        return first

    async def _in_any_order(self, count: int) -> list[_Ended]:
        """What arrived first, where nothing hangs on it: only a replay repeats it.

        So that it is enough to record it at the end, and only where some still ran.
        """
        if self.order is None:
            self.order = {}
            if self.engine.calls.replay:
                self.recorded = self.engine.calls.order(self._scope("order"))
        if self.engine.calls.replay:
            recorded = self.recorded.get(count)
            return await (
                self._when_all_ended() if recorded is None else self._when_ended(recorded)
            )
        while not self.ended:
            await self._one_more()
        if len(self.ended) < len(self.running):
            self.order[count] = [index for _, index, _ in self.ended]
        return self.ended

    async def _when_all_ended(self) -> list[_Ended]:
        while len(self.ended) < len(self.running):
            await self._one_more()
        return self.ended

    async def _when_ended(self, recorded: list[int]) -> list[_Ended]:
        """These, when they have ended; others may have as well."""
        while not set(recorded) <= {index for _, index, _ in self.ended}:
            if len(self.ended) == len(self.running):
                raise ReplayError(
                    f"the turns {recorded} arrived first in the recorded run (episode "
                    f"{self.name}), and do not run now; the config or a plugin has changed since"
                )
            await self._one_more()
        return [one for one in self.ended if one[1] in recorded]

    async def _cancel_running(self) -> None:
        """Leave no orphan; what was cut off is on record."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        for activation in self.running.values():
            # What nothing was decided by counts as cut off even if it has just ended: a replay, in
            # which others are at work at this moment, must give the same.
            index = activation.index if activation.index is not None else self.started
            self.started = max(self.started, index + 1)
            turn = Turn(index, activation.agent, activation.option, status="cancelled")
            self.trajectory = self.trajectory.append(turn)
        self.running, self.ended = {}, []

    def _scope(self, *place: str | int) -> str:
        """Where something about this loop is on record."""
        return f"{self.episode_name}:{self.key.child(*place).hex()}"

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
        nth = self.acts.get(activation.agent, 0)
        self.acts[activation.agent] = nth + 1
        return nth

    def _finish(self, turn: Turn) -> None:
        self.trajectory = self.trajectory.append(turn)
        output = turn.output
        if self.counts:
            usage = output.usage
            self.calls += usage.calls
            self.tokens += usage.input_tokens + usage.output_tokens
        if output.final:
            self.final = True
        if self.steps:
            self._step(turn)
        if self.observe is not None:
            self.observe(self.name, turn)

    def _step(self, turn: Turn) -> None:
        """Let the environment follow a turn."""
        task = self.engine.team.task
        try:
            step = task.step(self.step.state, turn, self.key.child("step", turn.index))
        except BaseException as error:
            raise broken(self.engine.place(task, "task"), "step", error) from error
        check_step(step, self.engine.place(task, "task"), "step")
        self.step = step

    async def _turn(self, activation: Activation, index: int, nth: int, decision: int) -> Turn:
        agent, option, reads = activation.agent, activation.option, activation.reads
        engine, observation = self.engine, self.step.observation
        seat = self.seats.get(agent)
        if (
            seat is None
            or option is not None
            or seat.options
            or (observation is not None and observation.blocked)
        ):
            refused = refusal(activation, self.seats, observation)
            if refused:
                engine.count_failure(agent, refused)
                return Turn(index, agent, option, status="failed", error=refused, decision=decision)
            assert seat is not None
        view = make_view(
            agent,
            option,
            self.public,
            self.trajectory,
            observation,
            reads,
            self.given,
            self.roster,
        )
        timeout = activation.timeout if activation.timeout is not None else engine.timeout
        if engine.calls.replay:
            timeout = None  # what took too long is on record
        # Keys go by how often an agent acted, or by the place that the policy gave: not by when.
        place = nth if activation.index is None else f"@{index}"
        key = self.key.child("act", agent, place)
        who = self.who + agent
        label = None if engine.viewer is None else f"{self.label}{index + 1} {agent}"
        episode = self.episode_name
        handle = ActivationCalls(engine, key, None, who, label, episode)
        if engine.calls.replay and (late := engine.calls.lateness(late_at(episode, key))):
            message, used, made = late
            engine.count_failure(agent, message)
            charged = Output(usage=used, calls=made)
            return Turn(index, agent, option, charged, "failed", message, decision, reads)
        try:
            if seat.pure or activation.reuse:
                output = await reused(engine, seat, view, timeout, who, label)
            else:
                output = await act(engine, seat, view, key, handle, timeout)
        except FATAL:
            raise
        except BaseException as error:
            if from_outside(error):
                raise
            message = describe(error, timeout)
            engine.count_failure(agent, message)
            charged = Output(usage=handle.used, calls=tuple(handle.made))
            if isinstance(error, TimeoutError):
                facts = Facts(who=who, stage=engine.stage)
                scope = late_at(episode, key)
                await engine.calls.late(scope, message, handle.used, facts, handle.made)
            return Turn(index, agent, option, charged, "failed", message, decision, reads)
        return make_turn(index, agent, option, output, "completed", "", decision, reads)
