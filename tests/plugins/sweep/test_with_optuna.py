"""Sweeps by optuna: told again in order, they suggest the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.support import here
from tests.plugins.sweep.test_sweep import RELAY

pytest.importorskip("optuna", reason="needs orchestrion-sweep[optuna]")

CONFIG = f"""{RELAY}
search:
  trainer.problems: {{integers: [1, 8]}}
  limits.turns: {{choice: [1, 6]}}
sweep: {{method: optuna, trials: 6, parallel: 2, objective: [reward, cost]}}
"""


def test_a_resumed_sweep_suggests_the_same(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(CONFIG)
    first = swept("team.yaml", folder=tmp_path)
    directory = Path(first["sweep"])
    kept = directory / "000-as-configured"
    for run in directory.glob("00[345]-*"):  # as if it had been killed in the second batch
        for file in sorted(run.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        run.rmdir()
    second = swept("--resume", str(directory), folder=tmp_path)
    assert second == first
    assert kept.exists()
    assert set(first["front"]) <= {trial["trial"] for trial in first["trials"]}
    assert first["best"]["trial"] in first["front"]


def swept(*words: str, folder: Path) -> dict[str, Any]:
    """Run a sweep, and return its report."""
    report: dict[str, Any] = json.loads(here("sweep", *words, "--json", cwd=folder).stdout)
    return report
