"""`orchestrion runs`: what the command line tells about runs, and drops of them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrion import Output, Trajectory, Turn, Usage, UsageError, replace
from orchestrion._engine.recording import Facts, Recorded
from orchestrion.cli import main
from orchestrion.runs import RunReader, RunStore, find_run
from tests.core.store_support import checkpoint, episode


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, count in (("relay-1", 1), ("relay-2", 4)):
        with RunStore.create(tmp_path / name, "seed: 7\n", {"seed": 7}) as store:
            for i in range(count):
                episodes = [episode(f"{name}/{i}", reward=i / 2)]
                store.commit_iteration(0, i, episodes, {"loss": 1.0}, checkpoint(i))
            store.save_evaluation("test", {"solved": 0.5})
            store.set_status("completed")
    return tmp_path


def invoke(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["runs", *words, "--root", str(root)])


def json_of(root: Path, *words: str) -> dict[str, Any]:
    result = invoke(root, *words, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


# ------------------------------------------------------------------------------------- list


def test_list_shows_how_every_run_stands(root: Path) -> None:
    lines = invoke(root, "list").output.splitlines()
    assert lines[0].split() == "RUN STATUS ITERATIONS EPISODES TRAINING REWARD CREATED".split()
    assert lines[1].split()[:5] == ["relay-1", "completed", "1", "1", "0.000"]
    assert lines[2].split()[:5] == ["relay-2", "completed", "4", "4", "1.500"]
    runs = json_of(root, "list")["runs"]
    assert [(run["name"], run["episodes"], run["reward"]) for run in runs] == [
        ("relay-1", 1, 0.0),
        ("relay-2", 4, 1.5),
    ]


@pytest.mark.parametrize("damage", ["file", "cell"])
def test_list_shows_a_run_that_cannot_be_read_and_all_others(root: Path, damage: str) -> None:
    path = root / "relay-1" / "run.db"
    if damage == "file":
        path.write_bytes(b"x" * 5000)
    else:
        with sqlite3.connect(path) as database:
            database.execute("UPDATE iterations SET metrics = 'zz'")
        database.close()
    runs = json_of(root, "list")["runs"]
    assert [run["status"] for run in runs] == ["unreadable", "completed"]
    assert "relay-1" in runs[0]["problem"]
    assert "damaged" in runs[0]["problem"]
    assert "damaged" in invoke(root, "list").output
    shown = invoke(root, "show", "relay-1")
    assert (shown.exit_code, "damaged" in shown.stderr) == (1, True)


def test_list_of_nothing_is_no_error(tmp_path: Path) -> None:
    assert invoke(tmp_path / "none", "list").output.startswith("no runs in")
    assert json_of(tmp_path / "none", "list")["runs"] == []


def test_folders_of_runs_are_named_where_a_run_is_asked_for(root: Path) -> None:
    inside = root / "sweep-1"
    inside.mkdir()
    for name in ("relay-1", "relay-2"):
        (root / name).rename(inside / name)
    listing = invoke(root, "list").output
    assert listing == f"no runs in {root}; there are some in folders below: add --root {inside}\n"
    with pytest.raises(UsageError, match=r"but a folder of 2 runs: name one, such as .*relay-1"):
        find_run("sweep-1", root)


# ------------------------------------------------------------------------------------- show


def test_show_tells_what_a_run_reached_and_spent(root: Path) -> None:
    output = invoke(root, "show", "relay").output
    assert output.startswith("relay-2\n")
    assert "4, 4 solved" in output
    assert "0 calls, 0 tokens, 0.00 US dollars" in output
    run = json_of(root, "show", "relay-2")["run"]
    assert run["status"] == "completed"
    assert [row["reward"] for row in run["metrics"]] == [0.0, 0.5, 1.0, 1.5]
    assert run["evaluations"] == {"test": {"solved": 0.5}}


def test_show_tells_one_episode_turn_by_turn(root: Path) -> None:
    output = invoke(root, "show", "relay-2", "--episode", "relay-2/3").output
    assert output.splitlines()[0] == "relay-2/3  completed  reward 1.5"
    assert "step 1" in output
    found = json_of(root, "show", "relay-2", "--episode", "relay-2/3")["episode"]
    assert found["reward"]["total"] == 1.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "relay-3"], "no run 'relay-3' here; did you mean relay-"),
        (["show", "relay-2", "--episode", "9"], "relay-2 has no episode '9'"),
        (["prune", "relay-2"], "say what to prune"),
        (["prune", "--delete"], "say what to prune"),
        (["prune", "relay-2", "--delete", "--retention", "none"], "say what to prune"),
        (["prune", "relay-2", "--keep-newest", "1"], "leave RUN out"),
        (["prune", "--keep-newest", "1", "--retention", "episodes"], "leave --retention"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(root: Path, words: list[str], said: str) -> None:
    result = invoke(root, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert names(root) == {"relay-1", "relay-2"}


def test_cost_names_an_evaluation_that_made_no_calls(root: Path) -> None:
    with RunStore.open(root / "relay-1") as store:
        store.journal.put_many([Recorded("k", "request", "answer", Usage(1, 10, 5, 0.5))])
    words = ["cost", "relay-1", "--root", str(root)]
    told = CliRunner().invoke(main, words).stdout
    assert "evaluation of test: made no calls" in told
    by_stage = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["by_stage"]
    assert by_stage["evaluation of test"]["calls"] == 0


def test_show_tells_what_dollars_were_spent_on(root: Path) -> None:
    assert "spent on" not in invoke(root, "show", "relay-1").stdout
    stages = ("trainer", "training of random", "evaluation of random", "evaluation of learned")
    with RunStore.open(root / "relay-1") as store:
        for usd, stage in enumerate(stages, start=1):
            facts = Facts(stage=stage)
            call = Recorded(stage, "request", "answer", Usage(1, 10, 5, usd), facts=facts)
            store.journal.put_many([call])
    told = " ".join(invoke(root, "show", "relay-1").stdout.split())
    assert "spent on training 1.00, baselines 5.00, evaluation 4.00 US dollars" in told


def test_costs_in_the_agents_own_unit_are_told_by_agent_and_part(root: Path) -> None:
    with RunStore.open(root / "relay-1") as store:
        store.save_evaluation("random", {}, [episode("random/0", turns=1)])
    words = ["cost", "relay-1", "--root", str(root)]
    for output in (
        invoke(root, "show", "relay-1").stdout,
        CliRunner().invoke(main, words).stdout,
    ):
        assert [
            " ".join(line.split()) for line in output.splitlines() if "agents' unit" in line
        ] == [
            "cost of training 4 (agents' unit): worker 4",
            "cost of evaluating random 2 (agents' unit): worker 2",
        ]
    costs = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["own_costs"]
    assert costs["random"] == {"cost": 2.0, "agents": {"worker": 2.0}}
    assert invoke(root, "prune", "relay-1", "--retention", "episodes").exit_code == 0
    assert "4 (agents' unit)\n" in CliRunner().invoke(main, words).stdout


def test_cost_says_how_many_calls_of_turns_were_reused(root: Path) -> None:
    turns = [Turn(i, "worker", output=Output(usage=Usage(calls=1))) for i in range(5)]
    with RunStore.open(root / "relay-1") as store:
        store.journal.put_many(
            [
                Recorded("k", "request", "answer", Usage(1, 10, 5, 0.5)),
                Recorded("v", "request", "answer", Usage(1), facts=Facts(who="verifier")),
            ]
        )
        one = replace(episode("random/0"), trajectory=Trajectory(turns))
        store.save_evaluation("random", {}, [one])
    words = ["cost", "relay-1", "--root", str(root)]
    booked = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["reused_calls"]
    assert f"\n{booked} calls of turns were not made" in CliRunner().invoke(main, words).stdout
    assert booked == 6  # of 2 turns in training and 5 in the evaluation, one call was made


def test_cost_does_not_call_what_may_not_have_been_paid_paid(root: Path) -> None:
    with RunStore.open(root / "relay-1") as store:
        rows = [Recorded("k", "request", None, Usage(1, usd=0.5), "billed")]
        store.journal.put_many(rows)
    told = CliRunner().invoke(main, ["cost", "relay-1", "--root", str(root)]).stdout
    assert "1 attempt failed after being sent (`retry` in run.log says why), booked" in told


# ----------------------------------------------------------------------------------- export


def test_export_writes_the_files_and_says_where(root: Path, tmp_path: Path) -> None:
    files = json_of(root, "export", "relay")["files"]
    assert [Path(file).name for file in files] == [
        "episodes.json",
        "rewards.csv",
        "learned_behaviors.json",
        "summary.json",
    ]
    result = invoke(root, "export", "relay-1", "--to", str(tmp_path / "elsewhere"))
    assert all(Path(line).is_file() for line in result.output.splitlines())
    assert len(result.output.splitlines()) == 4


# ------------------------------------------------------------------------------------ prune


def test_prune_drops_parts_of_a_run_and_keeps_its_numbers(root: Path) -> None:
    words = ("prune", "relay-2", "--retention", "episodes", "--checkpoints", "1")
    assert json_of(root, *words, "--dry-run")["runs"][0]["action"] == "would be shrunk"
    with RunReader(root / "relay-2") as store:
        assert store.retention == "all"
    assert json_of(root, *words)["runs"][0]["action"] == "shrunk"
    with RunReader(root / "relay-2") as store:
        assert [found.episode.turns for found in store.episodes()] == [()] * 4
        assert [one.reward for one in store.iterations()] == [0.0, 0.5, 1.0, 1.5]
    assert len(list((root / "relay-2" / "checkpoints").iterdir())) == 1


def test_prune_deletes_whole_runs(root: Path) -> None:
    assert "would be deleted" in invoke(root, "prune", "relay-1", "--delete", "--dry-run").output
    assert names(root) == {"relay-1", "relay-2"}
    result = json_of(root, "prune", "relay-1", "--delete")["runs"][0]
    assert result["action"] == "deleted"
    assert result["freed"] > 10_000
    assert names(root) == {"relay-2"}


def test_prune_keeps_the_newest_runs(root: Path) -> None:
    result = json_of(root, "prune", "--keep-newest", "1")
    assert [run["name"] for run in result["runs"]] == ["relay-1"]
    assert names(root) == {"relay-2"}
    assert invoke(root, "prune", "--keep-newest", "1").output == "nothing to prune\n"


def test_prune_deletes_nothing_through_a_link(root: Path) -> None:
    (root / "link-9").symlink_to("relay-1")
    result = invoke(root, "prune", "link-9", "--delete")
    assert result.exit_code == 2
    assert f"is a link; to delete the run, name {(root / 'relay-1').resolve()}" in result.stderr
    result = invoke(root, "prune", "--keep-newest", "1")
    assert "left alone" in result.stderr
    assert "relay-1: deleted" in result.stdout
    assert (root / "relay-2").is_dir()


def test_prune_takes_a_run_that_is_named_twice_once(root: Path) -> None:
    (root / "link-9").symlink_to("relay-1")
    result = json_of(root, "prune", "relay-1", "link-9", "--retention", "episodes")
    assert [run["name"] for run in result["runs"]] == ["link-9"]
    result = json_of(root, "prune", "relay-2", str(root / "relay-2"), "--delete")
    assert [run["name"] for run in result["runs"]] == ["relay-2"]
    assert names(root) == {"relay-1", "link-9"}


def test_prune_leaves_a_run_in_use_alone(root: Path) -> None:
    with RunStore.open(root / "relay-1"):
        result = invoke(root, "prune", "relay-1", "--delete")
        assert result.exit_code == 1
        assert "in use by process" in result.stderr
        assert json_of(root, "prune", "--keep-newest", "0")["runs"][0]["name"] == "relay-2"
    assert names(root) == {"relay-1"}
