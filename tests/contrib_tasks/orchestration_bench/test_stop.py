"""Stop: what a call does, what is shown, and the published figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_orchestration_bench import stop_exact
from orchestrion_orchestration_bench.agents import BenchAgent
from orchestrion_orchestration_bench.observed import asker, observe
from orchestrion_orchestration_bench.process import (
    Process,
    best_chain,
    evaluate,
    look_ahead,
    optimum,
    uniform,
)
from orchestrion_orchestration_bench.solved import Solved, Team, solve
from orchestrion_orchestration_bench.stop import Checker, Solver, Stop, StopState

from orchestrion import Key, Member, Observation, Output, Status, Step, Turn, UsageError
from tests.contrib_tasks.orchestration_bench.support import (
    agrees_with_random_play,
    call,
    run,
    stop_team,
)

SURE = Stop(
    types={"easy": 0.0, "hard": 1.0},
    solvers={"solver": Solver(easy=1.0, hard=0.0, cost=0.25)},
    checkers={"checker": Checker(right=1.0, wrong=1.0, cost=0.125)},
    abstain=0.5,
    horizon=3,
)


def start(task: Stop, kind: str) -> Step:
    return task.start(task.problem_from(kind), Key(1))


def test_the_difficulty_is_drawn_at_the_start_and_never_shown() -> None:
    task = Stop()
    steps = [task.start(task.problem_from("code"), Key(i)) for i in range(200)]
    assert 50 < sum(step.state.hard for step in steps) < 110
    assert len({repr(step.observation) for step in steps}) == 1


def test_a_solver_replaces_the_answer_and_a_checker_judges_it() -> None:
    for kind, says in (("easy", "ok"), ("hard", "bad")):
        step = call(SURE, call(SURE, start(SURE, kind), "solver", Key()), "checker", Key())
        assert step.observation is not None
        assert step.observation.data["history"] == [["solver", "answers"], ["checker", says]]


def test_without_an_answer_there_is_nothing_to_check_or_submit() -> None:
    step = start(SURE, "easy")
    assert step.observation is not None
    assert step.observation.blocked == {"checker", "submit"}
    after = call(SURE, step, "solver", Key()).observation
    assert after is not None
    assert not after.blocked


def test_after_the_last_call_only_submitting_and_abstaining_are_left() -> None:
    step = start(SURE, "easy")
    for _ in range(3):
        step = call(SURE, step, "solver", Key())
    assert not step.done
    assert step.observation is not None
    assert step.observation.blocked == {"solver", "checker"}
    over = call(SURE, step, "solver", Key())
    assert over.done, "a call that is not allowed hands in what is there"
    assert SURE.rules.scores(over.state).value == 1.0


def test_an_end_is_final() -> None:
    over = call(SURE, call(SURE, start(SURE, "hard"), "solver", Key()), "submit", Key())
    assert over.done
    for row in ("solver", "checker", "submit", "abstain"):
        again = call(SURE, over, row, Key())
        assert again.done
        assert again.state == over.state


def test_submit_pays_for_a_right_answer_and_abstaining_a_fixed_amount() -> None:
    for kind, value in (("easy", 1.0), ("hard", 0.0)):
        answered = call(SURE, start(SURE, kind), "solver", Key())
        handed_in = SURE.rules.scores(call(SURE, answered, "submit", Key()).state)
        assert (handed_in.value, handed_in.success) == (value, bool(value))
        abstained = SURE.rules.scores(call(SURE, answered, "abstain", Key()).state)
        assert (abstained.value, abstained.success) == (0.5, False)


def test_a_failed_call_is_heard_by_nobody() -> None:
    failed = Turn(0, "solver", None, Output(data={"plays": "solver"}), "failed", "broke")
    step = SURE.step(start(SURE, "easy").state, failed, Key())
    assert step.state == StopState(0, False, 0, (3,))
    assert step.observation is not None
    assert step.observation.data["history"] == [["", "nothing"]]


def test_features_have_one_length_and_tell_histories_apart() -> None:
    process = stop_exact.process_of(evolve(Stop(), horizon=3))
    shown = [layer.show(i).features for layer in process.layers for i in range(len(layer))]
    assert len({len(features) for features in shown}) == 1
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize(
    ("steps", "kind", "value", "cost"),
    [
        (["solver", "checker", "submit"], 0, 1.0, 0.375),
        (["solver", "submit"], 1, 0.0, 0.25),
        (["abstain", "solver"], 0, 0.5, 0.0),
        pytest.param(["solver"], 0, 1.0, 0.25, id="stopping hands in what is there"),
        pytest.param(["submit", "stop"], 0, 0.0, 0.0, id="blocked, and free"),
    ],
)
def test_episodes_in_the_engine(steps: list[str], kind: int, value: float, cost: float) -> None:
    names = ("solver", "checker", "submit", "abstain", "stop")
    episode, scores = run(SURE, {name: BenchAgent() for name in names}, steps, problem=kind)
    assert (episode.status, scores.value) == (Status.COMPLETED, value)
    assert episode.usage.cost == cost


BAD = {
    "types: expected at least one name": {"types": {}},
    "solvers: expected at least one name": {"solvers": {}},
    "submit cannot be a name": {"solvers": {"submit": Solver(1, 1)}},
    "named more than once: solver": {"checkers": {"solver": Checker(1, 1)}},
}


@pytest.mark.parametrize(("message", "tables"), BAD.items(), ids=list(BAD))
def test_wrong_tables_are_refused(message: str, tables: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        evolve(SURE, **tables)


# ---------------------------------------------------------------------- exact values

HISTORIES = stop_exact.process_of(Stop())
BELIEFS = stop_exact.beliefs_of(Stop())
WEIGHTS = (0.5, 1.0, 2.0)


def test_the_number_of_histories_and_beliefs() -> None:
    assert sum(len(layer) for layer in HISTORIES.layers) == 55_989
    assert sum(len(layer) for layer in BELIEFS.layers) == 10_839


@pytest.mark.parametrize(
    ("weight", "by_type", "mean"),
    [
        (0.5, [0.8546, 0.7655, 0.7033], 0.7744),
        (1.0, [0.7826, 0.6390, 0.5152], 0.6456),
        (2.0, [0.7050, 0.5100, 0.2540], 0.4897),
    ],
)
def test_the_best_value(weight: float, by_type: list[float], mean: float) -> None:
    worth, _ = optimum(BELIEFS, weight)
    assert list(worth.by_type.values()) == pytest.approx(by_type, abs=5.1e-5)
    assert worth.value == pytest.approx(mean, abs=5.1e-5)
    assert optimum(HISTORIES, weight)[0].value == pytest.approx(worth.value, abs=1e-9)


@pytest.mark.parametrize("process", [HISTORIES, BELIEFS], ids=["histories", "beliefs"])
def test_one_step_look_ahead_and_random(process: Process) -> None:
    ahead = [evaluate(process, look_ahead(process, w), w).value for w in WEIGHTS]
    assert ahead == pytest.approx([0.7280, 0.6203, 0.4897], abs=5.1e-5)
    random = [evaluate(process, uniform(process), w).value for w in WEIGHTS]
    assert random == pytest.approx([0.2249, 0.1129, -0.1111], abs=5.1e-5)


def cascade(first: str, check: str, then: str) -> Callable[..., dict[str, float]]:
    """Ask `first`, check once, ask `then` if the answer looks bad, submit."""

    def choose(seen: Observation) -> dict[str, float]:
        heard = [tuple(one) for one in seen.data["history"]]
        if not heard:
            return {first: 1}
        if len(heard) == 1:
            return {check: 1}
        return {then if heard[-1] == (check, "bad") else "submit": 1}

    return choose


def until_ok(solver: str, check: str) -> Callable[..., dict[str, float]]:
    """Ask and check in turn until an answer looks right, or the calls are used up."""

    def choose(seen: Observation) -> dict[str, float]:
        heard = [tuple(one) for one in seen.data["history"]]
        if heard and (heard[-1] == (check, "ok") or len(heard) == seen.data["horizon"]):
            return {"submit": 1}
        return {check if heard and heard[-1][0] == solver else solver: 1}

    return choose


@pytest.mark.parametrize(
    ("policy", "values"),
    [
        (cascade("small", "lint", "large"), [0.6849, 0.6104, 0.4614]),
        (cascade("small", "judge", "large"), [0.7268, 0.5947, 0.3305]),
        (until_ok("small", "judge"), [0.6093, 0.4761, 0.2096]),
    ],
    ids=["cascade with lint", "cascade with judge", "small and judge until ok"],
)
def test_cascades_on_histories(policy: object, values: list[float]) -> None:
    solved = Solved("stop", BELIEFS, HISTORIES, None, Stop().rules.kinds)
    team = Team.of(HISTORIES, [Member(n) for n in ("small", "lint", "judge", "large", "submit")])
    ask = asker(policy, team)
    assert ask is not None
    acts, _ = observe(solved, team, ask)
    found = [evaluate(HISTORIES, acts, weight).value for weight in WEIGHTS]
    assert found == pytest.approx(values, abs=5.1e-5)


def test_the_best_fixed_sequence_asks_one_solver() -> None:
    blind = stop_exact.blind_of(Stop())
    found = [best_chain(blind, weight) for weight in WEIGHTS]
    assert [chain.value for chain in found] == pytest.approx([0.7280, 0.6030, 0.4883], abs=5.1e-5)
    assert [[one.row for one in chain.actions] for chain in found] == [
        ["large", "submit"],
        ["large", "submit"],
        ["small", "submit"],
    ]


small = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])
tables = st.builds(
    Stop,
    types=st.dictionaries(st.sampled_from(["x", "y"]), small, min_size=1),
    solvers=st.dictionaries(
        st.sampled_from(["s", "t"]), st.builds(Solver, small, small, small), min_size=1
    ),
    checkers=st.dictionaries(st.sampled_from(["c", "d"]), st.builds(Checker, small, small, small)),
    abstain=small,
    horizon=st.integers(1, 3),
)


@settings(max_examples=30)
@given(tables, st.sampled_from([0.0, 0.5, 2.0]), st.integers(0, 99))
def test_no_policy_beats_the_best_and_beliefs_are_enough(
    task: Stop, weight: float, seed: int
) -> None:
    histories, beliefs = stop_exact.process_of(task), stop_exact.beliefs_of(task)
    best = optimum(histories, weight)[0].value
    assert optimum(beliefs, weight)[0].value == pytest.approx(best, abs=1e-8)
    draws = np.random.default_rng(seed)
    policy = []
    for layer in histories.layers:
        acts = layer.allowed * draws.random(layer.allowed.shape)
        policy.append(acts / acts.sum(axis=1, keepdims=True))
    assert evaluate(histories, policy, weight).value <= best + 1e-9
    assert best_chain(stop_exact.blind_of(task), weight, 20).value <= best + 1e-9


@settings(max_examples=6)
@given(tables, st.integers(0, 99))
def test_playing_agrees_with_the_exact_value(task: Stop, seed: int) -> None:
    process = stop_exact.process_of(task)
    assert agrees_with_random_play(task, process, stop_team(task), seed, 1.0)


def test_too_many_histories_are_reported_and_beliefs_still_do() -> None:
    task = evolve(SURE, horizon=20)
    with pytest.raises(UsageError, match="histories of equal length are too many"):
        stop_exact.process_of(evolve(Stop(), horizon=12))
    solved = solve(task)
    assert solved.shown is None
    assert "too many" in solved.note
    assert optimum(solved.process, 1.0)[0].value == pytest.approx((0.75 + 0.5) / 2)
