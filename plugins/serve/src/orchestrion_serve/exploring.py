"""Watch what a policy decides, with which probability, and explore now and then.

In a situation with allowed choices A of which the policy p would take one, the served choice is

    with probability e: uniform over A, else what p takes,
    so its propensity is (1 - e) p(a) + e / |A|

drawn by the key of the decision. p(a) is what the policy states (`probabilities`); of a policy that
states none it is 1 for what it took and 0 for the rest: the propensity given its own draw, which is
exact too, and all that estimates need. Before the first turn, stopping is not explored.

Exploring costs what the explored answers were worse. The estimate, by the feedback so far:

    cost = n max(0, M - S / (k + 1))

n: requests with an explored choice that differs from the policy's own; S, k: sum and number of
their scores; M: mean score of the other requests, 1 before the first. One score of 0 is added to
the explored ones: before feedback comes, every explored answer counts as lost, so that a burst is
bounded too. Feedback that never comes counts as neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

from attrs import Factory, define, field, frozen

from orchestrion import (
    Activation,
    Calls,
    Decision,
    Key,
    Member,
    Policy,
    Situation,
    Trajectory,
    choice_name,
    choices,
    is_blocked,
)

STOP = "stop"


@define
class Exploration:
    """How much is explored, and what it has cost.

    Args:
        share: e, of decisions; 0 explores nothing.
        budget: the cost, in sums of scores, beyond which nothing is explored; None for no limit.
    """

    share: float = 0.0
    budget: float | None = None
    requests: int = 0
    """Number of requests with an explored choice."""
    explored: list[float] = Factory(lambda: [0.0, 0])
    """Sum and number of the scores of those requests."""
    others: list[float] = Factory(lambda: [0.0, 0])
    """Sum and number of the scores of all other requests."""

    def now(self) -> float:
        """Return the share that is explored now."""
        within = self.budget is None or self.cost < self.budget
        return self.share if within else 0.0

    @property
    def cost(self) -> float:
        """Return the estimated cost so far."""
        mean = self.others[0] / self.others[1] if self.others[1] else 1.0
        return self.requests * max(0.0, mean - self.explored[0] / (self.explored[1] + 1))

    def scored(self, explored: bool, score: float, before: float | None) -> None:
        """Take a score into account, in place of an earlier one of the same request."""
        sums = self.explored if explored else self.others
        sums[0] += score - (before or 0.0)
        sums[1] += before is None


@frozen
class ServedDecision:
    """A decision as it was served.

    Args:
        situation: what the policy saw.
        choice: "agent", "agent:option" or "stop".
        allowed: what could have been chosen.
        propensity: the probability of the choice; None if it is not known.
        explored: whether it differs from what the policy would have done.
    """

    situation: Situation
    choice: str
    allowed: tuple[str, ...]
    propensity: float | None
    explored: bool


@define(eq=False)
class Trace:
    """The decisions of an episode, as they are taken."""

    key: Key
    text: str
    seen: list[ServedDecision] = field(factory=list)
    several: bool = False
    """Whether some decision did not choose exactly one agent; then no decision is logged."""
    trajectory: Trajectory = field(factory=Trajectory)
    """The turns before the last decision."""
    decided: int = 0

    @property
    def next(self) -> tuple[bytes, str]:
        """Return what tells the next decision from those of other episodes."""
        return self.key.child("decide", self.decided).digest, self.text


class Watched(Policy):
    """An opened policy whose decisions are traced, and explored beside."""

    def __init__(self, policy: Policy, roster: Sequence[Member], exploration: Exploration) -> None:
        self.policy, self.exploration = policy, exploration
        own: Any = getattr(policy, "choices", None)
        stated: Any = getattr(policy, "probabilities", None)
        known = isinstance(own, tuple) and all(c is None or type(c) is Activation for c in own)
        self._stated = stated if known and callable(stated) else None
        self._starts: Mapping[str, Decision] = {
            STOP if choice is None else choice_name(choice): (
                Decision(stop=True) if choice is None else Decision((choice,))
            )
            for choice in (own if known else (*choices(roster), None))
        }
        self._places = {name: place for place, name in enumerate(self._starts)}
        self._traces: dict[tuple[bytes, str], list[Trace]] = {}

    @property
    def prepares(self) -> bool:
        """Return whether the policy has to prepare its decisions."""
        return bool(getattr(self.policy, "prepares", False))

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        """Let the policy prepare its decision."""
        await self.policy.prepare(situation, calls)

    def follow(self, key: Key, text: str) -> Trace:
        """Return the trace of the episode with this key and problem, which is about to begin."""
        trace = Trace(key, text)
        self._traces.setdefault(trace.next, []).append(trace)
        return trace

    def forget(self, trace: Trace) -> None:
        """Stop following an episode, which has ended."""
        waiting = self._traces.get(trace.next, [])
        if trace in waiting:
            waiting.remove(trace)
        if not waiting:
            self._traces.pop(trace.next, None)

    def _take_trace(self, name: tuple[bytes, str]) -> Trace | None:
        """Remove and return a trace that waits for this decision; all such traces are equal."""
        waiting = self._traces.pop(name, [])
        trace = waiting.pop(0) if waiting else None
        if waiting:
            self._traces[name] = waiting
        return trace

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return what the policy decides, or another choice where one is explored."""
        decisions = list(self.policy.decide(situations, keys))
        rows = self._stated(situations) if self._stated is not None else [None] * len(decisions)
        share = self.exploration.now()
        for i, (situation, key) in enumerate(zip(situations, keys, strict=True)):
            trace = self._take_trace((key.digest, situation.problem.text))
            if trace is None:
                continue
            decisions[i], seen = self._explored(situation, key, decisions[i], rows[i], share)
            trace.trajectory, trace.decided = situation.trajectory, trace.decided + 1
            if seen is None:
                trace.several = True
            else:
                trace.seen.append(seen)
            self._traces.setdefault(trace.next, []).append(trace)
        return decisions

    def _explored(
        self, situation: Situation, key: Key, decision: Decision, row: Any, share: float
    ) -> tuple[Decision, ServedDecision | None]:
        """Return the decision that is served, and how; None if it is no choice of one agent."""
        name = STOP if decision.stop else choice_name(decision.start[0]) if decision.start else ""
        if len(decision.start) > 1 or situation.running or name not in self._starts:
            return decision, None
        allowed = [n for n, start in self._starts.items() if _is_open(start, situation)]
        free = [n for n in allowed if n != STOP or len(situation.trajectory)]
        if not free or decision.error:
            share = 0.0
        chosen = name
        if share:
            coin, which = key.child("explore").uniforms(2)
            chosen = free[int(which * len(free))] if coin < share else name
        chance: float | None = float(chosen == name)
        if row is not None and decision.logp != 0.0:
            chance = float(row[self._places[chosen]])
        elif not share and self._stated is None and decision.logp != 0.0:
            # What a policy takes that states nothing may have been drawn.
            chance = exp(decision.logp) if decision.logp is not None else None
        if chance is not None:
            chance = (1 - share) * chance + (share / len(free) if chosen in free else 0.0)
        served = decision if chosen == name else self._starts[chosen]
        could = tuple(free if name in free else [*free, name])
        return served, ServedDecision(situation, chosen, could, chance or None, chosen != name)


def _is_open(start: Decision, situation: Situation) -> bool:
    return start.stop or not is_blocked(start.start[0], situation.observation)
