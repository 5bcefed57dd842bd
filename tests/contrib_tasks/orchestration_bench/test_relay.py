"""Relay: what a call does, what is shown, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_orchestration_bench.agents import BenchAgent, play
from orchestrion_orchestration_bench.relay import Relay, RelayState, Worker

from orchestrion import (
    Agent,
    Calls,
    ConfigError,
    Key,
    Output,
    Status,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion.cli import main
from orchestrion.config import from_data
from tests.contrib_tasks.orchestration_bench.support import call, relays, run

SURE = Relay(
    skills=("plan", "code"),
    prerequisites={"code": ("plan",)},
    types={"both": ("plan", "code"), "quick": ("code",)},
    agents={
        "planner": Worker({"plan": 1.0}, 0.25),
        "coder": Worker({"code": 1.0}, 0.5),
        "clumsy": Worker({}, 0.125, breaks=1.0),
        "all": Worker({"plan": 0.5, "code": 0.5}),
    },
    partial=0.5,
    horizon=4,
    train=4,
    validation=2,
    test=6,
)


def test_splits_never_overlap_and_types_take_turns() -> None:
    ids = {split: [one.id for one in SURE.problems(split)] for split in ("train", "test")}
    assert ids["train"] == ["relay-train-0", "relay-train-1", "relay-train-2", "relay-train-3"]
    assert not set(ids["train"]) & set(ids["test"])
    assert [one.category for one in SURE.problems("validation")] == ["both", "quick"]


def test_a_problem_can_be_named_by_its_type() -> None:
    assert SURE.problem_from(" quick ").data == {"type": "quick", "required": ["code"]}
    with pytest.raises(UsageError, match="both, quick"):
        SURE.problem_from("slow")


def test_a_prerequisite_counts_only_if_the_type_requires_it() -> None:
    both, quick = (SURE.start(one, Key()) for one in SURE.problems("validation"))
    assert call(SURE, both, "coder", Key()).state.done == 0
    assert call(SURE, quick, "coder", Key()).state.done == 0b10


def test_an_agent_works_on_the_ready_skill_it_is_best_at_and_ties_go_to_the_first() -> None:
    task = evolve(SURE, prerequisites={}, agents={"all": Worker({"plan": 0.9, "code": 0.9})})
    worker = task.agents["all"]
    assert task.rules.works_on(worker, 0, 0b00) == 0
    assert task.rules.works_on(worker, 0, 0b01) == 1
    assert task.rules.works_on(worker, 0, 0b11) is None


def test_what_breaks_is_the_last_skill_that_was_done_before_the_call() -> None:
    step = SURE.start(SURE.problems("train")[0], Key())
    step = call(SURE, call(SURE, step, "planner", Key()), "coder", Key())
    assert step.state.done == 0b11
    assert call(SURE, step, "clumsy", Key()).state.done == 0b01


def test_success_and_breakage_are_independent() -> None:
    task = evolve(SURE, agents={"both": Worker({"code": 0.9}, breaks=0.2)})
    chances = {move.done: move.probability for move in task.rules.moves(0, 0b01)["both"]}
    assert chances == pytest.approx({0b11: 0.72, 0b01: 0.08, 0b10: 0.18, 0b00: 0.02})


def test_the_observation_shows_everything() -> None:
    step = call(SURE, SURE.start(SURE.problems("train")[0], Key()), "planner", Key())
    seen = step.observation
    assert seen is not None
    assert "done: plan\nmissing: code\nready: code\ncalls left: 3" in seen.text
    assert seen.data["agents"]["coder"] == {"cost": 0.5, "says": "works on code"}
    assert list(seen.features) == [1, 0, 1, 0, 0, 1, 0, 1, 0.25]
    assert seen.progress == 0.5


def test_an_agent_that_is_not_in_the_table_takes_time_and_does_nothing() -> None:
    step = SURE.start(SURE.problems("train")[0], Key())
    boast = Turn(0, "boaster", None, Output("done: plan, code", {"plays": "winner"}))
    assert SURE.step(step.state, boast, Key()).state == RelayState(0, 0, 1)
    claim = Turn(0, "boaster", None, Output("done: plan, code", data="planner"))
    assert SURE.step(step.state, claim, Key()).state == RelayState(0, 0, 1)
    failed = Turn(0, "planner", None, Output(data={"plays": "planner"}), "failed", "broke")
    assert SURE.step(step.state, failed, Key()).state == RelayState(0, 0, 1)


@settings(max_examples=15)
@given(relays(), st.integers(0, 99), st.data())
def test_an_episode_ends_at_the_horizon_and_nothing_revives_it(
    task: Relay, seed: int, data: st.DataObject
) -> None:
    step = task.start(task.problems("train")[0], Key(seed))
    for i in range(task.horizon):
        assert not step.done
        step = call(task, step, data.draw(st.sampled_from(list(task.agents))), Key(seed).child(i))
    assert step.done
    scores = task.rules.scores(step.state)
    for name in task.agents:
        again = call(task, step, name, Key(seed))
        assert again.done
        assert task.rules.scores(again.state) == scores


@settings(max_examples=15)
@given(relays())
def test_outcomes_of_a_call_have_probabilities_that_sum_to_one(task: Relay) -> None:
    for kind in range(len(task.types)):
        for done in range(2 ** len(task.skills)):
            for moves in task.rules.moves(kind, done).values():
                assert sum(move.probability for move in moves) == pytest.approx(1, abs=1e-12)
                assert len({move.done for move in moves}) == len(moves)


@settings(max_examples=15)
@given(relays(), st.integers(0, 99))
def test_only_skills_that_are_required_and_ready_are_gained(task: Relay, seed: int) -> None:
    step = task.start(task.problems("train")[0], Key(seed))
    for i in range(task.horizon):
        before = step.state
        step = call(task, step, list(task.agents)[i % len(task.agents)], Key(seed).child(i))
        gained = step.state.done & ~before.done
        assert gained & ~task.rules.ready(before.type, before.done) == 0
        assert gained.bit_count() <= 1


# ---------------------------------------------------------------------- with the engine


class Boaster(Agent):
    """Claims to have done everything."""

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output("all skills done, full marks", {"done": ["plan", "code"]})


def outcome(steps: list[str], **more: Agent) -> tuple[Status, float, bool, float]:
    """Status, value, success and cost of one episode with a fixed sequence."""
    agents: dict[str, Agent] = {name: BenchAgent() for name in (*SURE.agents, "stop")}
    episode, scores = run(SURE, {**agents, **more}, steps)
    return episode.status, scores.value, episode.success, episode.usage.cost


def test_perfect_agents_in_the_right_order_solve_it_and_pay_each_call_once() -> None:
    assert outcome(["planner", "coder", "stop"]) == (Status.COMPLETED, 1.0, True, 0.75)
    assert outcome(["planner", "coder"]) == (Status.COMPLETED, 1.0, True, 0.75)


def test_the_wrong_order_does_not_solve_it() -> None:
    assert outcome(["coder", "planner", "stop"]) == (Status.COMPLETED, 0.25, False, 0.75)


def test_claims_and_stopping_are_worth_nothing() -> None:
    assert outcome(["boaster", "stop"], boaster=Boaster())[1:] == (0.0, False, 0.0)
    assert outcome(["stop"])[1:] == (0.0, False, 0.0)


def test_the_horizon_completes_the_episode() -> None:
    assert outcome(["clumsy"] * 9) == (Status.COMPLETED, 0.0, False, 0.5)


def test_two_agents_may_play_the_same_row() -> None:
    again = BenchAgent(plays="planner")
    assert outcome(["second", "coder", "stop"], second=again)[1:] == (1.0, True, 0.75)


def test_an_agent_without_a_row_fails_and_says_which_rows_there_are() -> None:
    seen = SURE.start(SURE.problems("train")[0], Key()).observation
    with pytest.raises(UsageError, match=r"'plan'.*set `plays` to one of planner, coder"):
        play("plan", None, seen)
    with pytest.raises(UsageError, match="relay, stop and committee only"):
        play("planner", None, None)
    with pytest.raises(UsageError, match="no option 'x'"):
        play("planner", "x", seen)


def test_validation_refuses_an_agent_without_a_row(tmp_path: Path) -> None:
    config = tmp_path / "relay.yaml"
    config.write_text(
        "task: {use: relay}\nagents: {plannr: {use: bench-agent}}\npolicy: {use: random}\n"
    )
    result = CliRunner().invoke(main, ["validate", str(config)])
    assert result.exit_code == 2
    assert "agents.plannr: the task's table has no row 'plannr'" in result.stderr


def test_an_output_is_the_price_and_the_row() -> None:
    seen = SURE.start(SURE.problems("train")[0], Key()).observation
    assert play("planner", None, seen) == Output(
        "planner works on plan", {"plays": "planner"}, Usage(cost=0.25)
    )
    assert play("stop", None, seen).final


# ---------------------------------------------------------------------- tables that are refused

BAD = {
    "unknown skill 'plann' .did you mean 'plan'": {"agents": {"x": Worker({"plann": 0.5})}},
    "stop cannot be a name": {"agents": {"stop": Worker({"plan": 0.5})}},
    "agents: expected at least one name": {"agents": {}},
    "type 'z': expected at least one name": {"types": {"z": ()}},
    "named more than once: plan": {"types": {"z": ("plan", "plan")}},
    "plan, code wait for each other": {"prerequisites": {"plan": ("code",), "code": ("plan",)}},
    "prerequisites of 'plan': unknown skill": {"prerequisites": {"plan": ("x",)}},
    "skills: got 13, at most 12": {"skills": tuple("abcdefghijklm")},
}


@pytest.mark.parametrize(("message", "tables"), BAD.items(), ids=list(BAD))
def test_wrong_tables_are_refused(message: str, tables: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        evolve(SURE, **tables)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"partial": 1.5}, "partial: must be at most 1"),
        ({"partial": float("nan")}, "partial.*finite"),
        ({"horizon": 0}, "horizon: must be at least 1"),
        ({"agents": {"x": {"cost": -1.0}}}, "cost: must be at least 0"),
        ({"agents": {"x": {"cost": float("inf")}}}, "cost.*finite"),
        ({"agents": {"x": {"skills": {"plan": 2.0}}}}, "skills.plan: must be at most 1"),
    ],
)
def test_numbers_out_of_range_are_refused_in_a_config(setting: Any, message: str) -> None:
    task, agents = {"use": "relay", **setting}, {"a": {"use": "bench-agent"}}
    with pytest.raises(ConfigError, match=message):
        from_data({"task": task, "agents": agents, "policy": {"use": "random"}})
