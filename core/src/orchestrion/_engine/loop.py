"""The loop of one episode: ask the policy, start what it decides, append the turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from attrs import define, field

from orchestrion._config.sections import Limits
from orchestrion._engine.activation import EpisodeContext, take_turn
from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.calls import NO_LIMITS, ActivationCalls
from orchestrion._engine.checks import check_decision, has_steps, next_step, why_empty
from orchestrion._engine.completion import Running
from orchestrion._errors import CallError, RunError
from orchestrion._interfaces import Situation
from orchestrion._records import Activation, Decision, Episode, Status, Step, Trajectory, Turn


@define(eq=False)
class Loop:
    """The state of one episode, or nested team, while it runs."""

    context: EpisodeContext
    name: str  # of the episode; of a nested team, the agent that runs it
    step: Step  # the environment, at first as the task started it
    training: bool  # whether a trainer learns from the decisions
    limits: Limits = NO_LIMITS
    nested: bool = False  # inside a turn: neither task nor observers take part
    # A new one for each loop: policies may tell episodes apart by its identity.
    trajectory: Trajectory = field(factory=Trajectory)
    started: int = 0  # activations so far; those without an index are numbered by it
    decisions: list[Decision] = field(factory=list)
    status: Status = field(default=Status.COMPLETED, init=False)
    error: str = field(default="", init=False)

    _running: Running | None = field(default=None, init=False)
    """None as long as nothing was started beside something else: most episodes never do."""
    _final: bool = field(default=False, init=False)
    _prepared: list[str] | None = field(default=None, init=False)
    """Names of the calls that the policy made to prepare its decisions."""
    _indices: set[int] | None = field(default=None, init=False)
    """Indices of turns that are taken; None as long as the policy gave none."""
    _first: int = field(init=False)
    """The first index of those that are numbered by `started`."""
    _times_started: dict[str, int] = field(factory=dict, init=False)
    """By agent."""
    _calls: int = field(default=0, init=False)
    _tokens: int = field(default=0, init=False)
    _counts: bool = field(init=False)
    """Whether a limit needs the sums of calls and tokens."""
    _steps: bool = field(init=False)
    """Whether the task has an environment that follows the turns."""
    _turn_finished: Callable[[str, Turn], None] | None = field(init=False)

    def __attrs_post_init__(self) -> None:
        context, limits, self._first = self.context, self.limits, self.started
        engine = context.engine
        self._counts = limits.calls is not None or limits.tokens is not None
        self._steps = not self.nested and has_steps(engine.team.task)
        self._turn_finished = None if self.nested else engine.observers.turn_finished

    def episode(self) -> Episode:
        """Return what happened, not judged yet."""
        if self.status is Status.COMPLETED:
            self.error = why_empty(self.trajectory)
            if self.error:
                self.status = Status.FAILED
        return Episode(
            self.name,
            self.context.problem,
            self.trajectory,
            tuple(self.decisions),
            self.status,
            error=self.error,
            observation=self.step.observation,
            calls=tuple(self._prepared or ()),
        )

    async def run(self, batcher: DecisionBatcher) -> None:
        """Run until the policy stops, an output is final, the task is done or a limit reached."""
        try:
            await self._decide_and_follow(batcher)
        except asyncio.CancelledError:
            # If nobody cancelled us from outside, one of these agents did.
            started = self.decisions[-1].start if self.decisions else ()
            agents = ", ".join(activation.agent for activation in started)
            self.context.engine.note_cut_off(self.name, agents)
            raise
        finally:
            if self._running is not None and self._running.tasks:
                for turn in await self._running.cancel():
                    self.trajectory = self.trajectory.append(turn)
        if self._running is not None:
            await self._running.order.close()

    async def _decide_and_follow(self, batcher: DecisionBatcher) -> None:
        context, engine, limit = self.context, self.context.engine, self.limits.turns
        while not (self._final or self.step.done):
            tasks = None if self._running is None else self._running.tasks
            turns_left = None if limit is None else limit - self.started
            if (turns_left == 0 and not tasks) or (self._counts and self._over_limit()):
                self.status = Status.LIMIT
                return
            situation = Situation(
                context.problem,
                self.trajectory,
                self.step.observation,
                tuple(tasks.values()) if tasks else (),
                turns_left,
                self.training,
            )
            if batcher.prepares and not await self._prepare(batcher, situation):
                return
            key = context.key.child("decide", len(self.decisions))
            if engine.active <= 1:  # no decision of another episode can be ready
                [decision] = batcher.ask([situation], [key])
            else:
                decision = await batcher.soon(situation, key)
            check_decision(decision, batcher.place)
            self.decisions.append(decision)
            if decision.stop:
                if decision.error:
                    self.status, self.error = Status.FAILED, decision.error
                    if not (self.nested or self.training):
                        # In training it is what trying gives; of a nested team the turn fails.
                        engine.count_failure(batcher.place, decision.error)
                return
            start = decision.start
            if not start and not tasks:
                raise RunError(
                    f"{batcher.place} neither started an agent nor stopped, with nothing running "
                    f"(episode {self.name})"
                )
            if turns_left is not None and len(start) > turns_left:
                start, self.status = start[:turns_left], Status.LIMIT
            if not tasks and len(start) == 1:
                # Alone it needs no task.
                self._append(await self._turn(start[0], self._index(start[0])))
            elif not tasks and decision.wait == "all":
                await self.start(start)
            else:
                await self._start_beside(start, decision)
            if self.status is Status.LIMIT:
                return

    async def _prepare(self, batcher: DecisionBatcher, situation: Situation) -> bool:
        """Let the policy prepare; return whether it could. If not, the episode has failed."""
        key = self.context.key.child("prepare", len(self.decisions))
        if self._prepared is None:
            self._prepared = []
        handle = ActivationCalls(self.context.engine, key, who="policy", made=self._prepared)
        try:
            await batcher.prepare(situation, handle)
        except CallError as error:
            self.status, self.error = Status.FAILED, f"{batcher.place}: {error}"
            self.context.engine.count_failure(batcher.place, str(error))
            return False
        return True

    def _over_limit(self) -> bool:
        calls, tokens = self.limits.calls, self.limits.tokens
        return (calls is not None and self._calls > calls) or (
            tokens is not None and self._tokens > tokens
        )

    async def start(self, activations: tuple[Activation, ...]) -> None:
        """Start activations and wait for all of them; their turns join in this order."""
        if len(activations) == 1:
            self._append(await self._turn(activations[0], self._index(activations[0])))
            return
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._turn(activation, self._index(activation)))
                    for activation in activations
                ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        for task in tasks:
            self._append(task.result())

    async def _start_beside(self, activations: tuple[Activation, ...], decision: Decision) -> None:
        """Start activations beside those that run; wait for the first to end, or for all."""
        if self._running is None:
            context = self.context
            order = context.engine.calls.completion_order(context.episode, context.key)
            self._running = Running(order)
        for activation in activations:
            index = self._index(activation)
            turn = self._turn(activation, index)
            self._running.start(activation, self.started, index, turn)
        each = decision.wait == "each"
        for ended in await self._running.take(len(self.decisions) - 1, each, decision.arrival):
            self._append(ended)

    def _turn(self, activation: Activation, index: int) -> Coroutine[Any, Any, Turn]:
        """Return the turn of an activation, to be awaited; it counts as started from now on."""
        nth = self._times_started.get(activation.agent, 0)
        self._times_started[activation.agent] = nth + 1
        return take_turn(
            self.context,
            activation,
            self.trajectory,
            self.step.observation,
            index,
            nth,
            len(self.decisions) - 1,
        )

    def _index(self, activation: Activation) -> int:
        """Take the index of an activation's turn, which no other turn of the episode has."""
        indices, index = self._indices, activation.index
        if index is None and indices is None:
            index = self.started
        else:
            if indices is None:
                indices = self._indices = set(range(self._first, self.started))
            if index is None:
                index = self.started
                while index in indices:
                    index += 1
            elif type(index) is not int or index < 0 or index in indices:
                raise RunError(
                    f"the policy gave an activation of {activation.agent!r} the index {index!r}; "
                    "an index is a whole number that no other turn of the episode has"
                )
            indices.add(index)
        self.started += 1
        return index

    def _append(self, turn: Turn) -> None:
        """Append a turn to the trajectory, and let limits, task and observers know it."""
        self.trajectory = self.trajectory.append(turn)
        output = turn.output
        if self._counts:
            usage = output.usage
            self._calls += usage.calls
            self._tokens += usage.input_tokens + usage.output_tokens
        if output.final:
            self._final = True
        if self._steps:
            task, key = self.context.engine.team.task, self.context.key
            place = self.context.engine.place(task, "task")
            self.step = next_step(task, self.step.state, turn, key, place)
        if self._turn_finished is not None:
            self._turn_finished(self.name, turn)
