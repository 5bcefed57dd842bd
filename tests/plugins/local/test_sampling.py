"""Batched sampling against one at a time and against the network itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from orchestrion_local.interfaces import Generation
from orchestrion_local.runtime import LocalModel
from orchestrion_local.sampling import KEPT, Prompt, common_prefix, sample

from orchestrion import CallError, Key
from tests.plugins.local.support import NoJournal, asked, opened, sync

PROMPTS = ["V1aMb=", "S2=", "0", "A9+1=?", "V1aMb=", "yn", "V1aMc=", "abcdefgh"]


async def answers(model: LocalModel, together: bool, **settings: Any) -> list[dict[str, Any]]:
    calls = NoJournal()

    async def answer_to(i: int) -> dict[str, Any]:
        answer = await model.complete(asked(PROMPTS[i], **settings), Key(i), calls)
        data: dict[str, Any] = answer.data
        return data

    if together:
        return list(await asyncio.gather(*map(answer_to, range(len(PROMPTS)))))
    return [await answer_to(i) for i in range(len(PROMPTS))]


@sync
async def test_a_prompt_has_the_same_completion_alone_and_in_a_batch() -> None:
    async with opened() as model:
        alone = await answers(model, together=False)
        assert model.batcher.sizes == [1] * len(PROMPTS)
        together = await answers(model, together=True)
        assert model.batcher.sizes[-1] == len(PROMPTS)
    for first, second in zip(alone, together, strict=True):
        assert first["text"] == second["text"]
        assert first["stop"] == second["stop"]
        one, two = first["generation"], second["generation"]
        assert one["response"] == two["response"]
        assert one["logprobs"] == pytest.approx(two["logprobs"], abs=1e-5)


@sync
async def test_a_shared_beginning_is_computed_once_and_changes_nothing() -> None:
    texts = [f"abcdefgh01234567{end}" for end in ("V=", "S1=", "A")]
    async with opened(temperature=0.7) as model:
        prompts = [model.tokenizer.encode(asked(text)["messages"]) for text in texts]
        assert common_prefix(prompts) == 17
        seen: list[int] = []
        handle = model.module.register_forward_pre_hook(
            lambda module, inputs: seen.append(inputs[0].numel())
        )
        wanted = [Prompt(p, Key(i).uniforms(4), 0.7) for i, p in enumerate(prompts)]
        together = sample(model.module, wanted, model.tokenizer.ends, model.tokenizer.pad)
        assert seen[:2] == [17, 3 * 3]
        handle.remove()
        for prompt, drawn in zip(wanted, together, strict=True):
            alone = sample(model.module, [prompt], model.tokenizer.ends, model.tokenizer.pad)[0]
            assert alone.ids == drawn.ids
            assert alone.logprobs == pytest.approx(drawn.logprobs, abs=1e-5)


@sync
async def test_log_probabilities_of_sampling_and_of_training_are_equal() -> None:
    async with opened(temperature=1.3) as model:
        data = await answers(model, together=True)
        generations = [Generation.from_json(answer["generation"]) for answer in data]
        scored = model.score(generations)
    for i, generation in enumerate(generations):
        n = len(generation.response)
        assert scored.mask[i].tolist() == [1.0] * n + [0.0] * (scored.mask.shape[1] - n)
        assert scored.logprobs[i, :n].tolist() == pytest.approx(list(generation.logprobs), abs=1e-5)
        assert not scored.logprobs[i, n:].any()


@sync
async def test_samples_follow_the_distribution_of_the_network() -> None:
    async with opened() as model:
        prompt = model.tokenizer.encode(asked("V1aMb=")["messages"])
        with torch.no_grad():
            shares = model.module(torch.tensor([prompt])).logits[0, -1].softmax(0)
        n = 4000
        wanted = [Prompt(prompt, [u]) for u in Key(7).uniforms(n)]
        drawn = sample(model.module, wanted, model.tokenizer.ends, model.tokenizer.pad)
    counts = torch.bincount(
        torch.tensor([completion.ids[0] for completion in drawn]), minlength=len(shares)
    )
    # Four standard errors.
    assert ((counts / n - shares).abs() < 4 * (shares * (1 - shares) / n).sqrt() + 1e-9).all()


@sync
async def test_temperature_0_takes_the_likeliest_and_top_p_leaves_out_the_tail() -> None:
    async with opened() as model:
        prompt = model.tokenizer.encode(asked("S2=")["messages"])
        with torch.no_grad():
            shares = model.module(torch.tensor([prompt])).logits[0, -1].softmax(0)
        ordered, order = shares.sort(descending=True)
        kept = int((ordered.cumsum(0) < 0.5).sum()) + 1
        ends, pad = model.tokenizer.ends, model.tokenizer.pad
        points = [i / 200 for i in range(200)]
        nucleus = sample(model.module, [Prompt(prompt, [u], 1.0, 0.5) for u in points], ends, pad)
        greedy = sample(model.module, [Prompt(prompt, [u], 0.0) for u in points], ends, pad)
    assert {completion.ids[0] for completion in nucleus} == set(order[:kept].tolist())
    assert {completion.ids[0] for completion in greedy} == {int(order[0])}


@sync
async def test_completions_that_end_leave_the_batch() -> None:
    async with opened(max_tokens=12) as model:
        rows: list[int] = []
        handle = model.module.register_forward_pre_hook(
            lambda module, inputs: rows.append(len(inputs[0]))
        )
        data = [(await model.complete(asked("ab"), Key(i), NoJournal())).data for i in range(3)]
        assert data
        rows.clear()
        many = await asyncio.gather(
            *(model.complete(asked("ab"), Key(i), NoJournal()) for i in range(60))
        )
        handle.remove()
    lengths = [len(answer.data["generation"]["response"]) for answer in many]
    needed = [sum(length > t for length in lengths) for t in range(max(lengths))]
    assert min(lengths) < max(lengths)
    assert len(rows) == max(lengths)
    # The prompt, which all share, is computed once. Who is done leaves when it is worth it, never
    # before.
    assert rows.pop(0) == 1
    assert needed.pop(0) == 60
    assert all(need <= had <= need / KEPT + 1 for had, need in zip(rows, needed, strict=True))


@sync
async def test_an_unsupported_request_is_a_permanent_error() -> None:
    async with opened() as model:
        calls = NoJournal()
        for request, reason in (
            (asked("a" * 40), "do not fit a context of 32"),
            (asked("aé"), "has no 'é'"),
            ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "read texts"),
            (asked("a", tools=[{"name": "x"}]), "do not support `tools`"),
            (asked("a", schema={"type": "object"}), "do not support `schema`"),
        ):
            with pytest.raises(CallError, match=reason) as caught:
                await model.complete(request, Key(0), calls)
            assert caught.value.fault == "permanent"
        assert not calls.requests
