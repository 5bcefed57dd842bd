"""The example trains and reports, offline; here in little, `docs/examples/` has it in full."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.support import EXAMPLES, orchestrion


def test_the_example_trains_and_reports(tmp_path: Path) -> None:
    little = (
        "task.max_problems=2",
        "task.measures=[ruff]",
        "trainer.iterations=1",
        "trainer.episodes=4",
    )
    options = [word for one in little for word in ("-o", one)]
    done = orchestrion("train", str(EXAMPLES / "code-review.yaml"), *options, cwd=tmp_path)
    assert "learned minus fixed-workflow" in done.stdout
    assert "failed: " not in done.stdout + done.stderr
