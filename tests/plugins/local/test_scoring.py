"""Likelihoods without all logits at once, layers computed again, gradients in parts."""

from __future__ import annotations

import logging
import warnings
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from orchestrion_local import check_memory, memory
from orchestrion_local.devices import Torch
from orchestrion_local.hf import HF
from orchestrion_local.interfaces import Generation
from orchestrion_local.memory import Footprint
from orchestrion_local.networks import Network
from orchestrion_local.optimizing import WeightOptimizer
from orchestrion_local.runtime import LocalModel
from orchestrion_local.scoring import score
from orchestrion_local.settings import Architecture, Lora, Optimizer
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from orchestrion import CallError, Key, OpenContext, RunError
from tests.plugins.local.peak import peak
from tests.plugins.local.support import ALPHABET, NoJournal, asked, opened, sync

DEEP = Architecture(layers=8, width=16, heads=2, context=128)
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 88,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TYPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, SIZES),
    "qwen2": (Qwen2Config, SIZES),
    "qwen3": (Qwen3Config, {**SIZES, "head_dim": 16}),
    "gemma2": (Gemma2Config, {**SIZES, "head_dim": 8}),
    "gpt2": (
        GPT2Config,
        {
            "n_embd": 32,
            "n_head": 4,
            "n_positions": 256,
            "activation_function": "gelu_pytorch_tanh",
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        },
    ),
}


def network(kind: str, layers: int = 2, vocabulary: int = 50) -> Any:
    """A random network."""
    made, sizes = TYPES[kind]
    depth = "n_layer" if kind == "gpt2" else "num_hidden_layers"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = made(vocab_size=vocabulary, **{depth: layers}, **SPECIAL, **sizes)
        auto: Any = AutoModelForCausalLM
        return auto.from_config(config).eval()


def generations(
    count: int = 5, vocabulary: int = 50, longest: int = 9, shared: bool = False
) -> list[Generation]:
    """Prompts and responses of different lengths, at different temperatures.

    With `shared`, only three prompts are different.
    """
    draw = np.random.default_rng(0)
    made: list[Generation] = []
    for i in range(count):
        prompt = draw.integers(2, vocabulary, 1 + i % 3).tolist()
        if shared and i >= 3:
            prompt = made[i - 3].prompt
        response = draw.integers(2, vocabulary, 1 + (3 * i) % longest).tolist()
        unknown = (0.0,) * len(response)
        made.append(Generation("m", 0, tuple(prompt), tuple(response), unknown, 0.5 + i / 4))
    return made


def plainly(net: Any, generation: Generation) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies of one response: the network alone, all logits at once."""
    ids = torch.tensor([[*generation.prompt, *generation.response]])
    first = len(generation.prompt)
    logits = net(input_ids=ids).logits[0, first - 1 : -1] / generation.temperature
    logprobs = torch.log_softmax(logits, dim=1)
    of_targets = logprobs.gather(1, ids[0, first:, None])[:, 0]
    return of_targets, -(logprobs.exp() * logprobs).sum(1)


@pytest.mark.parametrize("again", [False, True], ids=["kept", "again"])
@pytest.mark.parametrize("shared", [False, True], ids=["", "shared prompts"])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_chunks_recomputed_layers_and_shared_prompts_give_the_plain_values_and_gradients(
    kind: str, shared: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOGITS", 3 * 50)  # three tokens at a time
    net, rows = network(kind), generations(shared=shared)
    weights = torch.linspace(-1, 1, 7)
    scored = score(net, rows, 0, entropy="gradient", recompute_layers=again)
    assert scored.entropy is not None
    (scored.logprobs * weights + 0.1 * scored.entropy).sum().backward()  # type: ignore[no-untyped-call]
    computed = {name: value.grad for name, value in net.named_parameters()}
    net.zero_grad()
    loss = torch.zeros(())
    for i, row in enumerate(rows):
        logprobs, entropy = plainly(net, row)
        length = len(row.response)
        assert torch.allclose(scored.logprobs[i, :length], logprobs, rtol=0, atol=1e-6)
        assert torch.allclose(scored.entropy[i, :length], entropy, rtol=0, atol=1e-6)
        assert not scored.logprobs[i, length:].any()
        loss = loss + (logprobs * weights[:length]).sum() + 0.1 * entropy.sum()
    loss.backward()  # type: ignore[no-untyped-call]
    for name, value in net.named_parameters():
        assert torch.allclose(computed[name], value.grad, rtol=1e-5, atol=1e-6), name


def test_entropy_is_computed_if_wanted_and_has_a_gradient_if_wanted() -> None:
    net, rows = network("llama"), generations()
    assert score(net, rows, 0).entropy is None
    value = score(net, rows, 0, entropy="value").entropy
    assert value is not None
    assert not value.requires_grad
    with_gradient = score(net, rows, 0, entropy="gradient").entropy
    assert with_gradient is not None
    assert with_gradient.requires_grad
    assert torch.equal(value, with_gradient)


@sync
async def test_a_network_that_caps_its_logits_computes_them_itself() -> None:
    for kind, plain in (("gemma2", False), ("llama", True), ("gpt2", True)):
        async with opened(f"models.{kind}") as model:
            net, rows = network(kind), generations()
            model.module = net
            assert model.has_plain_head is plain
            scored = model.score(rows)
            for i, row in enumerate(rows):
                expected, _ = plainly(net, row)
                got = scored.logprobs[i, : len(row.response)]
                assert torch.allclose(got, expected, rtol=0, atol=1e-6)


def test_the_logits_of_a_large_vocabulary_are_never_held_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary, tokens, chunk = 4000, 200, 10
    monkeypatch.setattr(memory, "LOGITS", chunk * vocabulary)
    net = network("llama", 1, vocabulary)
    row = Generation("m", 0, (2,), (3,) * tokens, (0.0,) * tokens)
    most = {}
    for how in ("whole", "chunks"):
        with peak() as counted:
            scored = score(net, [row], 0, entropy="value", whole=how == "whole")
            if how == "whole":  # one chunk: as if there were no limit
                monkeypatch.setattr(memory, "LOGITS", tokens * vocabulary)
            scored.logprobs.sum().backward()  # type: ignore[no-untyped-call]
        net.zero_grad()
        monkeypatch.setattr(memory, "LOGITS", chunk * vocabulary)
        del scored
        most[how] = counted.most
    size = 4 * vocabulary  # of one token's logits
    assert most["whole"] > tokens * size
    gradient = size * 32  # of the last matrix, and once more while a chunk's is added
    kept = tokens * footprint(net, 4).token
    assert most["chunks"] < memory.COPIES_OF_LOGITS * chunk * size + 3 * gradient + kept


def footprint(net: Any, width: int, rank: int = 0, **changes: Any) -> Footprint:
    sizes = Network.from_config(net.config.to_dict())
    assert sizes is not None
    made = {"adapter": (rank, ()) if rank else None, "again": False, "row": 64, **changes}
    return Footprint(sizes, width, **made)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gpt2"])
@pytest.mark.parametrize("rank", [0, 4], ids=["all weights", "adapter"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_what_a_layer_keeps_for_the_backward_pass_is_as_reckoned_to_the_byte(
    kind: str, rank: int, dtype: torch.dtype
) -> None:
    rows = [Generation("m", 0, (2,) * 60, (3, 4, 5, 6), (0.0,) * 4)]
    rows.append(Generation("m", 0, (2,) * 40, (3, 4, 5, 6), (0.0,) * 4))  # padded
    kept = []
    for layers in (2, 4):
        net = network(kind, layers).to(dtype)
        sizes = footprint(net, dtype.itemsize, rank)
        assert sum(value.numel() for value in net.parameters()) == sizes.network.weights
        if rank:
            config = LoraConfig(r=rank, target_modules="all-linear", fan_in_fan_out=kind == "gpt2")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of transformers, by peft
                adapted = get_peft_model(net, config)
            learning = [value for value in adapted.parameters() if value.requires_grad]
            assert sum(value.numel() for value in learning) == sizes.trained
        own = {value.untyped_storage().data_ptr() for value in net.parameters()}
        seen: dict[int, torch.Tensor] = {}

        def keep(
            value: torch.Tensor, own: set[int] = own, seen: dict[int, torch.Tensor] = seen
        ) -> torch.Tensor:
            place = value.untyped_storage().data_ptr()
            if place not in own:
                seen[place] = value
            return value

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            scored = score(net, rows, 0)
        kept.append(sum(value.untyped_storage().nbytes() for value in seen.values()))
        del scored
    assert (kept[1] - kept[0]) / (2 * 2 * 64) == sizes.layer


def test_gradient_checkpointing_takes_the_memory_that_is_reckoned() -> None:
    net = network("llama", 8)
    # Prompts that differ, since equal ones are computed once.
    rows = [Generation("m", 0, (i, *(2,) * 59), (3, 4, 5, 6), (0.0,) * 4) for i in range(16)]
    most = {}
    for again in (False, True):
        with peak() as counted:
            score(net, rows, 0, recompute_layers=again).logprobs.sum().backward()  # type: ignore[no-untyped-call]
        net.zero_grad()
        weights = sum(value.numel() * 4 for value in net.parameters())  # the gradients
        reckoned = footprint(net, 4, again=again).training(16 * 64)
        most[again] = counted.most - weights
        assert 0.5 * reckoned < most[again] < 1.15 * reckoned
    assert most[True] < 0.35 * most[False]


@sync
async def test_layers_are_computed_again_as_the_model_that_learns() -> None:
    """With adapters on, or without: whatever was active between the two passes."""
    async with AsyncExitStack() as stack:
        base = await stack.enter_async_context(opened("models.base", gradient_checkpointing=True))
        lora = Lora(rank=2)
        names = [f"models.{name}" for name in ("one", "two")]
        adapters = [
            await stack.enter_async_context(opened(name, base=base, lora=lora)) for name in names
        ]
        rows = [Generation("m", 0, (5,), (6, 7), (0.0,) * 2)]
        for model in (base, *adapters):
            with torch.no_grad():
                for name, value in model.parameters():
                    if "lora_B" in name:
                        value.add_(0.1)
        for model in (base, *adapters):
            gradients = []
            for again in (True, False):
                object.__setattr__(base.settings, "gradient_checkpointing", again)
                loss = model.score(rows).logprobs.sum()
                for other in (base, *adapters):
                    other.score(rows)  # something else in between
                with model.active():
                    pass
                loss.backward()  # type: ignore[no-untyped-call]
                gradients.append([value.grad for _, value in model.parameters()])
                for _, value in model.parameters():
                    value.grad = None
            assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def accumulated(model: LocalModel, budget: int, rows: list[Generation]) -> list[torch.Tensor]:
    """The gradient of all rows, computed in micro-batches of `budget` tokens."""
    optimizer = WeightOptimizer(model, Optimizer(), 1, budget)
    sizes = np.array([len(row.prompt) + len(row.response) for row in rows])

    def loss(places: Any) -> tuple[torch.Tensor, int]:
        return -model.score([rows[i] for i in places]).logprobs.sum() / sizes.sum(), len(places)

    counts = optimizer.accumulate(sizes, loss)
    assert sum(counts) == len(rows)
    return [value.grad.clone() for _, value in model.parameters() if value.grad is not None]


@sync
async def test_the_gradient_does_not_depend_on_how_rows_are_split() -> None:
    async with opened() as model:
        rows = generations(24, 20)
        whole = accumulated(model, 10_000, rows)
        for budget in (1, 17, 40):
            for gradient, other in zip(accumulated(model, budget, rows), whole, strict=True):
                assert torch.allclose(gradient, other, rtol=0, atol=1e-6)


@sync
async def test_running_out_of_memory_halves_the_micro_batch_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = generations(24, 20)
    sizes = np.array([len(row.prompt) + len(row.response) for row in rows])
    async with opened() as model:
        whole = accumulated(model, 10_000, rows)
        plain, room = LocalModel.score, 150

        def limited(self: LocalModel, given: Any, **options: Any) -> Any:
            if len(given) * max(len(row.prompt) + len(row.response) for row in given) > room:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return plain(self, given, **options)

        monkeypatch.setattr(LocalModel, "score", limited)
        optimizer = WeightOptimizer(model, Optimizer(), 1)
        assert optimizer.micro_batch == memory.MICRO_BATCH

        def loss(places: Any) -> tuple[torch.Tensor, None]:
            return -model.score([rows[i] for i in places]).logprobs.sum() / sizes.sum(), None

        with caplog.at_level(logging.WARNING, "orchestrion"):
            optimizer.accumulate(sizes, loss)
        everything = 24 * int(sizes.max())
        assert optimizer.micro_batch == everything // 2
        assert f"micro-batch of {everything} tokens; it goes on with {everything // 2}" in (
            caplog.text
        )
        for (_, value), expected in zip(model.parameters(), whole, strict=True):
            assert value.grad is not None
            assert torch.allclose(value.grad, expected, rtol=0, atol=1e-6)
        # It is kept for later steps, and for a run that goes on.
        other = WeightOptimizer(model, Optimizer(), 1)
        other.load(optimizer.save())
        assert other.micro_batch == everything // 2
        room = 60
        with pytest.raises(RunError, match=r"memory ran out .* \(CUDA out of memory.*set `gradie"):
            other.accumulate(sizes, loss)


@sync
async def test_a_prompt_beyond_the_context_that_was_set_is_an_error() -> None:
    async with opened("models.base") as base, opened(base=base, copy=True, context=10) as model:
        assert (base.context, model.context) == (32, 10)
        with pytest.raises(CallError, match="do not fit a context of 10"):
            await model.complete(asked("S2+3+4="), Key(0), NoJournal())
    with pytest.raises(ValueError, match="context: is part of `architecture`"):
        HF(architecture=base.settings.architecture, alphabet="ab", context=8)


@sync
async def test_a_run_without_room_for_a_row_is_refused_before_it_starts() -> None:
    """And the settings that the error names do help."""

    async def room(memory: str, **settings: Any) -> int:
        context = OpenContext("devices.small", Key(0))
        async with (
            Torch(memory=memory).open(context) as place,
            opened(device=place, architecture=DEEP, alphabet=ALPHABET, **settings) as model,
        ):
            optimizer = WeightOptimizer(model, Optimizer(), 1)
            check_memory([optimizer])
            return optimizer.micro_batch

    assert await room("300 MB") == memory.MICRO_BATCH
    fewer = await room("20 MB")
    assert 128 <= fewer < memory.MICRO_BATCH
    # Without a maximum length of rows, it is not known what a row takes: long ones are tried.
    assert await room("2 MB") < 128


@sync
async def test_a_row_of_the_context_that_was_set_must_fit(tmp_path: Path) -> None:
    async with opened(architecture=DEEP, alphabet=ALPHABET) as model:
        model.module.save_pretrained(tmp_path)
        model.tokenizer.save(str(tmp_path))

    async def start(again: bool, context: int) -> None:
        settings: dict[str, Any] = {"gradient_checkpointing": again, "context": context}
        async with (
            Torch(memory="2.4 MB").open(OpenContext("devices.small", Key(0))) as place,
            opened(path=str(tmp_path), device=place, **settings) as model,
        ):
            check_memory([WeightOptimizer(model, Optimizer(), 1)])

    with pytest.raises(RunError, match=r"a row of 128 tokens takes .* `gradient_check"):
        await start(False, 128)
    await start(True, 128)
    await start(False, 16)
