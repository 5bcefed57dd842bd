"""What trackio shows is what the run store holds."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trackio", reason="the extra trackio is not installed")

import trackio
from orchestrion_track.follow import follow
from orchestrion_track.trackio import Trackio
from trackio.sqlite_storage import SQLiteStorage

from orchestrion import OrchestrionError
from tests.plugins.track.support import Values, killed_and_resumed, run, sent, stored
from tests.service import ModelService, Reply, reply


def test_a_killed_and_resumed_run_is_one_run_and_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackers = {"local": {"use": "trackio", "project": "team", "patience": 120.0}}
    directory = killed_and_resumed(tmp_path / "run", trackers)

    # This process decided where its database stands when it was imported.
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    [made] = trackio.Api().runs("team")
    assert sent(directory) == {"run": made.name, "sent": 4}
    found: Values = {}
    for row in SQLiteStorage.get_logs("team", made.name):
        for name in row.keys() - {"timestamp", "step"}:
            assert (name, row["step"]) not in found
            found[name, row["step"]] = row[name]
    assert {key: value for key, value in found.items() if key[1] < 3} == stored(directory)
    assert found["evaluation/learned/solved", 3] == 1.0


@pytest.mark.parametrize("answer", [reply(503), reply(200, b"<html>")])
def test_a_server_that_does_not_take_a_run_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Reply
) -> None:
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    directory = run(tmp_path / "run", {})
    with ModelService(answer) as server, pytest.raises(OrchestrionError, match="could not create"):
        follow(directory, Trackio(server=f"{server.url}/?write_token=x"), lambda seconds: True)
    assert not list((directory / "trackers").glob("*.json"))
