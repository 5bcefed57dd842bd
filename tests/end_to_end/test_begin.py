"""A policy that begins as another run has learned it: to go on, or to lead a nested team."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrion import JSON, CheckpointError, Key, UsageError
from orchestrion._cli.display import Display
from orchestrion._run import Conduct
from orchestrion.config import from_data
from orchestrion.runs import RunReader, RunStore, manifest, open_run

NAMES = ["planner", "coder_l", "tester", "critic"]
AGENTS: Mapping[str, JSON] = {name: {"use": "bench-agent"} for name in [*NAMES, "stop"]}
NEURAL: Mapping[str, JSON] = {"use": "neural", "hidden": [8]}


def config(**changes: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "task": {"use": "relay", "test": 20},
        "agents": dict(AGENTS),
        "policy": dict(NEURAL),
        "reward": {"use": "outcome-minus-cost", "cost_weight": 1.0},
        "trainer": {"use": "reinforce", "iterations": 3, "episodes": 16},
        "limits": {"turns": 8},
        **changes,
    }


def train(folder: Path, data: dict[str, Any]) -> Path:
    loaded = from_data(data)
    with RunStore.create(folder, loaded.to_yaml(), manifest(loaded)) as store:
        asyncio.run(Conduct(loaded, store, Display()).train())
        store.set_status("completed")
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "first", config())


def weights(folder: Path) -> bytes:
    with RunReader(folder) as reader:
        checkpoint = reader.usable().checkpoint
    assert checkpoint is not None
    return checkpoint.components["policy"].arrays["weights.body0"].data


def test_a_policy_begins_as_another_run_has_learned_it(first: Path, tmp_path: Path) -> None:
    begun = config(policy={**NEURAL, "begin": str(first)})

    async def opened() -> bytes:
        path = tmp_path / "begun.yaml"
        path.write_text(from_data(begun).to_yaml())
        async with open_run(path) as one:
            saved = one.opened.runtimes["policy"].save()
            return bytes(saved.arrays["weights.body0"].data)

    assert asyncio.run(opened()) == weights(first)
    # It goes on from there, and says so in its manifest.
    second = train(tmp_path / "second", begun)
    assert weights(second) != weights(first)
    with RunReader(second) as reader:
        assert "first, iteration 3" in reader.manifest["opened"]["policy"]["began"]


def test_a_learned_policy_leads_a_nested_team(first: Path, tmp_path: Path) -> None:
    team = {
        "use": "team",
        "members": [*NAMES, "stop"],
        "policy": {**NEURAL, "begin": str(first)},
        "turns": 6,
    }
    data = config(
        agents={**AGENTS, "crew": team}, policy={"use": "sequence", "steps": ["crew"]}, trainer=None
    )
    del data["trainer"]

    async def led() -> list[str]:
        path = tmp_path / "nested.yaml"
        path.write_text(from_data(data).to_yaml())
        async with open_run(path) as one:
            problem = one.opened.runtimes["task"].problems("test")[0]
            episode = await one.engine.run("e", problem, Key(1))
            inner = episode.turns[0].output.inner
            assert inner is not None
            return [turn.agent for turn in inner.turns]

    names = asyncio.run(led())
    assert names
    assert set(names) <= {*NAMES, "stop"}


def test_a_run_that_does_not_fit_is_refused(first: Path, tmp_path: Path) -> None:
    async def open_with(**changes: Any) -> None:
        path = tmp_path / "wrong.yaml"
        path.write_text(from_data(config(**changes)).to_yaml())
        async with open_run(path):
            raise AssertionError("it opened")

    begin = {**NEURAL, "begin": str(first)}
    with pytest.raises(UsageError, match=r"policy: begin: .*nowhere"):
        asyncio.run(open_with(policy={**NEURAL, "begin": "nowhere"}))
    fewer = {name: AGENTS[name] for name in AGENTS if name != "critic"}
    with pytest.raises(CheckpointError, match="another team; not in this team: critic"):
        asyncio.run(open_with(policy=begin, agents=fewer))
    with pytest.raises(CheckpointError, match="hidden"):
        asyncio.run(open_with(policy={**begin, "hidden": [4]}))
