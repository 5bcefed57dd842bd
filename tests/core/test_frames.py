"""Tables as data frames; needs libraries that CI does without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.test_runs_from_python import stored

pandas = pytest.importorskip("pandas", reason="gives data frames")


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
