"""Everything at once: an evolved graph, in it an ensemble, in that a learned team."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrion import Trajectory
from orchestrion.runs import RunReader
from tests.end_to_end.support import EXAMPLES, anew, here, result, start, wait_for_iterations

BEGIN = ("-o", "agents.crew.policy.begin=runs/crew")
SMALL = (
    *("-o", "task.max_problems=8", "-o", "evaluation.episodes=4", "-o", "evaluation.baselines={}"),
    *("-o", "run.checkpoint_every=1"),
)
SEARCH = (
    *("-o", "trainer.evaluations=12", "-o", "trainer.batch=3", "-o", "trainer.problems=2"),
    *("-o", "trainer.held_out=2", "-o", "trainer.baselines=[]"),
)
COMPOSED = ("train", str(EXAMPLES / "composed.yaml"), *BEGIN, *SMALL, *SEARCH)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run of the small team, then an uninterrupted one of all of it, and the latter's result."""
    folder = tmp_path_factory.mktemp("whole")
    few = ("-o", "trainer.iterations=2", "-o", "trainer.episodes=16")
    here("train", str(EXAMPLES / "crew.yaml"), *SMALL, *few, cwd=folder)
    anew(*COMPOSED, cwd=folder)  # with another hash seed than all others
    return folder, result(folder / "runs" / "composed")


def nested(trajectory: Trajectory) -> list[tuple[str, ...]]:
    """Who acted inside whom, outermost first."""
    found = []
    for turn in trajectory.turns:
        inner = nested(turn.output.inner) if turn.output.inner is not None else []
        found += [(turn.agent,), *((turn.agent, *below) for below in inner)]
    return found


def test_the_record_shows_the_nesting(whole: tuple[Path, dict[str, Any]]) -> None:
    with RunReader(whole[0] / "runs" / "composed") as run:
        paths = {path for one in run.episodes() for path in nested(one.episode.trajectory)}
        assert "runs/crew" in run.manifest["opened"]["agents.crew.policy"]["began"]
    assert ("panel",) in paths
    assert {("panel", "crew"), ("panel", "second"), ("panel", "third")} <= paths
    assert paths & {("panel", "crew", name) for name in ("writer", "reviewer", "mender")}


def test_kill_9_resume_and_replay_end_the_same(
    tmp_path: Path, whole: tuple[Path, dict[str, Any]]
) -> None:
    folder = tmp_path
    shutil.copytree(whole[0] / "runs" / "crew", folder / "runs" / "crew")
    process = start(folder, *COMPOSED)
    directory = folder / "runs" / "composed"
    wait_for_iterations(directory, 1, process)
    process.kill()
    process.wait()
    # One episode at a time: how many run at once changes nothing either.
    here("resume", "composed", "-o", "run.concurrency=1", cwd=folder)
    assert result(directory) == whole[1]
    assert here("replay", "composed", cwd=folder).stdout.startswith("identical: ")
