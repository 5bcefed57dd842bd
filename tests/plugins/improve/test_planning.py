"""The bound of a dry run, and small runs: what improvement uses at most."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrion._cli.smoke import PROBLEMS, smaller
from orchestrion.runs import RunReader
from orchestrion.testing._stage import opened
from tests.plugins.improve.support import config, metrics_of, train
from tests.plugins.improve.test_gepa import given as evolving

LIMITS: Any = {"limits": {"turns": 1}}
SIZES = {"train": 32, "validation": 120, "test": 40}


@pytest.mark.parametrize(
    "tried",
    [config({"iterations": 3, "every": 2}, **LIMITS), evolving({"iterations": 2}, **LIMITS)],
    ids=["behaviours", "gepa"],
)
def test_every_iteration_stays_within_its_bound(tried: Any, tmp_path: Path) -> None:
    async def plans() -> list[Any]:
        async with opened(tried) as components:
            trainer = components.runtimes["trainer"]
            return [trainer.plan(i, SIZES) for i in range(trainer.iterations)]

    run = train(tried, tmp_path / "run")
    with RunReader(run) as reader:
        calls = reader.spend().calls
    planned = asyncio.run(plans())
    for plan, metrics in zip(planned, metrics_of(run), strict=True):
        assert metrics["episodes"] <= plan.episodes
    assert calls <= sum(plan.usage.calls for plan in planned)


@pytest.mark.parametrize("team", [config, evolving], ids=["behaviours", "gepa"])
def test_a_smoke_run_is_small_and_still_asks_the_coach(team: Any, tmp_path: Path) -> None:
    overrides, lines = smaller(team())
    assert not [line for line in lines if line.endswith("unchanged")]
    parts = (override.split("=") for override in overrides)
    small = {
        path.rpartition(".")[-1]: json.loads(value)
        for path, value in parts
        if path.startswith("trainer.")
    }
    assert small["pairs"] <= 12
    run = train(team(small, run={"problems": PROBLEMS}), tmp_path / "run")
    [metrics] = metrics_of(run)
    assert metrics["episodes"] <= 40
    with RunReader(run) as reader:
        assert reader.spend().calls >= 1
