"""Models that take turns on one device end as models do that all fit."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from orchestrion_local.devices import Device, Place, Torch
from orchestrion_local.mixture import Mixture
from orchestrion_local.offloading import Pool, Resident, away
from orchestrion_local.optimizing import WeightOptimizer
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Lora, Optimizer

from orchestrion import Key, OpenContext, RunError, Saved
from tests.plugins.local.support import NoJournal, asked, opened, seven, sync

WEIGHTS = 15 << 10
"""What one of the tiny models takes, or a little more."""


def placed(models: float, folder: Path | None = None) -> Place:
    """A device with room for the weights of so many; a model in training counts for four."""
    return Place("devices.small", "cpu", int(models * WEIGHTS), "disk", folder)


def moved(place: Place | None) -> int:
    return 0 if place is None or place.pool is None else place.pool.moves


@asynccontextmanager
async def several(count: int, device: Device | None, **settings: Any) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                opened(f"models.m{i}", seed=i, device=device, batch=256, **settings)
            )
            for i in range(count)
        ]


def train(models: Sequence[LocalModel], optimizers: Sequence[WeightOptimizer]) -> list[float]:
    """A step of each; what the weights that each began with say of it is part of the loss."""
    losses = []
    for model, optimizer in zip(models, optimizers, strict=True):
        if not model.version:
            model.anchor()
        with torch.no_grad(), model.reference():
            before = model.score([seven(model)]).logprobs
        with optimizer.pinned():
            optimizer.zero()
            now = model.score([seven(model)]).logprobs
            loss = -now.sum() + 0.1 * (now - before).square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.updated()
        losses.append(float(loss.detach()))
    return losses


def optimizers_of(models: Sequence[LocalModel]) -> list[WeightOptimizer]:
    return [WeightOptimizer(model, Optimizer(learning_rate=0.01), 9, 4096) for model in models]


async def said(models: Sequence[Any], temperature: float = 1.0) -> list[Any]:
    """All answer at once."""
    request = asked("S2=", temperature=temperature)
    answers = await asyncio.gather(
        *(model.complete(request, Key(i), NoJournal()) for model in models for i in range(3))
    )
    return [answer.data for answer in answers]


async def whole_training(device: Place | None) -> tuple[Any, list[Saved]]:
    """Three models are sampled from, trained, kept, and go on from what was kept."""
    async with several(3, device) as models:
        optimizers = optimizers_of(models)
        seen: list[Any] = [await said(models)]
        for _ in range(2):
            seen.append(train(models, optimizers))
            seen.append(await said(models))
        kept = [part.save() for part in (*models, *optimizers)]
    async with several(3, device) as models:
        optimizers = optimizers_of(models)
        for part, saved in zip((*models, *optimizers), kept, strict=True):
            part.load(saved)
        seen.append(train(models, optimizers))
        return seen, [*kept, *(part.save() for part in (*models, *optimizers))]


@sync
async def test_training_with_offload_gives_the_same_bytes() -> None:
    alone, two = placed(4), placed(8)
    wanted = await whole_training(None)
    for device in (alone, two):
        assert await whole_training(device) == wanted
    assert moved(alone) > moved(two) > 20


@sync
async def test_adapters_move_with_their_base_and_moments_on_their_own() -> None:
    async def go(device: Place | None) -> Any:
        async with several(2, device) as (base, other), AsyncExitStack() as stack:
            adapters = [
                await stack.enter_async_context(
                    opened(f"models.{name}", base=base, lora=Lora(rank=1, targets=["q_proj"]))
                )
                for name in "ab"
            ]
            assert {adapter.resident for adapter in adapters} == {base.resident}
            models = [*adapters, other]
            optimizers = optimizers_of(models)
            seen: list[Any] = [train(models, optimizers) for _ in range(3)]
            seen.append(await said([base, *models]))
            return seen, [part.save() for part in (base, *models, *optimizers)]

    device = placed(4)
    assert await go(device) == await go(None)
    assert moved(device) > 6


@sync
async def test_members_of_a_mixture_are_pinned_together() -> None:
    async def go(device: Place | None) -> Any:
        async with several(3, device) as models:
            settings = Mixture(models[:2], max_tokens=3)
            async with settings.open(OpenContext("models.both", Key(0))) as both:
                return await said([models[2]]), await said([both]), await said(models)

    device = placed(2)
    assert await go(device) == await go(None)
    assert moved(device) > 4
    with pytest.raises(RunError, match=r"are needed at once .*m0 .*, m1 "):
        await go(placed(1.5))


@sync
async def test_models_with_overlap_take_turns_on_their_device() -> None:
    async def go(device: Place | None) -> Any:
        async with several(4, device, overlap=True) as models:
            rounds = [await said(models, temperature=0) for _ in range(5)]
            return [[answer["text"] for answer in answers] for answers in rounds]

    wanted = await go(None)
    for room in (1, 2.2):
        assert await asyncio.wait_for(go(placed(room)), 60) == wanted


@sync
async def test_adapters_with_overlap_answer_as_they_do_alone() -> None:
    async with opened("models.base") as base, AsyncExitStack() as stack:
        adapters = [
            await stack.enter_async_context(
                opened(f"models.{name}", base=base, lora=Lora(rank=2), overlap=True)
            )
            for name in "abc"
        ]
        for way, adapter in enumerate(adapters):
            optimizer = WeightOptimizer(adapter, Optimizer(learning_rate=0.02 * way + 1e-4), 9)
            for _ in range(9):
                train([adapter], [optimizer])
        alone = [
            [answer["generation"]["logprobs"] for answer in await said([adapter])]
            for adapter in adapters
        ]
        for _ in range(5):
            data = await said(adapters)
            now = [answer["generation"]["logprobs"] for answer in data]
            assert now == [row for rows in alone for row in rows]


@sync
async def test_a_training_that_does_not_fit_is_an_error_with_sizes() -> None:
    with pytest.raises(RunError, match=r"small: 14.\d KB are needed at once and there are 13.5 KB"):
        async with several(1, placed(0.9)):
            pass
    async with several(2, placed(1.5)) as models:  # nobody trains these
        with pytest.raises(RunError, match=r"\(m0 14.\d KB, m0's optimizer 4\d.\d KB\); use"):
            optimizers_of(models)


@sync
async def test_offloaded_tensors_are_in_unnamed_files_of_the_run_folder(tmp_path: Path) -> None:
    settings = Torch(memory="20 KB", offload="disk")
    context = OpenContext("devices.cpu", Key(0), directory=tmp_path)
    async with settings.open(context) as device, several(2, device) as models:
        await said(models)
        (weight,) = (
            weight for name, weight in models[0].parameters() if name.endswith("q_proj.weight")
        )
        assert str(tmp_path) in _file_behind(weight)
        assert not _file_behind(next(models[1].module.parameters()))
        assert os.listdir(tmp_path) == []


def _file_behind(tensor: torch.Tensor) -> str:
    """Of the memory that a tensor is in, as Linux tells."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux says which file is behind an address")
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, *rest = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        if start <= tensor.data_ptr() < end:
            return rest[4] if len(rest) == 5 and rest[4].startswith("/") else ""
    raise AssertionError("a tensor outside of memory")


@sync
async def test_moments_are_offloaded_while_another_model_trains(tmp_path: Path) -> None:
    async with several(2, placed(4, tmp_path)) as models:
        optimizers = optimizers_of(models)
        train(models, optimizers)
        behind = [
            [_file_behind(tensor) for tensor in optimizer._steps.tensors()]
            for optimizer in optimizers
        ]
    assert behind[0]
    assert all(str(tmp_path) in file for file in behind[0])
    assert not any(behind[1])


@sync
async def test_an_offload_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"{tmp_path}/none: weights cannot be offloaded there"):
        async with several(1, placed(4, tmp_path / "none")):
            pass


@pytest.mark.parametrize("where", ["cpu", "disk"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_moved_tensor_keeps_identity_values_strides_and_sharing(
    where: Literal["cpu", "disk"], dtype: torch.dtype
) -> None:
    """Moving is copying, here too: what is elsewhere has memory of its own."""
    torch.manual_seed(0)
    module = torch.nn.Module()
    module.turned = torch.nn.Parameter(torch.randn(3, 5, dtype=dtype).t())
    module.tied = torch.nn.ModuleList([torch.nn.Linear(4, 4, dtype=dtype) for _ in range(2)])
    module.tied[1].weight = module.tied[0].weight
    module.register_buffer("scale", torch.ones((), dtype=dtype))
    module.register_buffer("empty", torch.ones(0, 2, dtype=dtype))
    gradient = module.turned.grad = torch.ones_like(module.turned)

    def held() -> list[torch.Tensor]:
        return [*module.parameters(), *module.buffers()]

    def tensors() -> list[torch.Tensor]:
        return [*held(), gradient]

    before, values = tensors(), [tensor.detach().clone() for tensor in tensors()]
    pool = Pool("small", None)
    resident = Resident("m", held, torch.device("cpu"), pool, away(where))
    for move in (resident.settle, resident.enter, resident.leave, resident.enter):
        places = [tensor.data_ptr() for tensor in tensors() if tensor.numel()]
        before_it = [tensor.detach() for tensor in tensors()]  # so that no memory is used twice
        move()
        assert {tensor.data_ptr() for tensor in tensors() if tensor.numel()}.isdisjoint(places)
        for now, old, value in zip(tensors(), before, values, strict=True):
            assert now is old
            assert now.stride() == value.stride()
            assert torch.equal(now, value)
        assert module.tied[1].weight is module.tied[0].weight
        del before_it
    assert module.turned.requires_grad
    assert module.turned.grad is gradient


def test_only_added_tensors_are_copied_when_a_resident_settles_again() -> None:
    tensors = [torch.ones(3)]
    copies = []

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        copies.append(tensor.shape)
        return tensor.clone()

    resident = Resident("m", lambda: tensors, torch.device("cpu"), Pool("small", None), copied)
    resident.settle()
    tensors.append(torch.ones(5))
    resident.settle()
    assert copies == [(3,), (5,)]


def test_offloading_a_processor_to_its_own_memory_is_an_error() -> None:
    with pytest.raises(ValueError, match="`cpu` has no effect"):
        Torch(offload="cpu")
