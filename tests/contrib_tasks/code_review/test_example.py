"""The example in little: it trains and reports, offline, and keeps hidden tests to itself."""

from __future__ import annotations

import json
from pathlib import Path

from tests.contrib_tasks.code_review.support import closed
from tests.end_to_end.support import EXAMPLES, here


def test_the_example_trains_reports_and_stores_no_hidden_test(tmp_path: Path) -> None:
    little = (
        "task.max_problems=2",
        "task.measures=[]",
        "trainer.iterations=1",
        "trainer.episodes=4",
    )
    options = [word for one in little for word in ("-o", one)]
    done = here("train", str(EXAMPLES / "code-review.yaml"), *options, cwd=tmp_path)
    assert "learned minus fixed-workflow" in done.stdout
    assert "failed: " not in done.stdout + done.stderr
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"play-writer" in stored
    task = closed(generated=30, max_problems=2, measures=[])
    for split in ("train", "validation", "test"):
        for problem in task.problems(split):
            assert problem.id.encode() in stored or split != "train"
            for test in problem.hidden["tests"]:
                assert test["text"].encode() not in stored
                assert json.dumps(test["text"])[1:-1].encode() not in stored
