"""Policies that do not learn by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from math import log

from attrs import Factory, frozen

from orchestrion import (
    Activation,
    Decision,
    Key,
    Member,
    OpenContext,
    Policy,
    Saved,
    Situation,
    Turn,
    choice_name,
    choices,
    is_blocked,
    parse_choice,
    replace,
)

STOP = Decision(stop=True)


class OneByOne(Policy):
    """A policy that decides on one situation at a time."""

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        raise NotImplementedError

    def decide(self, situations: Many[Situation], keys: Many[Key]) -> Many[Decision]:
        return [self.decide_one(*pair) for pair in zip(situations, keys, strict=True)]


def may_stop(stop: bool | None, roster: Many[Member]) -> bool:
    """Return `stop`; if it is None, whether no agent of the team ends episodes."""
    return stop if stop is not None else not any(member.ends for member in roster)


@frozen
class Random:
    """Any agent with any of its options, uniformly among those the task allows.

    Args:
        stop: whether ending the episode without a turn is one of the choices. By default it is one
            where no agent of the team has that as its job, like a terminator; else an episode
            would go on until a limit ends it, and could never be solved.
    """

    stop: bool | None = None

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        starts = [Decision((choice,)) for choice in choices(ctx.roster)]
        yield _RandomChoice([*starts, STOP] if may_stop(self.stop, ctx.roster) else starts)


@frozen
class _RandomChoice(OneByOne):
    decisions: list[Decision]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        allowed = [
            decision
            for decision in self.decisions
            if decision.stop or not is_blocked(decision.start[0], situation.observation)
        ]
        if not allowed:
            return STOP
        # Stated, so that what was decided can be used to judge other policies.
        return replace(allowed[int(key.uniform() * len(allowed))], logp=-log(len(allowed)))


@frozen
class Hinted:
    """The choice for which the task's hints say most, the first in the roster of several.

    Where no choice that is allowed has a hint, the episode ends. It learns nothing: what a learned
    policy is worth shows beside it.
    """

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        yield _HintedChoice(
            {choice_name(choice): Decision((choice,)) for choice in choices(ctx.roster)}
        )


@frozen
class _HintedChoice(OneByOne):
    decisions: dict[str, Decision]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        seen = situation.observation
        if seen is None:
            return STOP
        best, highest = STOP, -1.0
        for name, decision in self.decisions.items():
            hint = seen.hints.get(name)
            if hint and hint[0] > highest and not is_blocked(decision.start[0], seen):
                best, highest = decision, hint[0]
        return best


@frozen
class RoundRobin:
    """Every agent in turn, in roster order; an agent goes through its options call by call."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        yield _Rotation(
            [[Decision((choice,)) for choice in choices([member])] for member in ctx.roster]
        )


@frozen
class _Rotation(OneByOne):
    decisions: list[list[Decision]]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        lap, seat = divmod(len(situation.trajectory), len(self.decisions))
        for shift in range(len(self.decisions)):
            options = self.decisions[(seat + shift) % len(self.decisions)]
            decision = options[lap % len(options)]
            if not is_blocked(decision.start[0], situation.observation):
                return decision
        return STOP


@frozen
class Sequence:
    """A fixed list of steps, then stop. The trainer `best-sequence` finds the list.

    A step the task does not allow when its turn comes is passed over.

    Args:
        steps: "agent" or "agent:option", in order.
        repeat: start over at the end instead of stopping.
    """

    steps: list[str] = Factory(list)
    repeat: bool = False

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        yield SequenceRunner(self.steps, self.repeat, ctx)


class SequenceRunner(OneByOne):
    """Runs a list of steps that can be exchanged: `steps` is its learned state."""

    def __init__(self, steps: Many[str], repeat: bool, ctx: OpenContext) -> None:
        self._roster, self._repeat = ctx.roster, repeat
        self.set_steps([parse_choice(step, ctx.roster, ctx.path) for step in steps])

    def set_steps(self, steps: Many[Activation]) -> None:
        """Run these steps from now on."""
        self.steps = tuple(steps)
        self._decisions = [Decision((step,)) for step in self.steps]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        place = self._place(situation.trajectory.turns)
        for at in range(place, place + len(self._decisions)):
            decision = self._at(at)
            if decision is None:
                return STOP
            if not is_blocked(decision.start[0], situation.observation):
                return decision
        return STOP

    def _place(self, turns: Many[Turn]) -> int:
        """Return the place after these turns; steps that were passed over left none."""
        place = 0
        for turn in turns:
            step = Decision((Activation(turn.agent, turn.option),))
            ahead = range(place, place + len(self._decisions))
            # A turn that is no step ahead stands for the next one.
            place = next((at for at in ahead if self._at(at) == step), place) + 1
        return place

    def _at(self, place: int) -> Decision | None:
        if self._repeat:
            return self._decisions[place % len(self._decisions)]
        return self._decisions[place] if place < len(self._decisions) else None

    @property
    def longest(self) -> int | None:
        """Return the number of steps; None if they repeat."""
        return None if self._repeat and self.steps else len(self.steps)

    def save(self) -> Saved:
        return Saved(data={"steps": [choice_name(step) for step in self.steps]})

    def load(self, saved: Saved) -> None:
        self.set_steps([parse_choice(step, self._roster) for step in saved.data["steps"]])
