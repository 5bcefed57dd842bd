"""Other runs as something to learn from: their episodes, and the statistics of their bandits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from orchestrion_values.bandit_model import BanditModel

from orchestrion import CheckpointError, UsageError
from orchestrion.cli import main
from orchestrion.runs import RunReader, train
from tests.plugins.values.support import Notes
from tests.plugins.values.support import relay as config


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a bandit with 24 episodes."""
    folder = tmp_path_factory.mktemp("runs") / "earlier"
    train(config({"use": "bandit", "episodes": 24}), folder)
    return folder


def test_fitted_q_learns_from_the_episodes_of_other_runs(earlier: Path, tmp_path: Path) -> None:
    fewest = {"use": "fitted-q", "episodes": 8, "trees": 0}
    notes, folder = Notes(), tmp_path / "later"
    train(config({**fewest, "runs": [str(earlier)]}), folder, notes)
    told = re.search(
        r"learned from (\d+) episodes; .*: (\d+) episodes left out", notes.told["runs"]
    )
    assert told is not None
    learned, left_out = map(int, told.groups())
    assert learned + left_out == 24
    with RunReader(folder) as reader:
        checkpoint = reader.usable().checkpoint
        own = sum(len(stored.episode.decisions) for stored in reader.episodes(source="train"))
    assert checkpoint is not None
    decisions = checkpoint.components["trainer"].arrays["choice"].shape[0]
    with RunReader(earlier) as reader:
        made = sum(len(stored.episode.decisions) for stored in reader.episodes(source="train"))
    assert learned <= decisions - own <= made


def test_episodes_count_though_the_policy_of_their_run_cannot_be_loaded(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a new version that knows the policy no more."""

    def refused(*_: object) -> None:
        raise CheckpointError("trained by an earlier version")

    monkeypatch.setattr(BanditModel, "load", refused)
    notes = Notes()
    settings = {"use": "fitted-q", "episodes": 8, "trees": 0, "runs": [str(earlier)]}
    train(config(settings), tmp_path / "later", notes)
    assert re.search(r"learned from \d+ episodes", notes.told["runs"])


def test_a_run_that_nothing_can_be_learned_from_is_an_error(earlier: Path, tmp_path: Path) -> None:
    fewest = {"use": "fitted-q", "episodes": 8, "trees": 0}
    with pytest.raises(UsageError, match=r"trainer\.runs: .*none"):
        train(config({**fewest, "runs": ["none"]}), tmp_path / "a")
    other = config({**fewest, "runs": [str(earlier)]}, team=("tester",))
    with pytest.raises(UsageError, match="a choice that this team lacks"):
        train(other, tmp_path / "b")


def test_statistics_of_runs_are_exported_merged_and_capped(earlier: Path, tmp_path: Path) -> None:
    once = CliRunner().invoke(main, ["statistics", str(earlier)])
    assert once.exit_code == 0, once.output
    file = tmp_path / "start.json"
    file.write_text(once.output)
    twice = json.loads(CliRunner().invoke(main, ["statistics", str(earlier), str(file)]).output)
    tries = [choice[0][0] for choice in json.loads(once.output)["squares"]]
    assert sum(tries) > 24
    assert [choice[0][0] for choice in twice["squares"]] == [2 * n for n in tries]
    capped = CliRunner().invoke(main, ["statistics", str(file), "--cap", "2"])
    counts = [choice[0][0] for choice in json.loads(capped.output)["squares"]]
    assert counts == pytest.approx([min(2.0, n) for n in tries])
    train(config({"use": "bandit", "episodes": 8, "start": str(file)}), tmp_path / "on")


def test_a_run_without_a_bandit_has_no_statistics(tmp_path: Path) -> None:
    run = tmp_path / "other"
    train(config({"use": "fitted-q", "episodes": 4, "trees": 0}), run)
    refused = CliRunner().invoke(main, ["statistics", str(run)])
    assert refused.exit_code != 0
    assert "no statistics of the trainer bandit" in refused.output
