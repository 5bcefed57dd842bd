"""Several processes that train one network give what one process gives (gloo, on the processor)."""

from __future__ import annotations

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


def distance(one: Saved, other: Saved) -> float:
    """Return the largest difference of two numbers at one place."""
    assert (one.arrays.keys(), one.data) == (other.arrays.keys(), other.data)
    return max(
        float((unpack(array).float() - unpack(other.arrays[name]).float()).abs().max())
        for name, array in one.arrays.items()
    )


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize(
    ("settings", "bound"),
    [
        ({}, 1e-5),
        ({"lora": Lora(rank=3), "gradient_checkpointing": True}, 1e-5),
        # Gradients of bfloat16 are summed in another order, and a first step has the size of the
        # learning rate however small the gradient is.
        ({"dtype": "bfloat16", "gradient_checkpointing": True}, 1e-2),
    ],
    ids=["all", "lora", "bfloat16"],
)
@sync
async def test_two_ranks_learn_what_one_process_learns(
    kind: str, settings: dict[str, Any], bound: float, tmp_path: Path
) -> None:
    folder = network(kind, tmp_path)
    norms, weights, moments = await trained(folder, **settings)
    ranked = await trained(folder, ranks=2, **settings)
    assert ranked[0] == pytest.approx(norms, rel=100 * bound)
    assert distance(ranked[1], weights) < bound
    assert distance(ranked[2], moments) < bound
    if "dtype" in settings:
        masters = [array for name, array in ranked[2].arrays.items() if name.endswith("master")]
        assert {array.dtype for array in masters} == {"F32"}
        assert {array.dtype for array in ranked[1].arrays.values()} == {"BF16"}


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
    async with opened(ranks=2, device=Place("devices.d", "cpu", 50_000)) as model:
        with pytest.raises(RunError, match="tiny's ranks needs"):
            WeightOptimizer(model, Optimizer(), 1)
