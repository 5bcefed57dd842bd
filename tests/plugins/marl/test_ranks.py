"""A run whose model is trained by several processes: one of them is killed, others go on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from orchestrion_local.ranks import Ranks
from orchestrion_local.weights import unpack

from orchestrion.config import from_data
from orchestrion.runs import RunReader
from tests.end_to_end.support import here
from tests.plugins.marl.support import MODEL, PROMPTS, SIZES, config

ITERATIONS = 4


def shared(**settings: Any) -> dict[str, Any]:
    """Return a config in which all agents share one model."""
    # Not GPT-2: its keys' biases have no gradient but rounding, which AdamW makes as large as any.
    models = {"m": {**MODEL, "architecture": {**SIZES, "type": "llama"}, **settings}}
    return config(models, dict.fromkeys(PROMPTS, "m"), iterations=ITERATIONS)


def learned(run: Path) -> dict[str, Any]:
    """Return the arrays of a run's newest checkpoint, and the steps that its model has taken."""
    with RunReader(run) as reader:
        checkpoint = reader.usable().checkpoint
        assert checkpoint is not None
        assert reader.status == "completed"
        states = checkpoint.components
        assert len(reader.iterations()) == ITERATIONS
    assert states["trainer[0]"].data["optimizers"]["m"]["steps"] == ITERATIONS
    return {
        f"{path}/{name}": unpack(array)
        for path, saved in states.items()
        for name, array in saved.arrays.items()
    }


def test_a_killed_rank_is_named_and_any_number_of_ranks_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.yaml").write_text(str(shared()))
    (tmp_path / "two.yaml").write_text(str(shared(ranks=2)))
    assert from_data(shared(ranks=2)).digest == from_data(shared()).digest
    here("train", "plain.yaml", "-o", "run.name=whole", cwd=tmp_path)
    plain, passes, killed = Ranks.backward, [0], list[int]()

    def backward(ranks: Ranks, parts: Sequence[Any], gradients: Sequence[torch.Tensor]) -> None:
        passes[0] += 1
        if passes[0] == 3:
            killed.append(ranks._processes[1].pid)
            os.kill(killed[0], signal.SIGKILL)
        plain(ranks, parts, gradients)

    monkeypatch.setattr(Ranks, "backward", backward)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)  # more ranks than that are an error
    done = here("train", "two.yaml", "-o", "run.name=cut", cwd=tmp_path, code=1)
    assert f"model m: rank 1 of 2 (process {killed[0]}) was killed by SIGKILL" in done.stderr
    whole = learned(tmp_path / "runs/whole")
    for ranks in (1, 4):
        shutil.copytree(tmp_path / "runs/cut", tmp_path / f"runs/on{ranks}")
        here("resume", f"runs/on{ranks}", "-o", f"models.m.ranks={ranks}", cwd=tmp_path)
        resumed = learned(tmp_path / f"runs/on{ranks}")
        assert resumed.keys() == whole.keys()
        for name, value in whole.items():
            torch.testing.assert_close(resumed[name], value, rtol=0, atol=1e-5)
