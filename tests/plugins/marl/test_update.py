"""One update of a model: how settings of agents and the sampler's probabilities enter the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from orchestrion_local import WeightOptimizer
from orchestrion_local.interfaces import Generation
from orchestrion_local.runtime import LocalModel
from orchestrion_local.settings import Optimizer
from orchestrion_marl.calls import Call
from orchestrion_marl.settings import AgentSettings, Kl, MarlSettings
from orchestrion_marl.updating import Batch, UpdateStatistics, update

from orchestrion import Key
from tests.plugins.local.support import opened, sync

RESPONSES = [(5, 6, 7), (8, 9), (6,), (7, 5, 5, 9)]


def now(model: LocalModel) -> list[torch.Tensor]:
    """The log-probabilities of the responses."""
    with torch.no_grad():
        rows = [Generation("m", 0, (5,), said, (0.0,) * len(said)) for said in RESPONSES]
        return [model.score([row]).logprobs[0].double() for row in rows]


async def updated(
    shift: float = 0.0, before: bool = False, agents: Any = None, **settings: Any
) -> tuple[UpdateStatistics, dict[str, torch.Tensor]]:
    """An update on responses whose sampler gave them probabilities exp(`shift`) times as large."""
    async with opened() as model:
        marl = MarlSettings([model], **settings)
        logprobs = now(model)
        calls = [
            Call(
                "ab"[i % 2],
                i,
                0,
                0,
                1.0,
                Generation("m", 0, (5,), said, tuple((logprobs[i] + shift).tolist())),
                True,
            )
            for i, said in enumerate(RESPONSES)
        ]
        batch = Batch(
            calls,
            [np.full(len(said), 1.0 - i) for i, said in enumerate(RESPONSES)],
            [row.numpy() - 1.0 for row in logprobs] if settings.get("kl") else (),
            [row.numpy() for row in logprobs] if before else (),
        )
        team = MarlSettings([model], agents=agents or {}, **settings)
        optimizer = WeightOptimizer(model, Optimizer(max_gradient_norm=None), 1, marl.micro_batch)
        by_name = {name: team.of(name) for name in "ab"}
        statistics = update(model, optimizer, batch, marl, by_name, Key(0))
        return statistics, {name: value.detach().clone() for name, value in model.parameters()}


@sync
async def test_importance_weights_make_up_for_a_sampler_that_differs_up_to_the_cap() -> None:
    (plain, _), (capped, _), (below, _) = [
        await updated(shift, True, importance_cap=2.0) for shift in (0.0, -2.0, -0.5)
    ]
    # What the sampler found four or seven times less likely counts twice, and no more.
    assert capped.norms[0] == pytest.approx(2 * plain.norms[0], rel=1e-5)
    assert below.norms[0] == pytest.approx(np.exp(0.5) * plain.norms[0], rel=1e-5)
    assert capped.metrics("m")["a/clipped"] == 0
    assert capped.metrics("m")["a/mismatch"] == pytest.approx(2.0, rel=1e-5)
    # Without the cap, rho has the difference: tokens beyond the clip have no gradient.
    clipped, _ = await updated(-2.0)
    assert clipped.metrics("m")["a/clipped"] > 0


@sync
async def test_an_agent_can_have_a_clip_and_a_divergence_of_its_own() -> None:
    wide = {"a": AgentSettings(clip_high=9.0)}
    alike, _ = await updated(-1.0)
    other, _ = await updated(-1.0, agents=wide)
    assert alike.metrics("m")["a/clipped"] > 0 == other.metrics("m")["a/clipped"]
    assert alike.metrics("m")["b/clipped"] == other.metrics("m")["b/clipped"]

    kl = Kl(weight=0.5)
    _, both = await updated(kl=kl)
    all_calls, neither = await updated(
        kl=kl, agents=dict.fromkeys("ab", AgentSettings(kl_weight=0.0))
    )
    learned_from, without = await updated()
    assert not all(torch.equal(both[name], without[name]) for name in both)
    assert all(torch.equal(neither[name], without[name]) for name in both)
    # The second response's advantage is 0: without a divergence nothing is computed of it.
    assert all_calls.sums["b"]["tokens"] == 6
    assert learned_from.sums["b"]["tokens"] == 4
    async with opened() as model:
        with pytest.raises(ValueError, match=r"`kl_weight` needs a `kl\.weight`"):
            MarlSettings([model], agents={"a": AgentSettings(kl_weight=0.1)})


@sync
async def test_the_norm_of_a_step_does_not_depend_on_micro_batches() -> None:
    whole, _ = await updated(kl=Kl(weight=0.5), entropy=0.1)
    parts, _ = await updated(kl=Kl(weight=0.5), entropy=0.1, micro_batch=3)
    assert parts.micro_batch == 3
    assert parts.norms == pytest.approx(whole.norms, rel=1e-5)
