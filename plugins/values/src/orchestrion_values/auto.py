"""The trainer `auto`: settings, and its candidates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Annotated, ClassVar

from attrs import evolve, frozen

from orchestrion import JSON, Meta, OpenContext, Trainer

CANDIDATES: dict[str, tuple[str, dict[str, JSON]]] = {
    "bandit": ("orchestrion_values.bandit:Bandit", {}),
    "bandit with text": ("orchestrion_values.bandit:Bandit", {"text": True}),
    "optimistic": ("orchestrion_values.optimistic:Optimistic", {}),
    "fitted-q": ("orchestrion_values.fitted_q:FittedQ", {}),
}
"""Class and settings of each candidate, by name."""
LEAST, MOST = 20, 64


@frozen
class Auto:
    """Picks a trainer of the policy `values` by the first episodes, and notes why.

    The first episodes make random choices. They decide: `bandit` if an episode is one choice, with
    the words of problems if there are many; `optimistic` if situations repeat, so that they can be
    counted, and determine how an episode ends; else `fitted-q`. The picked trainer learns from
    these episodes too. The run's notes say which one it is and why; metrics have its index.

    Args:
        episodes: training episodes of the whole run, including the first ones.
        probe: the share of first episodes; from 100 episodes on at least 20, and at most 64.
    """

    episodes: Annotated[int, Meta(ge=1)] = 300
    probe: Annotated[float, Meta(gt=0, lt=1)] = 0.1

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    @property
    def first(self) -> int:
        """The number of first episodes."""
        share = min(MOST, round(self.probe * self.episodes))
        return max(1, min(LEAST, self.episodes // 5), share)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        from orchestrion_values.picking import Picker

        left = max(1, self.episodes - self.first)
        async with AsyncExitStack() as stack:
            learners = {}
            for name, (where, settings) in CANDIDATES.items():
                module, _, kind = where.partition(":")
                trainer = getattr(import_module(module), kind)(episodes=left, **settings)
                inside = evolve(ctx, key=ctx.key.child(name), note=lambda name, text: None)
                learners[name] = await stack.enter_async_context(trainer.open(inside))
            yield Picker(learners, self, ctx)
