"""A saved policy is not used with other encoders than it was trained with."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from orchestrion.cli import main

CONFIG = """
task: {use: relay, horizon: 3, train: 8, test: 8}
agents:
  coder_l: {use: bench-agent}
  stop: {use: bench-agent}
policy: {use: values, encoders: [{use: text, problem: 64, turns: 32}]}
trainer: {use: fitted-q, episodes: 12}
reward: {use: outcome-minus-cost}
run: {directory: FOLDER, name: made}
"""


def test_other_encoders_of_the_same_width_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "relay.yaml"
    path.write_text(CONFIG.replace("FOLDER", str(tmp_path)))
    assert CliRunner().invoke(main, ["train", str(path)]).exit_code == 0
    made = str(next(p for p in tmp_path.glob("made*") if p.is_dir()))
    assert CliRunner().invoke(main, ["eval", made]).exit_code == 0
    other = "policy.encoders=[{use: text, problem: 32, turns: 64}]"
    refused = CliRunner().invoke(main, ["eval", made, "-o", other])
    assert refused.exit_code != 0
    assert "the policy was saved with encoders" in refused.output + refused.stderr
