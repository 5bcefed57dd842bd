"""Drawn tables: the same by seed, worth playing, and with a team that fits."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict, evolve
from click import Command
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_orchestration_bench.command import bench, draw
from orchestrion_orchestration_bench.draw import LEAST, MOST, ROOM, TEAM
from orchestrion_orchestration_bench.drawn import rows_of, with_tables
from orchestrion_orchestration_bench.process import optimum
from orchestrion_orchestration_bench.relay import Relay, RelayTables
from orchestrion_orchestration_bench.solved import solve
from orchestrion_orchestration_bench.stop import Stop, StopTables

from orchestrion import ConfigError, UsageError
from orchestrion.cli import Options
from orchestrion.config import from_data, load

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
seeds = st.integers(0, 10_000)


def invoke(command: Command, *args: str) -> str:
    result = CliRunner().invoke(
        command, args, obj=Options(), standalone_mode=False, catch_exceptions=False
    )
    return result.stdout


def config(use: str, seed: int = 3, **task: Any) -> dict[str, Any]:
    policy = {"policy": {"use": "random"}, "reward": {"use": "outcome-minus-cost"}}
    return with_tables({"task": {"use": use, **task}, **policy}, seed)


@settings(max_examples=4, deadline=None)
@given(seeds)
def test_a_drawn_relay_needs_a_team_and_is_neither_trivial_nor_hopeless(seed: int) -> None:
    task = Relay(tables=RelayTables(seed))
    process = solve(task).process
    best = optimum(process, 1.0)[0]
    assert 4 <= len(task.skills) <= 7
    assert 3 <= len(task.types) <= 5
    assert 5 <= len(task.agents) <= 9
    assert 8 <= task.horizon <= 14
    assert best.value <= MOST
    assert min(best.by_type.values()) >= LEAST
    for worker in range(len(task.agents)):
        alone = optimum(process.only([worker, process.stop]), 1.0)[0]
        assert alone.value <= best.value - TEAM


@settings(max_examples=4, deadline=None)
@given(seeds)
def test_in_a_drawn_stop_checking_is_worth_its_price(seed: int) -> None:
    task = Stop(tables=StopTables(seed, solvers=2))
    assert 2 <= len(task.types) <= 4
    assert len(task.solvers) == 2
    assert 1 <= len(task.checkers) <= 2
    assert 5 <= task.horizon <= 6
    one, three = (
        optimum(solve(evolve(task, tables=None, horizon=calls)).process, 1.0)[0].value
        for calls in (1, 3)
    )
    assert three >= max(one, task.abstain) + ROOM


def test_a_seed_draws_the_same_tables_every_time_and_another_seed_others() -> None:
    first, again = Relay(tables=RelayTables(3)), Relay(tables=RelayTables(3))
    assert first == again
    assert first != Relay(tables=RelayTables(4))
    assert (len(first.skills), len(first.types), len(first.agents), first.horizon) == (6, 3, 7, 13)
    assert Stop(tables=StopTables(3)) != Stop(tables=StopTables(4))


def test_tables_of_a_seed_do_not_change_under_a_newer_version() -> None:
    relay: list[Any] = [Relay(tables=RelayTables(seed)) for seed in range(12)]
    stop: list[Any] = [Stop(tables=StopTables(seed)) for seed in range(5)]
    drawn = json.dumps([asdict(task) for task in (*relay, *stop)], sort_keys=True, default=str)
    assert blake2b(drawn.encode(), digest_size=8).hexdigest() == "eb12adc63dfccef7"


def test_other_settings_can_be_changed_without_changing_the_tables() -> None:
    task = Relay(tables=RelayTables(3))
    sparse = evolve(task, partial=0.5)
    assert (sparse.agents, sparse.partial) == (task.agents, 0.5)
    assert Relay(tables=RelayTables(3, workers=9)).agents.keys() == {f"w{i}" for i in range(1, 10)}
    assert Relay(tables=RelayTables(3), horizon=14).horizon == 14


@pytest.mark.parametrize(
    ("use", "task", "message"),
    [
        ("relay", {"types": {"x": ("code",)}}, "`types` has no effect beside `tables`"),
        ("stop", {"types": {"x": 0.5}}, "`types` has no effect beside `tables`"),
        ("relay", {"horizon": 2}, "ask for fewer skills, more workers, or a longer hor"),
    ],
)
def test_settings_that_do_not_fit_drawn_tables_are_refused(
    use: str, task: dict[str, Any], message: str
) -> None:
    data = config(use)
    data["task"] |= task
    with pytest.raises(ConfigError, match=message):
        from_data(data)


def test_a_stored_config_with_drawn_tables_reads_back(tmp_path: Path) -> None:
    first = from_data(config("relay", partial=0.3))
    (tmp_path / "again.yaml").write_text(first.to_yaml())
    again = load(tmp_path / "again.yaml")
    assert again.digest == first.digest
    assert again.components["task"].component == first.components["task"].component


def test_a_team_with_more_workers_than_were_drawn_is_refused(tmp_path: Path) -> None:
    data = config("relay")
    data["agents"]["w9"] = {"use": "bench-agent"}
    (tmp_path / "c.yaml").write_text(from_data(data).to_yaml())
    with pytest.raises(UsageError, match="are w1, w2, w3, w4, w5, w6, w7; w9 of the team would"):
        invoke(bench, str(tmp_path / "c.yaml"))


@pytest.mark.parametrize("name", ["relay", "stop"])
def test_draw_prints_a_config_with_new_tables_and_their_team(name: str, tmp_path: Path) -> None:
    path = tmp_path / "drawn.yaml"
    path.write_text(invoke(draw, str(EXAMPLES / f"{name}.yaml"), "5"))
    new, old = load(path), load(EXAMPLES / f"{name}.yaml")
    assert new.components["policy"].component == old.components["policy"].component
    task: Any = new.components["task"].component
    assert [path.removeprefix("agents.") for path in new.roster] == list(rows_of(task))
    report = invoke(bench, str(path), "-o", "policy={use: random}", "--episodes", "20")
    assert f"{name}, cost weight 1" in report


def test_draw_refuses_another_task() -> None:
    with pytest.raises(UsageError, match=r"task\.use: tables can be drawn for relay and stop"):
        with_tables({"task": "code-review"}, 3)
