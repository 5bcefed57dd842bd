"""Models that take turns on their device train as models that all fit do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrion import RunError
from tests.plugins.marl.support import MODEL, config, train

WARM = {"episodes": 8, "steps": 2, "batch": 8, "micro_batch": 4096}
ADAPTER = {"use": "hf", "base": "base", "lora": {"rank": 1}, "max_tokens": 2}


def team(adapters: bool = False, **device: Any) -> dict[str, Any]:
    whole, adapter = {**MODEL, "batch": 256}, {**ADAPTER, "batch": 256}
    models = dict.fromkeys("vsa", whole)
    if adapters:
        models = {"base": whole, "v": adapter, "s": whole, "a": adapter}
    data = config(
        models,
        trained=["v", "s", "a"],
        warm=WARM,
        iterations=1,
        # By default as much as there is memory for.
        micro_batch=4096,
        kl={"weight": 0.1},
        advantage={"estimator": "gae"},
    )
    data["devices"]["cpu"] |= device
    return data


@pytest.mark.parametrize("adapters", [False, True])
def test_offloaded_training_gives_the_same_bytes(tmp_path: Path, adapters: bool) -> None:
    room = {"memory": "70 KB"}
    with pytest.raises(RunError, match="let models take turns with `offload`"):
        train(tmp_path / "refused", team(adapters, **room))
    whole = train(tmp_path / "whole", team(adapters))
    turns = train(tmp_path / "turns", team(adapters, offload="disk", **room))
    assert turns == whole
    assert whole.metrics[-1]["v/steps"] > 0 < whole.metrics[-1]["a/steps"]
