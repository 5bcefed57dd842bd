"""`orchestrion bench` on configs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from orchestrion_orchestration_bench.command import bench

from orchestrion.cli import Main, Options

CONFIG = """
task: {use: relay, horizon: 3, types: {quick: [code]}}
agents:
  coder_l: {use: bench-agent}
  second: {use: bench-agent, plays: coder_s}
  end: {use: terminator}
policy: {use: sequence, steps: [second, coder_l, end]}
reward: {use: outcome-minus-cost, cost_weight: 1.0}
"""


def invoke(folder: Path, *args: str, text: str = CONFIG) -> Result:
    path = folder / "relay.yaml"
    path.write_text(text)
    return CliRunner().invoke(bench, [str(path), *args], obj=Options(), standalone_mode=False)


def test_it_is_a_command_of_orchestrion() -> None:
    assert Main().get_command(Main().make_context("orchestrion", ["bench"]), "bench") is bench


def test_it_prints_values_and_regrets(tmp_path: Path) -> None:
    done = invoke(tmp_path, "--episodes", "2000")
    assert done.exception is None, done.output
    assert "relay, cost weight 1" in done.output
    assert "Monte Carlo over 2000 episodes" in done.output
    assert "best chain" in done.output


def test_a_fixed_sequence_has_the_regret_of_that_chain(tmp_path: Path) -> None:
    report = json.loads(invoke(tmp_path, "--json", "--episodes", "4000").output)["regret"]
    # Right after both calls: 0.45 x 0.9 + 0.55 x 0.98 = 0.944, for 0.14.
    assert report["sampled"]["worth"]["cost"] == pytest.approx(0.14)
    assert report["sampled"]["worth"]["quality"] == pytest.approx(0.944, abs=0.02)
    assert report["chain"]["value"] == pytest.approx(0.804)
    assert report["optimum"]["value"] > 0.804
    assert report["sampled"]["method"] == "monte carlo"


def test_the_cost_weight_is_the_rewards_or_the_options(tmp_path: Path) -> None:
    cheap = CONFIG.replace("cost_weight: 1.0", "cost_weight: 0.5")
    args = ("--json", "--episodes", "20")
    assert json.loads(invoke(tmp_path, *args, text=cheap).output)["regret"]["cost_weight"] == 0.5
    given = invoke(tmp_path, *args, "--cost-weight", "0.25", text=cheap)
    assert json.loads(given.output)["regret"]["cost_weight"] == 0.25


@pytest.mark.parametrize(
    "reward", ["{use: exact-outcome}", "{use: outcome-minus-cost, measure: turns}"]
)
def test_without_a_plain_cost_weight_it_asks_for_one(tmp_path: Path, reward: str) -> None:
    text = CONFIG.replace("{use: outcome-minus-cost, cost_weight: 1.0}", reward)
    done = invoke(tmp_path, text=text)
    assert "give one with --cost-weight" in str(done.exception)


def test_settings_can_be_tried_with_overrides(tmp_path: Path) -> None:
    done = invoke(tmp_path, "--json", "--episodes", "20", "-o", "task.horizon=1")
    assert json.loads(done.output)["regret"]["optimum"]["value"] == pytest.approx(0.78)
