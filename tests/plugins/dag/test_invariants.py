"""What holds in every graph, on random ones with random latencies, failures and conditions.

ORCHESTRION_DAG_CASES=10000 pytest tests/plugins/dag/test_invariants.py   # the full number
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from math import inf, isclose
from random import Random

import pytest
from attrs import define
from orchestrion_dag import Edge, node_states, policy_of

from orchestrion import Activation, Episode, Member, Output, Situation, Trajectory, Turn, replace
from orchestrion import Key as Key
from orchestrion._engine.calls import CallPath
from orchestrion._engine.replaying import ReplayPath
from tests.plugins.dag.support import PROBLEM, Case, MemoryJournal, Timed, random_case

CASES = int(os.environ.get("ORCHESTRION_DAG_CASES", "150"))
CHUNKS = [range(start, min(start + 50, CASES)) for start in range(0, CASES, 50)]
chunks = pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds.start}")


# ------------------------------------------------------------------------------ an oracle


@define
class Expected:
    """What should become of a node, worked out from the table without running anything."""

    status: str
    start: float = inf
    end: float = inf
    reads: tuple[str, ...] = ()
    broken: bool = False
    ends_graph: bool = False
    x: float = -1.0


def oracle(case: Case) -> dict[str, Expected]:
    """Nodes in order, each from what is before it."""
    found: dict[str, Expected] = {}
    for name in sorted(case.wiring.nodes, key=lambda name: int(name[1:])):
        arrived = [
            (*verdict(case, found[edge.source], edge), edge.source)
            for edge in case.wiring.edges
            if edge.target == name
        ]
        found[name] = joined(case, name, arrived, found)
    return found


def verdict(case: Case, source: Expected, edge: Edge) -> tuple[float, str]:
    """When an edge is decided, and how: taken, not, or broken."""
    node = case.wiring.nodes[edge.source]
    siblings = [one for one in case.wiring.edges if one.source == edge.source]
    handled = any(one.on != "success" for one in siblings)
    if source.status == "skipped":
        return source.end, "broken" if source.broken else "not"
    if source.status == "failed" and (not handled or edge.on == "success"):
        return source.end, "broken" if node.on_error == "skip" and not handled else "not"
    if source.status == "succeeded" and edge.on == "failure":
        return source.end, "not"

    def holds(one: Edge) -> bool:
        fits = one.on != ("success" if source.status == "failed" else "failure")
        return fits and one.when != "" and source.x > float(one.when.split(">")[1])

    if edge.otherwise:
        return source.end, "not" if any(map(holds, siblings)) else "taken"
    return source.end, "taken" if not edge.when or holds(edge) else "not"


def joined(
    case: Case,
    name: str,
    arrived: list[tuple[float, str, str]],
    found: Mapping[str, Expected],
) -> Expected:
    node = case.wiring.nodes[name]
    taken = sorted((when, source) for when, what, source in arrived if what == "taken")
    everything = max((when for when, _, _ in arrived), default=0.0)
    broken = any(what == "broken" for _, what, _ in arrived)
    start = everything
    if node.join in ("any", "k_of_n"):
        need = 1 if node.join == "any" else node.k
        if len(taken) < need and arrived:
            return Expected("skipped", end=everything, broken=broken)
        if arrived:
            start, taken = taken[need - 1][0], taken[:need]
    elif arrived and node.join == "all" and (not taken or broken):
        return Expected("skipped", end=everything, broken=broken)
    reads = tuple(sorted(read for _, source in taken for read in passed_on(found[source], source)))
    return tried(case, name, start, tuple(sorted(set(reads))))


def passed_on(source: Expected, name: str) -> tuple[str, ...]:
    """What is read through an edge: whoever takes care of a failure reads what was read there."""
    return (name,) if source.status == "succeeded" else source.reads


def tried(case: Case, name: str, start: float, reads: tuple[str, ...]) -> Expected:
    node = case.wiring.nodes[name]
    count = node.retries + 1 + bool(node.fallback)
    end = start
    for one in case.tries[name][:count]:
        end += one.seconds
        if not one.fails:
            return Expected("succeeded", start, end, reads, x=one.x)
    handled = any(e.source == name and e.on != "success" for e in case.wiring.edges)
    return Expected("failed", start, end, reads, ends_graph=node.on_error == "fail" and not handled)


def end_of(case: Case, expected: Mapping[str, Expected]) -> float:
    """The critical path: the last output, unless a failure ends it before."""
    done = max(expected[name].end for name in case.wiring.outputs)
    return min([done, *(one.end for one in expected.values() if one.ends_graph)])


# ------------------------------------------------------------------------------ the invariants


@chunks
def test_states_times_and_reads_are_those_of_an_oracle(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        expected = oracle(case)
        episode, seconds, agents = case.play()
        end = end_of(case, expected)
        # With enough workers the whole takes as long as the critical path.
        assert isclose(seconds, end, abs_tol=1e-6), seed
        states = node_states(case.graph, episode.trajectory, PROBLEM)
        terminal = {"succeeded", "failed", "skipped", "cancelled"}
        assert {state.status for state in states.values()} <= terminal, seed
        reached = any(states[name].status == "succeeded" for name in case.wiring.outputs)
        assert (episode.status == "completed") <= reached, seed
        for name, node in expected.items():
            agent = agents[name]
            assert isinstance(agent, Timed)
            if node.end < end - 1e-6:
                assert states[name].status == node.status, (seed, name)
            began = node.start < end - 1e-6
            # A node starts when its join is satisfied, not before and not after; else never.
            assert bool(agent.began) == began, (seed, name)
            if began:
                assert isclose(agent.began[0], node.start, abs_tol=1e-6), (seed, name)
                assert reads_of(case, episode, name) == node.reads, (seed, name)
            # It runs once a try, and again only after a failure.
            tries = [turn for turn in episode.turns if turn.agent == name]
            assert len(tries) <= case.wiring.nodes[name].retries + 1, (seed, name)
            assert all(turn.status == "failed" for turn in tries[:-1]), (seed, name)
            assert sum(turn.agent == f"s{name[1:]}" for turn in episode.turns) <= 1


def reads_of(case: Case, episode: Episode, name: str) -> tuple[str, ...]:
    by_index = {turn.index: f"n{turn.agent[1:]}" for turn in episode.turns}
    first = next(turn for turn in episode.turns if turn.agent == name)
    # A cancelled turn has no record of what it read; the table says when it began.
    if first.status == "cancelled":
        return oracle(case)[name].reads
    return tuple(sorted(by_index[index] for index in first.reads or ()))


def timeless(episode: Episode) -> list[Turn]:
    """The turns, without the number of the decision behind each, which counts arrivals."""
    return [replace(turn, decision=0) for turn in episode.turns]


@chunks
def test_a_replay_is_equal_whatever_the_timing(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        journal = MemoryJournal()
        first, _, _ = case.play(CallPath(journal=journal))
        again, _, _ = case.slower(seed + 7).play(ReplayPath(journal))
        assert first == again, seed
        if not case.races:
            assert len(journal.rows) <= 1, "an episode has one row if nothing hangs on arrival"


@chunks
def test_neither_timing_nor_an_interruption_changes_the_result_where_joins_allow_it(
    seeds: range,
) -> None:
    for seed in seeds:
        case = random_case(seed, races=False)
        if case.may_stop_early:
            continue
        whole, _, _ = case.play()
        other, _, _ = case.slower(seed + 1).play()
        assert timeless(whole) == timeless(other), seed
        assert whole.status == other.status
        arrived = list(reversed(list(whole.trajectory.backward())))
        for cut in {0, len(arrived) // 3, len(arrived) // 2, len(arrived) - 1}:
            end = go_on(case, Trajectory(arrived[:cut]), Random(seed))
            assert {turn.index: timeless_turn(turn) for turn in end} == {
                turn.index: timeless_turn(turn) for turn in whole.turns
            }, (seed, cut)


def timeless_turn(turn: Turn) -> tuple[object, ...]:
    return (turn.agent, turn.status, turn.output, turn.reads)


def go_on(case: Case, trajectory: Trajectory, random: Random) -> tuple[Turn, ...]:
    """Drive a fresh policy by hand from a trajectory on; turns finish in random order."""
    policy = policy_of(case.graph, [Member(name) for name in case.agents()])
    running: list[Activation] = []
    tries: Counter[str] = Counter(turn.agent for turn in trajectory)
    by_index = {turn.index: turn for turn in trajectory}
    while True:
        situation = Situation(PROBLEM, trajectory, running=tuple(running))
        [decision] = policy.decide([situation], [Key(0)])
        if decision.stop:
            return trajectory.turns
        running += decision.start
        one = running.pop(random.randrange(len(running)))
        name = f"n{one.agent[1:]}"
        offset = case.wiring.nodes[name].retries + 1 if one.agent[0] == "s" else 0
        does = case.tries[name][offset + tries[one.agent]]
        tries[one.agent] += 1
        assert one.index is not None
        if does.fails:
            error = "RuntimeError: it broke"
            turn = Turn(one.index, one.agent, status="failed", error=error, reads=one.reads)
        else:
            read = ",".join(by_index[i].output.content for i in one.reads or ())
            output = Output(f"{one.agent}({read})", {"x": does.x})
            turn = Turn(one.index, one.agent, output=output, reads=one.reads)
        by_index[turn.index] = turn
        trajectory = trajectory.append(turn)
