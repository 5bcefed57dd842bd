"""A run that learned to stop says so, whatever is kept of its episodes; a good one is silent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrion.cli import main

CONFIG = """
task: {use: relay, horizon: 3, types: {some: [SKILL]}, train: 16, test: 16}
agents:
  coder_l: {use: bench-agent}
  stop: {use: bench-agent}
policy: {use: sequence}
trainer: {use: best-sequence, length: 2, problems: 16}
reward: {use: outcome-minus-cost, cost_weight: 1.0}
evaluation: {baselines: [random]}
run: {directory: FOLDER, retention: none}
"""


@pytest.mark.parametrize(
    ("skill", "level", "kinds"),
    [
        pytest.param("code", 0, [], id="the coder can do it"),
        pytest.param("review", 2, ["some"], id="nobody can"),
    ],
)
def test_the_warning_level_of_a_run(
    tmp_path: Path, skill: str, level: int, kinds: list[str]
) -> None:
    path = tmp_path / "relay.yaml"
    path.write_text(CONFIG.replace("SKILL", skill).replace("FOLDER", str(tmp_path / "runs")))
    done = CliRunner().invoke(main, ["train", str(path), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    about = [finding["about"] for finding in told["diagnosis"] if finding["level"] == 2]
    assert (told["warning_level"], about) == (level, [kinds] if kinds else [])
    summary = json.loads((tmp_path / "runs/relay-1/exports/summary.json").read_text())
    assert summary["diagnosis"] == told["diagnosis"]
    assert summary["stopped_at_once"] == told["stopped_at_once"] == kinds
    shown = CliRunner().invoke(main, ["runs", "show", str(tmp_path / "runs/relay-1")]).stdout
    assert ("warning: what was learned stops at once" in shown) == bool(level)
