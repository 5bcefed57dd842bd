"""The policy `dag`: starts what a graph says as soon as it may start.

There is no scheduler here. The engine asks after each finished turn (`wait: each`), and the
policy answers with everything that became ready. What it knows of an episode it can always work
out again from the trajectory; a machine for each episode under way only saves it from doing so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from attrs import frozen

from orchestrion import (
    Activation,
    Decision,
    Key,
    Member,
    Observation,
    OpenContext,
    Policy,
    Problem,
    Situation,
    Trajectory,
    UsageError,
    choice_name,
    choices,
    is_blocked,
)
from orchestrion_dag.graph import Graph, Wiring
from orchestrion_dag.machine import Machine
from orchestrion_dag.order import is_sequence
from orchestrion_dag.plan import Plan, plan_of
from orchestrion_dag.scope import NodeState
from orchestrion_dag.validation import check_roster, validate

__all__ = ["Dag", "DagPolicy", "node_states", "policy_of"]

_MOST_EPISODES = 16_384


@frozen
class Dag(Graph):
    """Runs a graph of agents: each node as soon as what it needs is there, nothing twice.

    An episode ends when every output is decided; what still runs then is cancelled. It has failed
    if no output was reached, or a node failed that nothing takes care of.
    """

    def __attrs_post_init__(self) -> None:
        validate(self)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Check the agents against the team."""
        try:
            yield policy_of(self, ctx.roster)
        except ValueError as error:
            raise UsageError(f"{ctx.path}: {error}") from None


def policy_of(graph: Graph | Wiring, roster: Sequence[Member]) -> DagPolicy:
    """The policy that runs a graph with this team; for searches that make many of them.

    Raises:
        ValueError: something is wrong with the graph, or it names agents that are not there.
    """
    wiring = validate(graph)
    problems = list(check_roster(wiring, roster))
    if problems:
        raise ValueError("; ".join(problems))
    known = {choice_name(choice): choice for choice in choices(roster)}
    plan = plan_of(wiring, known)
    return (SequentialPolicy if is_sequence(wiring) else DagPolicy)(plan)


def node_states(
    graph: Graph | Wiring, trajectory: Trajectory, problem: Problem | None = None
) -> dict[str, NodeState]:
    """How it went with every node in an episode; inside bodies "loop[2]/review".

    Args:
        graph: what the episode ran.
        trajectory: of the episode. Turns of a stored episode stand in the order of activation,
            not of arrival, by which `any` and `k_of_n` go.
        problem: public part, for conditions that look at it.
    """
    wiring = validate(graph)
    names = _agents(plan := plan_of(wiring, _Anything()))
    machine = Machine(plan, problem or Problem(""), None)
    for turn in reversed(list(trajectory.backward())):
        if turn.agent in names:
            machine.arrive(turn)
    return dict(machine.states())


class _Anything(dict[str, Activation]):
    """Choices by name without a team."""

    def __missing__(self, name: str) -> Activation:
        agent, _, option = name.partition(":")
        return Activation(agent, option or None)


def _agents(plan: Plan) -> set[str]:
    found: set[str] = set()
    for step in plan.steps:
        found.update(agent for agent, _ in step.tries)
        if step.body is not None:
            found |= _agents(step.body)
    return found


def routed(plan: Plan, sure: bool) -> list[Collection[str]]:
    """The turns that a graph can have.

    Args:
        plan: of the graph.
        sure: whether the graph runs for certain.
    """
    simple = all(step.simple and step.join == "all" for step in plan.steps)
    sure = sure and simple and not any(one.test or one.otherwise for one in plan.first)
    found: list[Collection[str]] = []
    for step in plan.steps:
        if step.body is not None:
            for n in range(step.times):
                found += routed(step.body, sure and (n == 0 or step.until is None))
        for n, (agent, _) in enumerate(step.tries):
            found.append((agent,) if sure and n == 0 else (agent, ""))
    return found


class DagPolicy(Policy):
    """Runs a plan in any number of episodes at once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        # By the identity of the trajectory that it has been fed; that is kept alive with it.
        self._machines: dict[int, tuple[Trajectory, Machine]] = {}
        # What was seen at each trajectory, for graphs with conditions on that.
        self._observed: dict[int, tuple[Trajectory, Observation | None]] = {}

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Everything that may start in each."""
        return [self._one(situation) for situation in situations]

    def route(self, turns: int | None) -> Sequence[Collection[str]] | None:
        """Every try of every node; one that a condition or a failure decides on may be left out."""
        return routed(self.plan, True)

    def _one(self, situation: Situation) -> Decision:
        machine = self._machine(situation)
        start = _ready(machine, situation)
        if machine.over:
            return Decision(stop=True, error=machine.error)
        if not start and not situation.running:
            return Decision(stop=True, error="the graph was cut off: a turn was cancelled")
        trajectory = situation.trajectory
        self._machines[id(trajectory)] = (trajectory, machine)
        _forget(self._machines)
        return Decision(start, wait="each", arrival=self.plan.races)

    def _machine(self, situation: Situation) -> Machine:
        """The machine that was fed this trajectory, or can be fed the rest of it."""
        before = situation.trajectory.before
        known = self._machines.get(id(before))
        if known and known[0] is before and known[1].problem is situation.problem:
            # One more turn than when it was asked last, as nearly always.
            del self._machines[id(before)]
            machine = known[1]
            machine.observation = situation.observation
            assert situation.trajectory.last is not None
            machine.arrive(situation.trajectory.last)
            if self.plan.observes:
                self._note(situation)
            return machine
        return self._caught_up(situation)

    def _note(self, situation: Situation) -> None:
        self._observed[id(situation.trajectory)] = (situation.trajectory, situation.observation)
        _forget(self._observed)

    def _caught_up(self, situation: Situation) -> Machine:
        """The machine of the longest part of the trajectory that is known, fed the rest."""
        missing: list[Trajectory] = []
        machine: Machine | None = None
        place: Trajectory | None = situation.trajectory
        if self.plan.observes:
            self._note(situation)
        while place is not None:
            known = self._machines.get(id(place))
            # An empty trajectory may be that of several problems.
            if known and known[0] is place and known[1].problem is situation.problem:
                del self._machines[id(place)]
                machine = known[1]
                break
            missing.append(place)
            place = place.before
        if machine is None:
            begun = self._seen_at(missing[-1], situation)
            machine = Machine(self.plan, situation.problem, begun)
        for place in reversed(missing):
            if place.last is not None:
                machine.observation = self._seen_at(place, situation)
                machine.arrive(place.last)
        return machine

    def _seen_at(self, place: Trajectory, situation: Situation) -> Observation | None:
        """What was observed then, as far as this policy was asked then."""
        known = self._observed.get(id(place))
        return known[1] if known and known[0] is place else situation.observation


def _forget(known: dict[int, Any]) -> None:
    """Keep what is newest."""
    if len(known) > _MOST_EPISODES:
        del known[next(iter(known))]


def _ready(machine: Machine, situation: Situation) -> tuple[Activation, ...]:
    """What may start and does not run yet, in the order of the graph."""
    active, fresh, running = machine.active, machine.fresh, situation.running
    if len(running) + len(fresh) != len(active):
        # The episode was cut somewhere: what was lost starts again.
        there = {one.index for one in running}
        machine.fresh = fresh = [
            index for index in active if index not in there and not active[index][0].over
        ]
    observation = situation.observation
    if observation is not None and observation.blocked:
        _pass_over_blocked(machine, situation)
        fresh = [index for index in machine.fresh if index in active]
    machine.fresh = []
    if len(fresh) == 1:
        return (active[fresh[0]][3],)
    return tuple(active[index][3] for index in sorted(fresh))


def _pass_over_blocked(machine: Machine, situation: Situation) -> None:
    # What follows from passing over a node may be blocked as well.
    seen: set[int] = set()
    while more := [one for one in machine.fresh if one in machine.active and one not in seen]:
        seen.add(more[0])
        if is_blocked(machine.active[more[0]][3], situation.observation):
            machine.pass_over(more[0])


# ------------------------------------------------------------------------------------ sequences


class SequentialPolicy(DagPolicy):
    """A graph in which only one thing is ever done at a time says its probabilities, too."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        tries = dict.fromkeys(one for step in plan.steps for one in step.tries)
        self.choices: tuple[tuple[str, str | None] | None, ...] = (*tries, None)
        """What it may do; None is stopping."""

    def probabilities(self, situations: Sequence[Situation]) -> list[list[float]]:
        """1 for what it does in each situation, 0 for the rest [n, choices]."""
        rows = []
        for situation in situations:
            decision = self._one(situation)
            one = decision.start[0] if decision.start else None
            place = self.choices.index(None if one is None else (one.agent, one.option))
            rows.append([float(i == place) for i in range(len(self.choices))])
        return rows
