"""Exports: files for people and other programs."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from attrs import evolve

from orchestrion import (
    Episode,
    Output,
    Reward,
    Saved,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
    replace,
)
from orchestrion._engine.calls import Recorded
from orchestrion._store import Retention
from orchestrion._store.exports import export_run
from orchestrion.runs import RunReader, RunStore, structure
from tests.core.store_support import checkpoint, episode

FILES = ["episodes.json", "rewards.csv", "learned_behaviors.json", "summary.json"]


def some_run(directory: Path, retention: Retention = "all") -> Path:
    """A run with three episodes, one of them with no reward, and an evaluation."""
    odd = Turn(0, "critic", output=Output("\ud800 é", usage=Usage(usd=math.nan)))
    unrewarded = replace(episode("0/1"), trajectory=Trajectory([odd]), reward=None)
    failed = replace(
        episode("1/0"),
        status=Status.LIMIT,
        scores=Scores(0.0, parts={"style": 0.5}),
        reward=Reward(-2.0, parts={"cost": -2.0}),
    )
    learned = evolve(
        checkpoint(1),
        overlay={"agents.b.text": "new", "agents.a.rate": 0.5},
        components={
            **checkpoint(1).components,
            "trainer": Saved(data={"learned": {"critic": ["be brief"]}, "round": 3}),
        },
        roster=("tests", "worker", "critic", "lint"),
    )
    with RunStore.create(directory, "", {"seed": 7}, retention=retention) as store:
        store.commit_iteration(
            0, 0, [episode("0/0"), unrewarded], {"loss": math.nan}, checkpoint(0)
        )
        store.journal.put_many([Recorded("k", "digest", "answer", Usage(1, 2, 3, 0.5))])
        store.commit_iteration(0, 1, [failed], {"loss": 0.5}, learned, seconds=2.0)
        store.save_evaluation("test", {"rate": 0.5}, [episode("test/0")])
        store.set_status("completed")
        export_run(store)
    return directory / "exports"


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "rewards.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some_run(tmp_path_factory.mktemp("exports") / "run")


def test_episodes_json_holds_every_episode_as_a_record_on_a_line(exported: Path) -> None:
    text = (exported / "episodes.json").read_text()
    found = json.loads(text)
    assert [(e.pop("source"), e.pop("stage"), e.pop("iteration")) for e in found] == [
        ("train", 0, 0),
        ("train", 0, 0),
        ("train", 0, 1),
        ("test", 0, 1),
    ]
    assert [e.pop("usage")["cost"] for e in found] == [4.0, 0.0, 4.0, 4.0]
    records = [structure(e, Episode) for e in found]
    assert records[0] == episode("0/0")
    assert records[1].turns[0].output.content == "\ud800 é"
    assert [r.status for r in records] == ["completed", "completed", "limit", "completed"]
    first, *lines, last = text.splitlines()
    assert (first, len(lines), last) == ("[", 4, "]")


def test_rewards_csv_has_one_line_an_episode_and_a_column_a_part(exported: Path) -> None:
    found = rows(exported)
    columns = (
        "source stage iteration episode problem category status success score reward "
        "score.style score.tests reward.cost reward.outcome "
        "turns calls input_tokens output_tokens usd cost"
    )
    assert " ".join(found[0]) == columns
    for column, values in {
        "reward": ["1.0", "", "-2.0", "1.0"],
        "score.tests": ["3.0", "3.0", "", "3.0"],
        "reward.cost": ["", "", "-2.0", ""],
        "success": ["1", "1", "0", "1"],
        "usd": ["0.0", "", "0.0", "0.0"],
    }.items():
        assert [row[column] for row in found] == values


def test_learned_behaviors_json_holds_the_settings_that_training_changed(exported: Path) -> None:
    text = (exported / "learned_behaviors.json").read_text()
    assert json.loads(text) == {
        "stage": 0,
        "iteration": 1,
        "settings": {"agents.a.rate": 0.5, "agents.b.text": "new"},
        "learned": {"trainer": {"critic": ["be brief"]}},
    }


def test_summary_json_holds_the_outcome(exported: Path) -> None:
    summary = json.loads((exported / "summary.json").read_text())
    digest = summary["checkpoint"].pop("sha256")
    execution = summary.pop("execution")
    assert summary == {
        "status": "completed",
        "manifest": {"seed": 7},
        "iterations": 2,
        "episodes": {
            "count": 3,
            "successes": 2,
            "unrewarded": 1,
            "by_status": {"completed": 2, "limit": 1},
            "turns_by_agent": {"critic": 1, "worker": 4},
            "never_tried": ["tests", "lint"],
        },
        "reward": {
            "mean": -0.5,
            "best_iteration": 1.0,
            "worst_iteration": -2.0,
            "last_ten_iterations": -0.5,
        },
        "stages": [{"stage": 0, "iterations": 2, "first": {"loss": None}, "last": {"loss": 0.5}}],
        "evaluations": {"test": {"rate": 0.5}},
        "stopped_at_once": [],
        "diagnosis": [
            {
                "name": "never_tried",
                "level": 1,
                "text": "never tried in 3 training episodes: tests, lint",
                "advice": "train for longer or explore more, or leave out tests and lint",
                "about": ["tests", "lint"],
            }
        ],
        "warning_level": 1,
        "checkpoint": {"file": "00-000001.safetensors"},
    }
    assert len(digest) == 64
    assert execution["run"] == "run"
    assert execution["seconds_by_iteration"] == [0.0, 2.0]
    assert execution["spend"]["usd"] == 0.5


def test_exports_of_equal_runs_are_equal_but_for_how_they_were_run(
    exported: Path, tmp_path: Path
) -> None:
    other = some_run(tmp_path / "other")
    for name in FILES[:3]:
        assert (exported / name).read_bytes() == (other / name).read_bytes()
    summaries = [json.loads((each / FILES[3]).read_text()) for each in (exported, other)]
    assert {**summaries[0], "execution": None} == {**summaries[1], "execution": None}


@pytest.mark.parametrize("retention", ["turns", "episodes", "none"])
def test_exports_work_with_whatever_was_kept(tmp_path: Path, retention: Retention) -> None:
    folder = some_run(tmp_path / "run", retention)
    found = json.loads((folder / "episodes.json").read_bytes())
    summary = json.loads((folder / "summary.json").read_text())
    assert len(found) == len(rows(folder)) == (0 if retention == "none" else 4)
    assert summary["episodes"]["count"] == 3
    assert summary["reward"]["mean"] == -0.5
    assert summary["episodes"]["never_tried"] == ["tests", "lint"]
    if retention == "episodes":
        assert [e["trajectory"] for e in found] == [[]] * 4
        assert [row["turns"] for row in rows(folder)] == ["2", "1", "2", "2"]


def test_a_run_with_nothing_in_it_is_exported(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", "") as store:
        paths = export_run(store)
    assert [path.name for path in paths] == FILES
    assert json.loads(paths[0].read_text()) == []
    assert json.loads(paths[2].read_text())["settings"] == {}
    assert json.loads(paths[3].read_text())["reward"]["mean"] is None


def test_a_reader_may_export_elsewhere(exported: Path, tmp_path: Path) -> None:
    with RunReader(exported.parent) as reader:
        paths = export_run(reader, tmp_path / "new" / "folder", conversations=True)
    (call,) = map(json.loads, paths[-1].read_text().splitlines())
    assert (paths[-1].name, call["name"], call["answer"]) == ("calls.jsonl", "k", "answer")
    assert {path.parent for path in paths} == {tmp_path / "new" / "folder"}
