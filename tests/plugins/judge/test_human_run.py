"""A run that waits for a person: it pauses, is answered, and goes on where it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from orchestrion.runs import RunReader
from tests.end_to_end.support import command, environment, orchestrion

CONFIG = {
    "seed": 5,
    "task": {"use": "steps", "steps": 2, "train": 1, "validation": 1, "test": 3},
    "agents": {"writer": {"use": "scripted", "lines": [{"content": "Line 1: 5"}]}},
    "policy": {"use": "sequence", "steps": ["writer"]},
    "reward": {"use": "human", "gather": 0.2},
    "run": {"name": "asked"},
    "evaluation": {"split": "test"},
}


def answers(folder: Path, typed: str) -> str:
    """Answer what waits; what was shown."""
    done = subprocess.run(
        command("judge", "asked"),
        cwd=folder,
        env=environment(),
        input=typed,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_a_run_pauses_for_answers_and_resumes_with_them(tmp_path: Path) -> None:
    (tmp_path / "orchestrion.yaml").write_text(json.dumps(CONFIG))
    done = orchestrion("train", cwd=tmp_path, code=4)
    assert "3 questions wait for a person" in done.stderr
    listed = orchestrion("judge", "asked", "--json", cwd=tmp_path)
    assert len(json.loads(listed.stdout)["waiting"]) == 3

    shown = answers(tmp_path, "no idea\n10\n\n")
    assert shown.count("How good is this work?") == 3
    assert "that is no integer from 0 to 10" in shown
    assert "1 questions wait" in shown
    orchestrion("resume", "asked", cwd=tmp_path, code=4)

    assert "0 questions wait" in answers(tmp_path, "4\n")
    orchestrion("resume", "asked", cwd=tmp_path)
    with RunReader(tmp_path / "runs" / "asked") as store:
        assert store.status == "completed"
        rewards = [one.episode.reward for one in store.episodes()]
    assert sorted(one.total for one in rewards if one is not None) == [0.4, 1.0]
    assert len(rewards) == 3

    report = orchestrion("judge-report", "asked", "--json", cwd=tmp_path)
    [human] = json.loads(report.stdout)["judges"]
    assert (human["judge"], human["judged"], human["missing"]) == (
        "human",
        2,
        {"no judgement that could be used": 1},
    )
    orchestrion("replay", "asked", cwd=tmp_path)
