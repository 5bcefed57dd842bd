"""Lists of runs: all that can be read, whatever lies beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrion._store.names import is_run
from orchestrion.runs import run_folders


def test_a_folder_that_cannot_be_read_hides_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed", "z/nested"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.db").write_bytes(b"")

    def refuse(folder: Path) -> bool:
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return is_run(folder)

    monkeypatch.setattr("orchestrion._store.glance.is_run", refuse)
    assert list(run_folders(tmp_path)) == [tmp_path / "a", tmp_path / "z/nested"]
