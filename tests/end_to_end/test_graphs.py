"""Graphs whose agents ask a service side by side: resumed, and replayed at another speed."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from orchestrion.runs import RunReader
from tests.end_to_end.loopback import Server, asking, install
from tests.end_to_end.test_asking import call, killed_in_mid_episode, sometimes

AGENTS = ("plan", "left", "middle", "right", "review", "mend")
WAITING = {
    "edges": [
        *("plan -> left, middle, right", "left, middle, right -> review"),
        *("review -> mend when lower(content) in ['0', '1', '2', '3', '4']",),
    ],
    "outputs": ["review", "mend"],
}
RACING = {
    "nodes": {"review": {"join": "k_of_n", "k": 2}, "mend": {"join": "any"}},
    "edges": ["plan -> left, middle, right", "left, middle, right -> review, mend"],
}


def config(policy: dict[str, Any]) -> dict[str, Any]:
    return asking(
        agents={name: {"use": "ask", "model": "loop"} for name in AGENTS},
        policy={"use": "dag", **policy},
        limits={"turns": 9},
        run={"name": "graph"},
    )


def unlike(name: str) -> float:
    """Every answer takes its own time."""
    return int(sha256(name.encode()).hexdigest(), 16) % 8 / 400


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        one.slow = unlike
        yield one


def is_identical(folder: Path, env: dict[str, str]) -> bool:
    """Whether a replay, in which no call takes any time, comes out the same."""
    return call("replay", "graph", cwd=folder, env=env).stdout.startswith("identical: ")


def test_a_race_that_was_killed_and_resumed_is_replayed(tmp_path: Path, server: Server) -> None:
    env, in_flight = killed_in_mid_episode(tmp_path, server, config(RACING), 30)
    assert in_flight
    call("resume", "graph", cwd=tmp_path, env=env)
    assert is_identical(tmp_path, env)


def test_whom_a_failure_cuts_off_is_the_same_in_a_replay(tmp_path: Path, server: Server) -> None:
    env = install(tmp_path, config(WAITING))
    unlucky = sometimes(6)
    server.refuse = lambda name, n: 400 if unlucky(name) else 0
    # Refused at once, while what was asked beside it is on its way.
    server.slow = lambda name: 0.0 if unlucky(name) else 0.05 + unlike(name)
    call("train", *server.at_model, cwd=tmp_path, env=env)
    with RunReader(tmp_path / "runs" / "graph") as run:
        statuses = {turn.status for one in run.episodes() for turn in one.episode.turns}
    assert statuses == {"completed", "failed", "cancelled"}
    assert is_identical(tmp_path, env)
