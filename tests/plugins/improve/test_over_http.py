"""The same decisions with agents and coach behind HTTP, through the SDKs of two vendors."""

from __future__ import annotations

from pathlib import Path

from orchestrion.config import load
from orchestrion.runs import RunReader
from tests.end_to_end.support import EXAMPLES
from tests.plugins.improve.support import metrics_of, state_of, train

SMALL = (
    "trainer.iterations=1",
    "trainer.improver.pairs=70",
    "trainer.problems=4",
    "evaluation.episodes=4",
    "speakers.worker.habits[0].effect=0.45",
    "speakers.worker.habits[1].effect=-0.45",
)


def test_habits_of_chat_agents_are_tried_over_http(tmp_path: Path) -> None:
    run = train(load(EXAMPLES / "behaviours.yaml", SMALL), tmp_path / "run")
    [habits] = state_of(run)["learned"]["habits"]["solver"].values()
    assert {habit["text"]: habit["status"] for habit in habits} == {
        "Write the previous value down again.": "active",
        "Answer at once.": "refused",
        "Be polite and friendly.": "refused",
    }
    [metrics] = metrics_of(run)
    with RunReader(run) as reader:
        # One call an episode, one for the coach, and the evaluation's: learned and untrained.
        assert reader.spend().calls == metrics["episodes"] + 1 + 2 * 4
        [asked] = [row for row in reader.journal.rows() if row.who == "trainer"]
        assert asked.service.startswith("offline:coach")
