"""What is learned does not depend on how many threads linear algebra may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from threadpoolctl import threadpool_limits

from orchestrion.cli import main

CONFIG = """
task: {use: relay, horizon: 6, train: 40, test: 8}
agents:
  coder_l: {use: bench-agent}
  coder_s: {use: bench-agent}
  stop: {use: bench-agent}
policy: {use: values, encoders: [{use: text, problem: 64, turns: 32}, {use: counts}]}
trainer: {use: fitted-q, episodes: 96, trees: 0}
reward: {use: outcome-minus-cost}
run: {directory: FOLDER, name: made}
"""


def learned(folder: Path, threads: int, *overrides: str) -> bytes:
    """The last checkpoint of a training run."""
    folder.mkdir()
    path = folder / "relay.yaml"
    path.write_text(CONFIG.replace("FOLDER", str(folder)))
    with threadpool_limits(threads, user_api="blas"):
        done = CliRunner().invoke(main, ["train", str(path), *overrides])
    assert done.exit_code == 0, done.output
    return max(folder.glob("made*/checkpoints/*.safetensors")).read_bytes()


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((), id="fitted-q"),
        pytest.param(
            ("-o", "policy.encoders=[]", "-o", "trainer={use: optimistic, episodes: 60}"),
            id="optimistic",
        ),
        pytest.param(("-o", "trainer={use: bandit, episodes: 60, text: true}"), id="bandit"),
    ],
)
def test_one_and_two_threads_learn_the_same_to_the_bit(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    assert learned(tmp_path / "1", 1, *overrides) == learned(tmp_path / "2", 2, *overrides)
