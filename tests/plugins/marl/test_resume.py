"""A training has one result, however slow the disk is, and wherever it was interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from orchestrion_local.runtime import LocalModel
from orchestrion_local.sampling import Completion, Prompt

from orchestrion import BudgetError
from orchestrion._replay import replay
from orchestrion.config import Config, from_data
from orchestrion.runs import RunReader
from tests.plugins.evolution.support import Silent, result, train
from tests.plugins.marl.support import config


@pytest.mark.parametrize("lag", [0, 1])
def test_a_resumed_training_gives_the_same_bytes(tmp_path: Path, lag: int) -> None:
    given = from_data(
        config(
            warm={"episodes": 8, "steps": 4, "batch": 8},
            iterations=4,
            updates=2,
            lag=lag,
            advantage={"estimator": "gae", "actions": ("calls", "tokens")[lag]},
            kl={"weight": 0.01},
        )
    )
    whole = result(train(given, tmp_path / "whole"))
    assert len(whole["metrics"]) == 5
    train(given, tmp_path / "cut", until=2)
    assert result(train(given, tmp_path / "cut")) == whole


def test_contenders_that_ask_the_same_and_resumed_runs_replay_identically(tmp_path: Path) -> None:
    data = config(iterations=2)
    alone = {"policy": {"use": "sequence", "steps": ["answerer"]}}
    data["evaluation"]["baselines"] = {"alone": alone}
    given = from_data(data)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(given, whole)
    train(given, cut, until=1)
    train(given, cut)
    for folder in (whole, cut):
        assert asyncio.run(replay(folder, Silent())).difference == ""
    with RunReader(whole) as run:
        calls = run.spend().calls
        assert calls == sum(row["calls"] for row in run.episode_rows()), "each is booked"


def out_of_step() -> Config:
    """Return a config whose episodes ask three models at different times, more than run at once."""
    data = config(problems=4, group=4)
    data["task"] |= {"rounds": 4}
    data["policy"] = {"use": "random"}
    data["limits"] = {"turns": 12}
    return from_data({**data, "run": {"concurrency": 8}})


def records(folder: Path) -> dict[str, Any]:
    """Return all that a run found out, with the log-probabilities in its episodes."""
    with RunReader(folder) as run:
        episodes = {row["id"]: row["record"] for row in run.episode_rows()}
    assert any("logprobs" in record for record in episodes.values())
    return {**result(folder), "episodes": episodes}


class Batches:
    """What the models compute together; ends the run instead of batch `interrupt_at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.computed: list[tuple[str, list[tuple[int, ...]]]] = []
        self.interrupt_at: int | None = None
        plain = LocalModel._sample

        def sample(model: LocalModel, wanted: Sequence[Prompt]) -> list[Completion]:
            if len(self.computed) == self.interrupt_at:
                raise BudgetError("as if the budget were used up")
            self.computed.append((model.name, [tuple(item.prompt) for item in wanted]))
            return plain(model, wanted)

        monkeypatch.setattr(LocalModel, "_sample", sample)


async def at_once(do: Callable[..., Any], *arguments: Any) -> Any:
    """Do what should be done in a thread before anything else happens."""
    return do(*arguments)


async def late(do: Callable[..., Any], *arguments: Any) -> Any:
    """Do what should be done in a thread when all that does not wait for it has gone on."""
    for _ in range(200):
        await asyncio.sleep(0)
    return do(*arguments)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Batches:
    return Batches(monkeypatch)


def test_how_long_a_commit_takes_changes_neither_batches_nor_log_probabilities(
    tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = out_of_step()
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    fast = records(train(given, tmp_path / "fast"))
    first, batches.computed = batches.computed, []
    monkeypatch.setattr(asyncio, "to_thread", late)
    slow = records(train(given, tmp_path / "slow"))
    assert batches.computed == first
    assert slow == fast


def test_a_run_interrupted_between_batches_computes_the_same_ones_when_resumed(
    tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    given = out_of_step()
    whole = records(train(given, tmp_path / "whole"))
    first, batches.computed = batches.computed, []
    batches.interrupt_at = 4
    with pytest.raises(BudgetError):
        train(given, tmp_path / "cut")
    assert batches.computed == first[:4]
    batches.interrupt_at, batches.computed = None, []
    assert records(train(given, tmp_path / "cut")) == whole
    assert batches.computed == first
