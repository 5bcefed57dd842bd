"""Killed in the middle of a round, a run of an improver goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrion.config import Config
from tests.end_to_end.support import orchestrion, result, start, wait_for_iterations
from tests.plugins.improve.support import config
from tests.plugins.improve.test_gepa import given as evolving

HABITS = config({"iterations": 4, "pairs": 84})
TEXTS = evolving({"iterations": 3, "evaluations": 100, "pairs": 40})


@pytest.mark.parametrize("tried", [HABITS, TEXTS], ids=["behaviours", "gepa"])
def test_kill_9_and_resume_end_like_a_run_that_was_left_alone(
    tried: Config, tmp_path: Path
) -> None:
    (tmp_path / "team.yaml").write_text(tried.to_yaml())
    words = ("train", "team.yaml", "-o", "run.name=whole")
    orchestrion(*words, cwd=tmp_path)
    whole = result(tmp_path / "runs" / "whole")
    process = start(tmp_path, "train", "team.yaml", "-o", "run.name=cut")
    directory = tmp_path / "runs" / "cut"
    wait_for_iterations(directory, 1, process)
    process.kill()
    process.wait()
    orchestrion("resume", "cut", cwd=tmp_path)
    assert result(directory) == whole
