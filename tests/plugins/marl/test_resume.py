"""A training that was killed with signal 9 and resumed has the result of one that was not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from orchestrion.runs import RunReader
from tests.end_to_end.support import orchestrion, result, start
from tests.plugins.marl.support import config

CONFIG = config(
    warm={"episodes": 8, "steps": 4, "batch": 8},
    iterations=4,
    updates=2,
    advantage={"estimator": "gae"},
    kl={"weight": 0.01},
)


def write(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "team.yaml"
    path.write_text(json.dumps(CONFIG))  # every JSON text is YAML
    return path


def test_kill_9_and_resume_give_the_same_bytes(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole")
    orchestrion("train", str(whole), cwd=whole.parent)
    wanted: dict[str, Any] = result(whole.parent / "runs" / "team-1")
    assert len(wanted["iterations"]) == 5
    cut = write(tmp_path / "cut")
    process = start(cut.parent, "train", str(cut))
    directory = cut.parent / "runs" / "team-1"
    while process.poll() is None:
        if (directory / "run.db").exists():
            with RunReader(directory) as run:
                if len(run.iterations()) >= 3:
                    break
        time.sleep(0.005)  # poll the folder; the test does not depend on this delay
    process.kill()
    process.wait()
    with RunReader(directory) as run:
        assert 3 <= len(run.iterations()) < 5
    orchestrion("resume", "team-1", cwd=cut.parent)
    assert result(directory) == wanted
