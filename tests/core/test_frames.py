"""Tables as data frames and Parquet files; needs libraries that CI does without."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrion import Episode, Output, Problem, Trajectory, Turn
from orchestrion._store import tables
from orchestrion.cli import main
from orchestrion.runs import RunReader, RunStore
from tests.core.test_runs_from_python import stored

pandas = pytest.importorskip("pandas", reason="gives data frames")
pq = pytest.importorskip("pyarrow.parquet", reason="writes and reads Parquet files")


def test_pandas_comes_first_and_all_forms_hold_the_same(tmp_path: Path) -> None:
    run = stored(tmp_path / "run")
    for table in (run.metrics, run.episodes, run.turns, run.calls, run.evaluations):
        frame, rows = table(), table("dicts")
        assert isinstance(frame, pandas.DataFrame)
        assert frame.astype(object).where(frame.notna(), None).to_dict("records") == rows
    assert list(run.turns()["content"]) == ["step 0", "step 1", "? é"]
    assert run.episodes().query("success")["episode"].tolist() == ["0/0"]
    polars = pytest.importorskip("polars", reason="gives data frames too")
    for table in (run.metrics, run.episodes, run.turns, run.calls, run.evaluations):
        frame = table("polars")
        assert isinstance(frame, polars.DataFrame)
        assert frame.to_dicts() == table("dicts")


def test_parquet_files_hold_the_tables_with_types(tmp_path: Path) -> None:
    run = stored(tmp_path / "run")
    done = CliRunner().invoke(main, ["runs", "export", str(run.path), "--parquet", "--json"])
    files = {Path(path).name: path for path in json.loads(done.output)["files"]}
    for name, rows in (
        ("episodes", run.episodes("dicts")),
        ("turns", run.turns("dicts")),
        ("metrics", run.metrics("dicts")),
    ):
        table = pq.read_table(files[f"{name}.parquet"])
        assert table.to_pylist() == rows
    assert str(pq.read_schema(files["turns.parquet"]).field("turn").type) == "int64"


def test_parquet_of_a_long_run_needs_little_memory(tmp_path: Path, monkeypatch: Any) -> None:
    text = "word " * 20_000  # 100 kB a turn, 40 MB in all
    with RunStore.create(tmp_path / "run", "", {}) as store:
        for i in range(8):
            turns = Trajectory([Turn(0, "a", output=Output(f"{i} {text}"))])
            many = [Episode(f"{i}/{n}", Problem("p"), turns) for n in range(50)]
            store.commit_iteration(0, i, many, {}, None)
    monkeypatch.setattr(tables, "_GROUP_CHARACTERS", 1_000_000)
    tracemalloc.start()
    try:
        with RunReader(tmp_path / "run") as reader:
            groups = sum(1 for _ in tables.parquet(tables.turns(reader)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert groups > 30
    assert peak < 60_000_000  # a page of 256 episodes of the database, decoded once
