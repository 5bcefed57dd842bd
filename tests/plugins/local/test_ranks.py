"""Several processes that train one network give what one process gives (gloo, on the processor)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from orchestrion_local.devices import Place
from orchestrion_local.interfaces import Generation
from orchestrion_local.memory import Footprint
from orchestrion_local.networks import KNOWN, Network
from orchestrion_local.optimizing import Integers, WeightOptimizer, micro_batches
from orchestrion_local.settings import Lora, Optimizer
from orchestrion_local.tokenizers import Characters
from orchestrion_local.weights import unpack

from orchestrion import RunError, Saved
from tests.plugins.local.support import ALPHABET, opened, sync

UPDATES = 20
ROWS = [
    Generation(
        "m", 0, tuple(range(5, 6 + i % 3)), tuple(range(9, 10 + 2 * i)), (0.0,) * (1 + 2 * i)
    )
    for i in range(5)
]
"""Of very different lengths: means of two ranks' means would be another loss."""
SIZES = np.array([len(row.prompt) + len(row.response) for row in ROWS])


def network(kind: str, folder: Path) -> Path:
    """Write a tiny network with random weights: 2 layers, 2 heads that share keys and values."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": 32}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    # Three more than the alphabet: 32 rows of a table are no multiple of 5 ranks, 33 none of 2.
    config: Any = AutoConfig.for_model(
        kind, vocab_size=33, tie_word_embeddings=kind == "qwen2", **sizes, **heads
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    Characters(ALPHABET).save(str(folder))
    return folder


async def trained(folder: Path, **settings: Any) -> tuple[list[float], Saved, Saved]:
    """Return the gradients' norms, the weights and the moments after the updates of one model."""
    async with opened(path=str(folder), **settings) as model:
        optimizer = WeightOptimizer(model, Optimizer(learning_rate=1e-3), UPDATES, micro_batch=24)
        norms = []
        for update in range(UPDATES):

            def loss_of(rows: Integers, update: int = update) -> tuple[torch.Tensor, None]:
                scored = model.score([ROWS[i] for i in rows], entropy="gradient")
                assert scored.entropy is not None
                advantages = torch.tensor([(-1.0) ** (i + update) * (1 + i) for i in rows])
                terms = scored.logprobs * advantages[:, None] + 0.01 * scored.entropy
                return -(terms * scored.mask).sum() / sum(SIZES), None

            optimizer.accumulate(SIZES, loss_of)
            norms.append(optimizer.step().norm)
        model.updated()
        return norms, model.save(), optimizer.save()


def differences(first: Saved, second: Saved) -> torch.Tensor:
    """Return how far apart all numbers are that are in the same place."""
    assert (first.arrays.keys(), first.data) == (second.arrays.keys(), second.data)
    pairs = [(unpack(array), unpack(second.arrays[name])) for name, array in first.arrays.items()]
    return torch.cat([(x.float() - y.float()).abs().flatten() for x, y in pairs])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("qwen2", {}), ("llama", {"lora": Lora(rank=3), "gradient_checkpointing": True})],
    ids=["all weights, tied tables", "adapters"],
)
@sync
async def test_two_ranks_learn_what_one_process_learns(
    kind: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = network(kind, tmp_path)
    norms, weights, moments = await trained(folder, **settings)
    ranked = await trained(folder, ranks=2, **settings)
    assert ranked[0] == pytest.approx(norms, rel=1e-5)
    assert differences(ranked[1], weights).max() < 1e-5
    assert differences(ranked[2], moments).max() < 1e-5


@sync
async def test_bfloat16_weights_have_float32_masters_in_the_ranks(tmp_path: Path) -> None:
    low = {"dtype": "bfloat16", "gradient_checkpointing": True}
    folder = network("llama", tmp_path)
    norms, weights, moments = await trained(folder, **low)
    ranked = await trained(folder, ranks=2, **low)
    # Their gradients are rounded in other places; the updates of a weight add up to some 0.01.
    assert ranked[0] == pytest.approx(norms, rel=0.05)
    assert differences(ranked[1], weights).mean() < 5e-4
    assert differences(ranked[2], moments).mean() < 5e-4
    masters = {n: array for n, array in ranked[2].arrays.items() if n.endswith(".master")}
    assert {array.dtype for array in masters.values()} == {"F32"}
    for name, array in ranked[1].arrays.items():
        assert torch.equal(unpack(masters[f"{name}.master"]).bfloat16(), unpack(array))


def test_each_rank_gets_a_micro_batch_of_its_own() -> None:
    sizes = np.full(7, 10)
    assert [len(rows) for rows in micro_batches(sizes, 25)] == [2, 2, 2, 1]
    assert [len(rows) for rows in micro_batches(sizes, 25, ranks=2)] == [4, 3]
    assert [len(rows) for rows in micro_batches(sizes, 5, ranks=3)] == [3, 3, 1]


def test_ranks_share_what_learns_and_what_does_not() -> None:
    network = Network.from_config(KNOWN["qwen2.5-7b"])
    assert network is not None
    whole = Footprint(network, 2, None, True, 4096)
    two, eight = (Footprint(network, 2, None, True, 4096, ranks=n) for n in (2, 8))
    # A float32 weight, its gradient and two moments: the weight stands in for the master.
    assert 2 * two.state == 8 * eight.state == 16 * network.weights == whole.state
    assert (whole.shared(True), two.shared(True)) == (0, eight.shared(True))
    # Under adapters, bfloat16 weights are shared as they are; on a processor, by all ranks.
    rest = two.shared(False) - eight.shared(False)
    assert rest == 2 * network.weights // 2 - 2 * network.weights // 8
    assert Footprint(network, 2, None, True, 4096, ranks=2, here=2).state == whole.state


@sync
async def test_ranks_need_room_and_a_device_where_nothing_moves(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ranks: stay on their devices; remove `offload`"):
        async with opened(ranks=2, device=Place("devices.d", "cpu", None, "disk")):
            pass
    with pytest.raises(ValueError, match="ranks: does nothing beside `base`"):
        async with opened() as base, opened(base=base, lora=Lora(), ranks=2):
            pass
    many = 1 + (os.cpu_count() or 1)
    async with opened(ranks=many) as model:
        with pytest.raises(RunError, match=f"`ranks: {many}` need as many processors, and this"):
            WeightOptimizer(model, Optimizer(), 1)
    async with opened(ranks=2, device=Place("devices.d", "cpu", 50_000)) as model:
        with pytest.raises(RunError, match="tiny's ranks needs"):
            WeightOptimizer(model, Optimizer(), 1)
