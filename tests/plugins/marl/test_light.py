"""Listing, validating and planning a config of local models loads no tensor library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.support import EXAMPLES, here
from tests.plugins.marl.support import config

SCRIPT = """
import sys
from orchestrion._cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = {"torch", "transformers", "peft", "tokenizers", "safetensors"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "words",
    [
        ("validate", str(EXAMPLES / "marl.yaml")),
        ("train", str(EXAMPLES / "marl.yaml"), "--dry-run"),
    ],
    ids=lambda words: words[0],
)
def test_commands_that_do_not_train_load_no_tensor_library(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_dry_run_bounds_the_number_of_calls(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps(config(warm={"episodes": 4}, iterations=3)))
    output = json.loads(here("train", str(path), "--dry-run", "--json", cwd=tmp_path).stdout)
    # At least 3 iterations of 3 problems by 4 episodes of at most 8 turns, one call each.
    assert sum(part["calls"] for part in output["bound"]["parts"]) >= 3 * 3 * 4 * 8
