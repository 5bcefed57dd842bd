"""TensorBoard's own reader gives back what the run store holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
pytest.importorskip("tensorboard", reason="TensorBoard reads what was written")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from tests.plugins.track.support import Values, killed_and_resumed, run, sent, stored

TRACKERS = {"board": {"use": "tensorboard", "patience": 120.0}}


def read(folder: Path) -> Values:
    """Return what TensorBoard shows of a folder; fails if a point is there twice."""
    found: Values = {}
    events: Any = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag) if not tag.startswith("config") else ():
            assert (tag, event.step) not in found
            found[tag, event.step] = tensor_util.make_ndarray(event.tensor_proto).item()
    return found


def test_its_reader_gives_back_the_store_and_the_results(tmp_path: Path) -> None:
    directory = run(tmp_path / "run", TRACKERS)
    found = read(directory / "tensorboard")
    assert {key: value for key, value in found.items() if key[1] < 3} == stored(directory)
    assert found["evaluation/learned/solved", 3] == 1.0


def test_a_killed_and_resumed_run_is_there_once_in_two_files(tmp_path: Path) -> None:
    directory = killed_and_resumed(tmp_path / "run", TRACKERS)
    found = read(directory / "tensorboard")
    assert {key: value for key, value in found.items() if key[1] < 3} == stored(directory)
    assert len(list((directory / "tensorboard").iterdir())) == 2
    assert sent(directory) == {"run": "tensorboard", "sent": 4}


def test_what_was_written_but_not_noted_is_there_once(tmp_path: Path) -> None:
    """As if the writer had been killed between the two."""
    from orchestrion_track.follow import follow, place_of
    from orchestrion_track.tensorboard import TensorBoard

    directory = run(tmp_path / "run", {})
    tracker = TensorBoard()
    follow(directory, tracker, lambda seconds: True)
    whole = read(directory / "tensorboard")
    place_of(directory, tracker).write_text('{"run": "tensorboard", "sent": 1}')
    follow(directory, tracker, lambda seconds: True)
    assert read(directory / "tensorboard") == whole
