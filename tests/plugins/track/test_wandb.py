"""W&B's client writes a run offline, and goes on in it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("wandb", reason="the extra wandb is not installed")

from tests.plugins.track.support import killed_and_resumed, sent


def test_offline_files_of_a_killed_and_resumed_run_belong_to_one_run(tmp_path: Path) -> None:
    trackers = {"bees": {"use": "wandb", "mode": "offline", "report": True, "patience": 120.0}}
    directory = killed_and_resumed(tmp_path / "run", trackers)
    state = sent(directory)
    assert state["sent"] == 4
    files = sorted((directory / "wandb").glob("offline-run-*/*.wandb"))
    assert [file.name for file in files] == [f"run-{state['run']}.wandb"] * 2
    text = files[-1].read_bytes()
    assert b"evaluation/learned/solved" in text
    assert b"report.json" in text
