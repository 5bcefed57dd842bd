"""A replay repeats a run without its calls, and names the first thing that comes out otherwise."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

import orchestrion as o
from orchestrion import Array, Saved, Usage, UsageError
from orchestrion._engine.calls import Recorded
from orchestrion._progress import Progress
from orchestrion._replay import Replayed, replay
from orchestrion._store import write_checkpoint
from orchestrion._store.exports import export_run
from orchestrion.runs import RunReader, RunStore
from tests.core.test_runs_from_python import DATA


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = DATA | {"evaluation": {"baselines": {}}, "run": {"iterations": 2}}
    run = o.train(data, tmp_path_factory.mktemp("replay") / "run")
    with RunReader(run.path) as reader:
        export_run(reader)
    return run.path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def replayed(run: Path) -> Replayed:
    return asyncio.run(replay(run, Progress()))


def test_a_run_is_repeated_and_compared_with_its_exports(run: Path) -> None:
    result = replayed(run)
    assert (result.difference, result.notes) == ("", ())
    assert (result.iterations, result.evaluations, result.episodes) == (2, 1, 28)
    assert len(result.exports) == 4


def update(table: str, where: str, **values: str) -> Callable[[RunStore], None]:
    """Return what changes rows of a run, as if they had been written so."""

    def change(store: RunStore) -> None:
        with store._writer.transaction("test"):
            store._writer.change(table, where, **values)

    return change


def drop(store: RunStore, *tables: str) -> None:
    """Drop rows from the second iteration on."""
    with store._writer.transaction("test"):
        for table in tables:
            store._writer.execute(f"DELETE FROM {table} WHERE seq >= 2")


def other_weights(store: RunStore) -> None:
    """Put a checkpoint in place of the last one, in which a number differs."""
    newest = store.latest().checkpoint
    assert newest is not None
    saved = Saved({"more": Array("U8", (1,), b"x")}, newest.components["policy"].data)
    _, digest = write_checkpoint(store.checkpoints, evolve(newest, components={"policy": saved}))
    update("iterations", "seq = 2", digest=f"'{digest}'")(store)


SHORTER = "json_set(record, '$.trajectory', json('[]'))"


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            update("iterations", "seq = 2", metrics="json_set(metrics, '$.best', 9.5)"),
            r"iteration 2 of stage 1: best was 9\.5, and is \S+ now",
        ),
        (other_weights, r"iteration 2 of stage 1: what was learned differs \(checkpoint 00-000001"),
        (
            update("episodes", "number = 4", success="7"),
            r"episode \S+: success was 7, and is \d now",
        ),
        (
            update("episodes", "number = 4", record="json_set(record, '$.error', 'odd')"),
            "episode .*: error was 'odd', and is '' now",
        ),
        (
            update("episodes", "number = 4", record=SHORTER),
            "episode .*: length of trajectory was 0, and is 1 now",
        ),
        (
            update(
                "episodes",
                "number = 4",
                record="json_set(record, '$.trajectory[0].error', printf('%300c', 'x'))",
            ),
            r"episode .*: trajectory\[0\]\.error was '.{199} \.\.\., and is '' now",
        ),
        (lambda store: drop(store, "episodes"), r"episode \S+: is not on record"),
        (
            update("evaluations", "TRUE", results="json_set(results, '$.trained_on', 5)"),
            "evaluation of learned: trained_on was 5, and is 24 now",
        ),
        (
            lambda store: store.save_evaluation("more", {}),
            "2 evaluations are on record, and the replay has 1",
        ),
    ],
)
def test_the_first_difference_is_named(
    run: Path, change: Callable[[RunStore], None], difference: str
) -> None:
    with RunStore.open(run) as store:
        change(store)
    assert re.match(difference, replayed(run).difference)


def test_an_export_that_somebody_changed_is_named_with_the_line(run: Path) -> None:
    lines = (run / "exports" / "rewards.csv").read_text().splitlines()
    (run / "exports" / "rewards.csv").write_text("\n".join([*lines[:3], "", *lines[4:], ""]))
    result = replayed(run)
    assert result.difference == "exports/rewards.csv: differs from line 4 on"
    assert result.exports == ("episodes.json", "rewards.csv")


def test_of_a_run_that_did_not_end_what_it_committed_is_compared(run: Path) -> None:
    with RunStore.open(run) as store:
        drop(store, "iterations", "episodes", "evaluations")
        store._note(versions={**store.manifest["versions"], "python": "2.7"})
        store.note_versions({"python": "2.8"})
        store.set_status("cancelled")
    result = replayed(run)
    assert (result.difference, result.iterations, result.exports) == ("", 1, ())
    resumed, versions, ended = result.notes
    assert resumed == "iterations from 1 on were recorded with other versions"
    assert versions.startswith("other versions than when it was recorded: python 2.7 -> ")
    assert ended == "the run is cancelled: compared is what it committed, and exports are not"


def test_what_cannot_be_compared_is_refused(run: Path) -> None:
    with RunStore.open(run) as store:
        with pytest.raises(UsageError, match="the run is still being written"):
            replayed(run)
        store.journal.put_many([Recorded("k", "digest", "answer", Usage(1))])
        store.shrink("turns")
        update("calls", "TRUE", answer="NULL")(store)
    with pytest.raises(
        UsageError, match=r"answers of 1 calls were not kept \(run.retention: turns"
    ):
        replayed(run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("seed: 2", "seed: 3"))
    with pytest.raises(UsageError, match=r"its config.yaml, or .* was changed .* \(seed\);"):
        replayed(run)
