"""Trackers without any of the libraries: what is sent, how often, and what happens if it fails."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from click.testing import CliRunner
from orchestrion_track.command import track
from orchestrion_track.follow import follow

from orchestrion import UsageError
from orchestrion.runs import RunReader, train
from tests.plugins.track import support
from tests.plugins.track.support import Lines, Values, config, lines, stored

LINES = "tests.plugins.track.support:Lines"


def values(file: Path) -> Values:
    """Return the points of iterations and results; fails if one is there twice."""
    found: Values = {}
    for point in lines(file):
        for name, value in point["values"].items():
            assert (name, point["step"]) not in found
            found[name, point["step"]] = value
    return found


def events(directory: Path) -> list[str]:
    with RunReader(directory) as reader:
        return [str(event.data) for event in reader.events() if event.kind == "observer"]


def tracked(file: Path | str, **settings: Any) -> dict[str, dict[str, Any]]:
    return {"own": {"use": LINES, "file": str(file), "patience": 120.0, **settings}}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was tracked; its tracker wrote to `live.jsonl` beside the folder."""
    folder = tmp_path_factory.mktemp("live")
    return support.run(folder / "run", tracked(folder / "live.jsonl"))


def test_a_tracker_of_ones_own_gets_what_the_store_holds_and_the_results(live: Path) -> None:
    found = values(live.parent / "live.jsonl")
    results = {name: value for (name, step), value in found.items() if step == 3}
    assert {key: value for key, value in found.items() if key[1] < 3} == stored(live)
    assert results["evaluation/learned/solved"] == 1.0
    assert results["spend/usd"] == 0.0
    assert (support.sent(live)["sent"], events(live)) == (4, [])


def test_a_run_that_is_sent_later_gives_what_was_sent_live(live: Path, tmp_path: Path) -> None:
    file = tmp_path / "later.jsonl"
    arguments = [str(live), "--to", LINES, "--option", f"file={file}"]
    for _ in range(2):  # the second time there is nothing more to send
        result = CliRunner().invoke(track, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        assert lines(file) == lines(live.parent / "live.jsonl")


def test_a_run_is_sent_where_its_plugins_are_not_installed(live: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    copytree(live, run)
    text = (run / "config.yaml").read_text()
    text = re.sub('use: "(?!tests.plugins.track)', 'use: "gone.', text) + 'x: "${env:NO}"\n'
    (run / "config.yaml").write_text(text)
    file = tmp_path / "later.jsonl"
    for arguments in (["--to", "own", "--option", f"file={file}"], ["--to", "mlfow"]):
        answer = CliRunner().invoke(track, [str(run), *arguments])
    assert lines(file) == lines(live.parent / "live.jsonl")
    assert "did you mean 'mlflow'" in str(answer.exception)


def test_trackers_change_nothing_in_a_run(live: Path, tmp_path: Path) -> None:
    train(config({}), tmp_path / "plain")
    assert stored(tmp_path / "plain") == stored(live)
    with RunReader(tmp_path / "plain") as plain, RunReader(live) as other:
        assert plain.load_evaluations() == other.load_evaluations()
        # The tracker of the tests is code of the user's, of which a run notes the digest.
        name = support.__name__
        code = plain.manifest["code"] | {name: other.manifest["code"][name]}
        assert plain.manifest | {"code": code} == other.manifest
        digests = [[i.digest for i in reader.iterations()] for reader in (plain, other)]
        assert digests[0] == digests[1], "checkpoints are the same bytes"


def test_a_killed_run_goes_on_in_the_same_tracker_run_and_nothing_is_there_twice(
    live: Path, tmp_path: Path
) -> None:
    file = tmp_path / "killed.jsonl"
    directory = support.killed_and_resumed(tmp_path / "run", tracked(file))
    assert {k: v for k, v in values(file).items() if k[1] < 3} == stored(directory) == stored(live)
    text = file.read_text()
    assert text.count(f'"run": "{support.sent(directory)["run"]}"') == 2, "begun, and resumed"


def test_a_writer_that_is_killed_is_said_once_and_its_points_are_not_sent_again(
    live: Path, tmp_path: Path
) -> None:
    file = tmp_path / "crashed.jsonl"
    directory = support.run(tmp_path / "run", tracked(file, trouble="crash"))
    [text] = events(directory)
    assert "the tracker lines ended with exit code -9; the run goes on without it" in text
    tracker = Lines(str(file), "crash")
    follow(directory, tracker, lambda seconds: True)
    follow(directory, tracker, lambda seconds: True)
    assert {k: v for k, v in values(file).items() if k[1] < 3} == stored(live)


def test_a_tracker_that_fails_is_said_once_and_the_run_completes(tmp_path: Path) -> None:
    directory = support.run(tmp_path / "run", tracked("x", trouble="fail"))
    [text] = events(directory)
    assert "the tracker lines failed: OSError: no such place" in text
    assert f"`orchestrion track {directory}`" in text


def test_a_tracker_that_never_answers_is_left_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        port = hole.getsockname()[1]
        trouble = tracked(port, trouble="silence", patience=0.01)
        directory = support.run(tmp_path / "run", trouble)
    [text] = events(directory)
    assert "the tracker lines" in text
    with RunReader(directory) as reader:
        assert reader.status == "completed"


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_missing_library_is_named_with_its_extra_before_there_is_a_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrion_track.interfaces.find_spec", lambda module: None)
    with pytest.raises(UsageError, match=rf'pip install "orchestrion-track\[{name}\]"'):
        train(config({"it": {"use": name}}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_says_what_is_missing(live: Path, tmp_path: Path) -> None:
    for arguments, text in (
        ([str(live), "--option", "uri=x"], "--option needs --to"),
        ([str(live), "--to", "mlfow"], "(?m)^ *--to: .*did you mean 'mlflow'"),
        ([str(live), "--to", "mlflow", "--option", "url=x"], "(?m)^ *--option url: .*mean 'uri'"),
        ([str(live.parent / "none")], "no run"),
    ):
        with pytest.raises(UsageError, match=text):
            CliRunner().invoke(track, arguments, catch_exceptions=False)
