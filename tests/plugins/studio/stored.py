"""Runs for the tests, written to a store as the trainers write them, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrion import Array, Episode, Output, Problem, Reward, Saved, Scores, Trajectory, Turn
from orchestrion._store import Checkpoint
from orchestrion.runs import RunReader, RunStore

CONFIG = """\
seed: 7
task: {use: relay, train: 2}
agents:
  solver: {use: chat, habits: [Be brief.]}
  critic: {use: chat}
policy: {use: sequence, steps: [solver]}
trainer: {use: improve, iterations: 4, rate: RATE}
limits: {turns: 3}
budget: {calls: null, tokens: 1000, usd: 2.0, minutes: null}
run: {iterations: null, retention: all}
evaluation:
  split: test
  seeds: 1
  baselines: {chain: {policy: {use: sequence, steps: []}, trainer: {use: best-sequence}}}
"""
HOSTILE = "<script>alert(1)</script>\"'&|`\u202e\x1b[2J"
"""What an agent may write or be called, to harm who reads it."""


def outcomes(
    solved: Sequence[float], spent: Mapping[str, float] = {}
) -> dict[str, dict[str, float]]:
    """Return an evaluation's outcomes: a problem for each share."""
    zeros = dict.fromkeys(("cost", "turns", "missing", "limit", "failed", "usd", "tokens"), 0.0)
    return {
        f"p{n}": {**zeros, "solved": share, "reward": share / 2, "calls": 0.0, **spent}
        for n, share in enumerate(solved)
    }


def run_at(
    directory: Path,
    *,
    components: Mapping[str, Any] | None = None,
    overlay: Mapping[str, Any] | None = None,
    metrics: Sequence[Mapping[str, float]] = ({"reward": 0.25, "success": 0.5},),
    solved: Sequence[float] = (),
    text: str = "an answer",
    rate: str = "0.1",
    status: Any = "completed",
    spent: Mapping[str, float] = {},
) -> RunReader:
    """Write a run, and return it open for reading.

    Args:
        directory: where.
        components: what components saved in the last iteration, by path: plain data.
        overlay: learned settings.
        metrics: of each iteration.
        solved: share of tries that solved each held-out problem; no evaluation if empty.
        text: what its agents say.
        rate: a setting of its trainer.
        status: how it ended.
        spent: of each held-out problem, e.g. `cost`.
    """
    array = Array("F32", (2, 3), bytes(24))
    states = {path: Saved({}, data) for path, data in (components or {}).items()}
    states["weights"] = Saved({"w": array}, None)
    with RunStore.create(directory, CONFIG.replace("RATE", rate), {"seed": 7}) as store:
        for i, row in enumerate(metrics):
            episode = _episode(f"{i}/0", text, row.get("reward", 0.0))
            last = i == len(metrics) - 1
            checkpoint = Checkpoint(0, i, states, dict(overlay or {}), roster=("solver", "critic"))
            written = checkpoint if last else None
            store.commit_iteration(0, i, [episode], dict(row), written, seconds=2.0)
        if solved:
            digests = {f"p{n}": f"d{n}" for n in range(len(solved))}
            results = {"learned": (solved, None), "chain": ([0.0] * len(solved), ["critic"])}
            for name, (shares, steps) in results.items():
                state = None if steps is None else {"arrays": {}, "data": {"steps": steps}}
                store.save_evaluation(
                    name,
                    {
                        "outcomes": outcomes(shares, spent),
                        "digests": digests,
                        "trained_on": 1,
                        "state": state,
                        "kinds": {},
                    },
                    [_episode(f"evaluate/{name}/0", text, 0.5)],
                )
        store.record_event("noted", {"text": text})
        if status != "running":
            store.set_status(status)
    return RunReader(directory)


def _episode(name: str, text: str, reward: float) -> Episode:
    turn = Turn(0, "solver", output=Output(text))
    return Episode(
        name,
        Problem("p0", text),
        Trajectory([turn]),
        scores=Scores(1.0, True),
        reward=Reward(reward),
    )
