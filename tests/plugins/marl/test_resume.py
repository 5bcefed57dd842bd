"""A training that was interrupted and resumed has the result of one that was not."""

from __future__ import annotations

from pathlib import Path

from orchestrion.config import from_data
from tests.plugins.evolution.support import result, train
from tests.plugins.marl.support import config


def test_a_resumed_training_gives_the_same_bytes(tmp_path: Path) -> None:
    given = from_data(
        config(
            warm={"episodes": 8, "steps": 4, "batch": 8},
            iterations=4,
            updates=2,
            advantage={"estimator": "gae"},
            kl={"weight": 0.01},
        )
    )
    whole = result(train(given, tmp_path / "whole"))
    assert len(whole["metrics"]) == 5
    train(given, tmp_path / "cut", until=2)
    assert result(train(given, tmp_path / "cut")) == whole
