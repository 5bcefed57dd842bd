"""Committee: costs and accuracies by hand, the published fronts, and building one in the engine."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_evolution import Value, hypervolume
from orchestrion_orchestration_bench import committee_exact as exact
from orchestrion_orchestration_bench.agents import BenchAgent, CommitteeAgent, options_for
from orchestrion_orchestration_bench.committee import Committee, Slot, Voter, readers
from orchestrion_orchestration_bench.process import evaluate, optimum, uniform

from orchestrion import Activation, Agent, Key, Output, Status, Turn, UsageError
from tests.contrib_tasks.orchestration_bench.support import call, run

TASK = Committee()
Placed = tuple[tuple[str, int], ...]


def members(*placed: tuple[str, int]) -> tuple[Slot, ...]:
    return tuple(Slot(*one) for one in placed)


def test_options_name_the_slots_that_read_the_new_one() -> None:
    assert options_for(3) == ("output", "1", "2", "1+2")
    assert [readers(one) for one in options_for(3)] == [0, 1, 2, 3]
    assert CommitteeAgent(slots=3).options == options_for(3)


@pytest.mark.parametrize(
    ("placed", "cost", "accuracy"),
    [
        ([("vote", 0)], 0.25, 0.5),
        ([("generalist", 0)], 0.8, 0.72),
        ([("large", 0)], 5.0, 0.82),
        ([("coder", 0), ("reasoner", 1), ("generalist", 1)], 3.0, 0.7968),
        ([("generalist", 0), ("generalist", 1), ("generalist", 1)], 2.6, 0.7512),
    ],
)
def test_costs_and_accuracies(placed: list[tuple[str, int]], cost: float, accuracy: float) -> None:
    slots = members(*placed)
    assert TASK.rules.cost(slots) == pytest.approx(cost)
    assert TASK.rules.accuracy(slots) == pytest.approx(accuracy, abs=5e-5)


def test_three_equal_votes_without_correlation_are_right_by_the_binomial() -> None:
    task = Committee(members={"one": Voter((0.7,), own=1.0), "vote": Voter()})
    slots = members(("vote", 0), ("one", 1), ("one", 1), ("one", 1))
    assert task.rules.accuracy(slots) == pytest.approx(0.7**3 + 3 * 0.7**2 * 0.3)
    copied = evolve(task, members={"one": Voter((0.7,), rho=1.0, own=1.0), "vote": Voter()})
    assert copied.rules.accuracy(slots) == pytest.approx(0.7)


def test_a_silent_vote_is_half_right() -> None:
    task = Committee(members={"one": Voter((0.7,), own=1.0), "vote": Voter()})
    pair = members(("vote", 0), ("one", 1), ("one", 1))
    assert task.rules.accuracy(pair) == pytest.approx(0.7**2 + 0.5 * 2 * 0.7 * 0.3)
    assert task.rules.accuracy(()) == 0.0


names = st.sampled_from(list(TASK.members))


@st.composite
def built(draw: st.DrawFn) -> tuple[Slot, ...]:
    slots = [Slot(draw(names))]
    for place in range(1, draw(st.integers(1, 4))):
        slots.append(Slot(draw(names), draw(st.integers(1, 2**place - 1))))
    return tuple(slots)


@settings(max_examples=50)
@given(built())
def test_many_at_once_are_as_accurate_as_one_by_one(slots: tuple[Slot, ...]) -> None:
    types = np.array([[TASK.rules.names.index(slot.type) for slot in slots]])
    reading = np.array([[slot.readers for slot in slots]])
    assert exact.accuracies(TASK, types, reading)[0] == pytest.approx(
        TASK.rules.accuracy(slots), abs=1e-12
    )


# ---------------------------------------------------------------------- fronts

FOUR = [
    (0.25, 0.5),
    (0.8, 0.72),
    (2.6, 0.7512),
    (2.8, 0.769),
    (3.0, 0.7968),
    (4.1, 0.802),
    (5.0, 0.82),
    (7.0, 0.8397),
    (7.2, 0.8454),
    (7.9, 0.8565),
    (8.1, 0.8625),
    (11.0, 0.8789),
    (15.55, 0.8935),
]
FIVE = [
    *FOUR[:6],
    (4.8, 0.812),
    (5.0, 0.8259),
    (5.2, 0.8438),
    *FOUR[8:11],
    (9.0, 0.8631),
    (9.1, 0.8658),
    (9.2, 0.8735),
    (11.0, 0.8789),
    (12.9, 0.8831),
    (13.0, 0.8873),
    (13.2, 0.9014),
    (17.2, 0.9143),
    (21.2, 0.9208),
]


def points(front: tuple[exact.FrontPoint, ...]) -> np.ndarray:
    return np.array([(point.cost, point.accuracy) for point in front])


def area(front: tuple[exact.FrontPoint, ...]) -> float:
    return hypervolume([Value(p.accuracy, p.cost) for p in front], quality=0.5, cost=12.0)


def test_the_fronts_of_three_and_four_slots() -> None:
    three, four = exact.pareto_front(TASK, 3), exact.pareto_front(TASK, 4)
    assert len(three) == 9
    assert points(four) == pytest.approx(np.array(FOUR), abs=5.1e-5)
    assert area(four) == pytest.approx(3.5497, abs=5e-5)


def test_the_stored_front_of_five_slots_and_the_committees_on_it() -> None:
    five = exact.stored_front()
    assert points(five) == pytest.approx(np.array(FIVE), abs=5.1e-5)
    assert area(five) == pytest.approx(3.6167, abs=5e-5)
    for point in five:
        assert TASK.rules.cost(point.genotype) == pytest.approx(point.cost)
        assert TASK.rules.accuracy(point.genotype) == pytest.approx(point.accuracy, abs=1e-12)


def test_every_committee_is_looked_at_once() -> None:
    seen = sum(len(types) for size in range(1, 5) for types, _ in exact.genotypes(TASK, size))
    assert seen == 13_530


def test_the_best_value_is_the_best_point_of_the_front() -> None:
    process, front = exact.process_of(TASK), exact.pareto_front(TASK)
    for weight in (0.0, 0.01, 0.05):
        best = optimum(process, weight)[0].value
        assert best == pytest.approx(max(p.accuracy - weight * p.cost for p in front), abs=1e-12)
        assert evaluate(process, uniform(process), weight).value < best


def test_too_many_committees_are_reported() -> None:
    with pytest.raises(UsageError, match="up to 5 slots can be looked at, not 6"):
        exact.process_of(Committee(slots=6))


# ---------------------------------------------------------------------- building one


def test_what_makes_no_sense_is_blocked() -> None:
    step = TASK.start(TASK.problems("train")[0], Key())
    assert step.observation is not None
    assert "coder:1" in step.observation.blocked
    assert "coder:output" not in step.observation.blocked
    seen = call(TASK, step, "large", Key(), "output").observation
    assert seen is not None
    assert {"coder:output", "vote:2", "vote:1+2"} <= seen.blocked
    assert "coder:1" not in seen.blocked


def test_a_member_that_nobody_would_read_is_free_and_does_nothing() -> None:
    step = call(TASK, TASK.start(TASK.problems("train")[0], Key()), "large", Key(), "output")
    assert step.observation is not None
    assert step.observation.data["agents"]["coder"]["costs"]["2"] == 0.0
    assert call(TASK, step, "coder", Key(), "2").state == members(("large", 0), ("", 0))


def test_a_failed_placement_leaves_its_slot_empty() -> None:
    step = TASK.start(TASK.problems("train")[0], Key())
    step = TASK.step(step.state, Turn(0, "coder", "output", status="failed"), Key())
    assert step.observation is not None
    assert "coder:output" not in step.observation.blocked
    step = call(TASK, step, "generalist", Key(), "output")
    assert TASK.rules.scores(step.state).value == pytest.approx(0.72)


@settings(max_examples=30)
@given(st.lists(st.tuples(names, st.integers(0, 99)), max_size=6))
def test_costs_on_the_way_add_up_to_the_cost_of_what_was_built(
    choices: list[tuple[str, int]],
) -> None:
    step, spent = TASK.start(TASK.problems("train")[0], Key()), 0.0
    for row, draw in choices:
        if step.done:
            break
        assert step.observation is not None
        free = [o for o in options_for(4) if f"{row}:{o}" not in step.observation.blocked]
        option = free[draw % len(free)]
        spent += step.observation.data["agents"][row]["costs"][option]
        step = call(TASK, step, row, Key(), option)
    assert spent == pytest.approx(TASK.rules.cost(step.state))
    assert step.observation is not None


def build(task: Committee, placed: list[tuple[str, str]]) -> tuple[Status, float]:
    agents: dict[str, Agent] = {
        **{name: CommitteeAgent(slots=task.slots) for name in task.members},
        "stop": BenchAgent(),
    }
    steps = [[Activation(name, option)] for name, option in placed]
    episode, scores = run(task, agents, [*steps, "stop"])
    assert episode.usage.cost == pytest.approx(3.0)
    return episode.status, scores.value


PLACED = [("coder", "output"), ("reasoner", "1"), ("generalist", "1")]


def test_a_committee_is_built_in_the_engine() -> None:
    status, value = build(TASK, PLACED)
    assert status is Status.COMPLETED
    assert value == pytest.approx(0.7968, abs=5e-5)


def test_a_foreign_final_turn_ends_with_what_is_there() -> None:
    step = call(TASK, TASK.start(TASK.problems("train")[0], Key()), "large", Key(), "output")
    after = TASK.step(step.state, Turn(1, "end", None, Output(final=True)), Key())
    assert TASK.rules.scores(after.state).value == pytest.approx(0.82)


BAD = {
    "`right` needs one probability for each kind": {"a": Voter((0.1,)), "b": Voter((0.1, 0.2))},
    "no member with a signal": {"vote": Voter()},
    "member 'c': `own` must be 0": {"a": Voter((0.1,)), "c": Voter(own=1.0)},
    "stop cannot be a name": {"stop": Voter((0.1,))},
}


@pytest.mark.parametrize(("message", "table"), BAD.items(), ids=list(BAD))
def test_wrong_tables_are_refused(message: str, table: dict[str, Voter]) -> None:
    with pytest.raises(ValueError, match=message):
        Committee(members=table)
