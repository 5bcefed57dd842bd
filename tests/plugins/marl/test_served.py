"""A model that is trained here and sampled by a server: whole runs, killed and replayed."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orchestrion_local.settings import Architecture
from orchestrion_marl.calls import Sampled
from orchestrion_marl.trainer import MarlTrainer, finish

from orchestrion import Key, UsageError
from orchestrion._replay import replay
from orchestrion._run import Conduct
from orchestrion.config import load
from orchestrion.runs import RunReader, RunStore
from tests.end_to_end.support import start
from tests.end_to_end.test_asking import rows, until
from tests.plugins.evolution.support import Silent
from tests.plugins.local.engine import Engine, engine_of, server
from tests.plugins.local.support import opened
from tests.plugins.marl.support import MODEL, PROMPTS, SIZES, config, tensors, train
from tests.service import ModelService

Served = tuple[Engine, ModelService]


@pytest.fixture
def served() -> Iterator[Served]:
    """A server that begins with weights of another seed."""

    async def made() -> Engine:
        shape = Architecture(**SIZES)  # type: ignore[arg-type]
        async with opened(seed=99, architecture=shape, alphabet=MODEL["alphabet"]) as model:
            return engine_of(model)

    engine = asyncio.run(made())
    with server(engine) as running:
        yield engine, running


def team(running: ModelService, folder: Path | None = None, **marl: Any) -> dict[str, Any]:
    """All agents share one model, which the server samples."""
    how = {"sync": "disk", "folder": str(folder)} if folder is not None else {}
    given = {"base_url": f"{running.url}/v1", "model": "base", **how}
    return config(models={"m": {**MODEL, "server": given}}, of=dict.fromkeys(PROMPTS, "m"), **marl)


def test_a_team_learns_from_what_a_server_samples_with_its_weights(
    tmp_path: Path, served: Served
) -> None:
    engine, running = served
    done = train(tmp_path / "run", team(running, tmp_path / "weights", iterations=3))
    assert [name.split("-")[1] for name in engine.loaded][:3] == ["v0", "v1", "v2"]
    for metrics in done.metrics:
        assert metrics["stale"] == 0
        found = [value for name, value in metrics.items() if name.endswith("/mismatch")]
        assert found
        assert max(found) < 1e-4, "what was sampled from is what is trained"
    assert done.metrics[-1]["m/steps"] == 1


def test_a_server_without_sync_needs_max_staleness(tmp_path: Path, served: Served) -> None:
    _, running = served
    with pytest.raises(UsageError, match=r"max_staleness: m is sampled .* 1 versions old"):
        train(tmp_path / "refused", team(running))
    done = train(tmp_path / "run", team(running, max_staleness=1))
    assert [metrics["stale"] for metrics in done.metrics] == [0, 0]
    # The server has weights of another seed, which `mismatch` shows.
    assert done.metrics[0]["verifier/mismatch"] > 0.01


def test_kill_9_repeats_no_call_that_was_answered(tmp_path: Path, served: Served) -> None:
    engine, running = served
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps(team(running, tmp_path / "weights")))  # every JSON text is YAML
    directory = tmp_path / "runs" / "team-1"
    engine.hold = 35  # somewhere in the second iteration
    process = start(tmp_path, "train", str(path))
    until(process, lambda: len(engine.held) > 0)
    # The check before the run is not one of its calls.
    until(process, lambda: rows(directory, "answer") >= 35 - 1)
    process.kill()
    process.wait()
    answered = set(engine.asked)
    engine.hold = None

    made = load(directory / "config.yaml")
    with RunStore.open(directory) as store:
        asyncio.run(Conduct(made, store, Silent()).train())
        store.set_status("completed")
    again = {seed for seed in answered if engine.asked[seed] > 1}
    assert again == {0}, "the check before a run"
    assert engine.held <= set(engine.asked), "calls in flight are repeated"

    # A replay needs no call of the server.
    seen = len(running.seen)
    with RunReader(directory) as run:
        assert len(run.iterations()) == 2
    replayed = asyncio.run(replay(directory, Silent()))
    assert (replayed.difference, len(running.seen)) == ("", seen)


def test_with_a_lag_models_learn_while_a_server_samples_for_the_next_iteration(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, running = served
    asked_before_learning: list[int] = []
    learn = MarlTrainer._learn

    def late(trainer: MarlTrainer, sampled: Sampled, key: Key) -> dict[str, float]:
        # Samples must not need that learning has ended: it waits for one of each iteration.
        if threading.current_thread() is not threading.main_thread():
            total = sum(engine.asked.values())
            while sum(engine.asked.values()) == total:
                time.sleep(0.001)
            asked_before_learning.append(total)
        return learn(trainer, sampled, key)

    monkeypatch.setattr(MarlTrainer, "_learn", late)
    settings = {"iterations": 4, "lag": 1, "importance_cap": 2}
    done = train(tmp_path / "run", team(running, tmp_path / "weights", **settings))
    assert len(asked_before_learning) == 3
    # The second iteration, too, has the first weights: nothing was learned in the first.
    assert [name.split("-")[1] for name in engine.loaded][:3] == ["v0", "v1", "v2"]
    assert [metrics.get("staleness") for metrics in done.metrics] == [None, 0, 1, 1]
    assert [metrics["m/steps"] for metrics in done.metrics[1:]] == [1, 1, 1]
    assert done.metrics[-1]["stale"] == 0


def test_a_server_that_lost_weights_while_the_model_learns_gets_them_again(
    tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, running = served
    settings = {"iterations": 3, "lag": 1}
    expected = train(tmp_path / "run", team(running, tmp_path / "weights", **settings))
    loaded = list(engine.loaded)
    learn = MarlTrainer._learn

    def lose(trainer: MarlTrainer, sampled: Sampled, key: Key) -> dict[str, float]:
        metrics = learn(trainer, sampled, key)  # the model has another version now
        engine.weights = "default"
        return metrics

    monkeypatch.setattr(MarlTrainer, "_learn", lose)
    again = train(tmp_path / "again", team(running, tmp_path / "weights", **settings))
    assert len(engine.loaded) > 2 * len(loaded)
    assert tensors(again, "models.m") == tensors(expected, "models.m")


def test_who_cancels_a_training_waits_until_models_learn_no_more() -> None:
    began, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def learn() -> dict[str, float]:
        began.set()
        ended.append(may_end.wait(10))
        return {}

    async def main() -> None:
        waiting = asyncio.create_task(finish(asyncio.create_task(asyncio.to_thread(learn))))
        await asyncio.to_thread(began.wait, 10)
        waiting.cancel()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == [True]

    asyncio.run(main())


def test_a_kill_while_it_samples_and_learns_changes_nothing(tmp_path: Path, served: Served) -> None:
    engine, running = served
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps(team(running, tmp_path / "weights", iterations=3, lag=1)))
    directory = tmp_path / "runs" / "team-1"
    engine.hold = 35  # in the second iteration
    process = start(tmp_path, "train", str(path))
    until(process, lambda: len(engine.held) > 0)
    process.kill()
    process.wait()
    engine.hold = None
    resumed = load(directory / "config.yaml")
    with RunStore.open(directory) as store:
        asyncio.run(Conduct(resumed, store, Silent()).train())
    whole = train(tmp_path / "whole", team(running, tmp_path / "weights", iterations=3, lag=1))
    with RunReader(directory) as run:
        checkpoint = run.usable().checkpoint
        assert checkpoint is not None
        assert [i.metrics for i in run.iterations()] == whole.metrics
        assert checkpoint.components["models.m"].arrays == whole.states["models.m"].arrays
