"""`train --dry-run` checks each example as `validate` does, and says what it would do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.support import EXAMPLES, here

THEIRS = ("math", "search")
"""Examples to put files of one's own into."""
OURS = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.stem not in THEIRS]


@pytest.mark.parametrize("example", OURS, ids=lambda path: path.stem)
def test_an_example_is_described_and_nothing_is_left_behind(example: Path, tmp_path: Path) -> None:
    done = here("train", str(example), "--dry-run", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["problems"]["train"] > 0
    assert told["problems"][told["evaluated_on"]] > 0
    trained = "\ntrainer:" in example.read_text()
    assert bool(told["stages"]) == trained
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", THEIRS)
def test_an_example_for_files_of_ones_own_is_valid_and_says_which_are_missing(
    name: str, tmp_path: Path
) -> None:
    example = str(EXAMPLES / f"{name}.yaml")
    here("validate", "--no-open", example, cwd=tmp_path)
    done = here("train", example, "--dry-run", cwd=tmp_path, code=2)
    assert "No such file or directory: '/data/" in done.stderr
    assert not list(tmp_path.iterdir())
