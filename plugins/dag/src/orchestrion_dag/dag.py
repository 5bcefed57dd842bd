"""The policy `dag`: starts each node of a graph as soon as it may start.

There is no scheduler here. The engine asks after each finished turn (`wait: each`), and the policy
returns everything that became ready. The state of an episode is a function of its trajectory; a
machine for each running episode is a cache of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
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
from orchestrion_dag.machine import Machine, NodeState
from orchestrion_dag.order import is_sequence
from orchestrion_dag.plan import GraphPlan, plan_of
from orchestrion_dag.validation import validate

MAX_EPISODES = 16_384
"""Number of episodes whose machines are kept."""


@frozen
class Dag(Graph):
    """Runs a graph of agents: each node once, as soon as its join allows.

    An episode ends when every output is decided; nodes that still run then are cancelled. It has
    failed if no output was reached, or if a node failed and nothing handles that failure.
    """

    def __attrs_post_init__(self) -> None:
        validate(self)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        """Yield the policy; raise UsageError if the graph names agents that are not in the team."""
        try:
            yield policy_of(self, ctx.roster)
        except ValueError as error:
            raise UsageError(f"{ctx.path}: {error}") from None


def policy_of(graph: Graph | Wiring, roster: Sequence[Member]) -> DagPolicy:
    """Return the policy that runs a graph with this team; fast, for searches over graphs.

    Raises:
        ValueError: the graph is invalid, or names agents that are not in the team.
    """
    wiring = validate(graph, roster)
    choices_by_name = {choice_name(choice): choice for choice in choices(roster)}
    plan = plan_of(wiring, choices_by_name)
    return (SequentialPolicy if is_sequence(wiring) else DagPolicy)(plan)


def node_states(
    graph: Graph | Wiring, trajectory: Trajectory, problem: Problem | None = None
) -> dict[str, NodeState]:
    """Return the state of every node in an episode, those in bodies as "loop[2]/review".

    Args:
        graph: what the episode ran.
        trajectory: of the episode. Turns of a stored episode stand in order of activation, while
            `any` and `k_of_n` depend on the order of arrival.
        problem: public part, for conditions that use it.
    """
    wiring = validate(graph)
    plan = plan_of(wiring, _AnyTeam())
    machine = Machine(plan, problem or Problem(""), None)
    for turn in reversed(list(trajectory.backward())):
        machine.arrive(turn)
    return dict(machine.top.states("", machine.over))


class _AnyTeam(dict[str, Activation]):
    """Choices by name, of a team that has every agent."""

    def __missing__(self, name: str) -> Activation:
        agent, _, option = name.partition(":")
        return Activation(agent, option or None)


class DagPolicy(Policy):
    """Runs a plan in any number of episodes at once."""

    portable = True

    def __init__(self, plan: GraphPlan) -> None:
        self.plan = plan
        # By the identity of the trajectory that it was fed, which is kept alive with it.
        self._machines: dict[int, tuple[Trajectory, Machine]] = {}
        # What was observed at each trajectory, for conditions on observations.
        self._observed: dict[int, tuple[Trajectory, Observation | None]] = {}

    def __reduce__(self) -> tuple[type[DagPolicy], tuple[GraphPlan]]:
        return DagPolicy, (self.plan,)  # what it keeps of episodes is theirs alone

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return in each situation all activations that may start."""
        return [self._decide(situation) for situation in situations]

    @property
    def longest(self) -> int:
        """Return the most turns of an episode, with all retries and repetitions."""
        return self.plan.size

    def _decide(self, situation: Situation) -> Decision:
        machine = self._machine(situation)
        start = _ready(machine, situation)
        if machine.over:
            del machine.top  # its scopes refer to it: else only the garbage collector frees them
            return Decision(stop=True, error=machine.error)
        if not start and not situation.running:
            return Decision(stop=True, error="a turn was cancelled, and nothing else can start")
        trajectory = situation.trajectory
        self._machines[id(trajectory)] = (trajectory, machine)
        _forget(self._machines)
        return Decision(start, wait="each", arrival=self.plan.races)

    def _machine(self, situation: Situation) -> Machine:
        """Return the machine of the longest known part of the trajectory, fed with the rest."""
        missing: list[Trajectory] = []
        machine: Machine | None = None
        place: Trajectory | None = situation.trajectory
        if self.plan.observes:
            self._observed[id(place)] = (situation.trajectory, situation.observation)
            _forget(self._observed)
        while place is not None:
            entry = self._machines.get(id(place))
            # Several problems may share the empty trajectory.
            if entry and entry[0] is place and entry[1].problem is situation.problem:
                del self._machines[id(place)]
                machine = entry[1]
                break
            missing.append(place)
            place = place.before
        if machine is None:
            observed = self._seen_at(missing[-1], situation)
            machine = Machine(self.plan, situation.problem, observed)
        for place in reversed(missing):
            if place.last is not None:
                machine.observation = self._seen_at(place, situation)
                machine.arrive(place.last)
        return machine

    def _seen_at(self, place: Trajectory, situation: Situation) -> Observation | None:
        """Return what was observed then, or what is observed now if that is unknown."""
        entry = self._observed.get(id(place))
        return entry[1] if entry and entry[0] is place else situation.observation


def _forget(entries: dict[int, Any]) -> None:
    """Drop the oldest entry of a full cache."""
    if len(entries) > MAX_EPISODES:
        del entries[next(iter(entries))]


def _ready(machine: Machine, situation: Situation) -> tuple[Activation, ...]:
    """Return the activations that may start and do not run yet, in the order of the graph."""
    active, running, observation = machine.active, situation.running, situation.observation
    if len(running) + len(machine.fresh) != len(active):
        # The episode was interrupted: lost activations start again.
        indices = {activation.index for activation in running}
        machine.fresh = [
            index
            for index, entry in active.items()
            if index not in indices and not entry.scope.over
        ]
    if observation is not None and observation.blocked:
        _skip_blocked(machine, observation)
    fresh = sorted(index for index in machine.fresh if index in active)
    machine.fresh = []
    return tuple(active[index].activation for index in fresh)


def _skip_blocked(machine: Machine, observation: Observation) -> None:
    # The nodes after a skipped one may be blocked as well.
    seen: set[int] = set()
    while more := [i for i in machine.fresh if i in machine.active and i not in seen]:
        seen.add(more[0])
        if is_blocked(machine.active[more[0]].activation, observation):
            machine.skip(more[0])


# ------------------------------------------------------------------------------------ sequences


class SequentialPolicy(DagPolicy):
    """Runs a graph in which at most one node runs at a time; it gives probabilities, too."""

    def __init__(self, plan: GraphPlan) -> None:
        super().__init__(plan)
        tries = dict.fromkeys(attempt for step in plan.steps for attempt in step.tries)
        self.choices: tuple[Activation | None, ...] = (*(Activation(*pair) for pair in tries), None)
        """What it may start; None means to stop."""

    def probabilities(self, situations: Sequence[Situation]) -> list[list[float]]:
        """Return n x choices: 1 for what it does in a situation, 0 for the rest."""
        rows = []
        for situation in situations:
            decision = self._decide(situation)
            first = decision.start[0] if decision.start else None
            place = self.choices.index(first and Activation(first.agent, first.option))
            rows.append([float(i == place) for i in range(len(self.choices))])
        return rows
