"""`train --dry-run` says what each example would do, and does none of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.support import EXAMPLES, orchestrion


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_described_and_nothing_is_left_behind(example: Path, tmp_path: Path) -> None:
    done = orchestrion("train", str(example), "--dry-run", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert told["problems"]["train"] > 0
    assert told["problems"][told["evaluated_on"]] > 0
    trained = "\ntrainer:" in example.read_text()
    assert bool(told["stages"]) == trained
    assert not list(tmp_path.iterdir())
