"""The trainer `auto`: settings, and the trainers that it picks from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Annotated, ClassVar

from attrs import evolve, frozen

from orchestrion import JSON, Meta, OpenContext, Trainer
from orchestrion_values.fitted_q import batches

__all__ = ["CANDIDATES", "Auto"]

CANDIDATES: dict[str, tuple[str, dict[str, JSON]]] = {
    "bandit": ("orchestrion_values.bandit:Bandit", {}),
    "bandit with text": ("orchestrion_values.bandit:Bandit", {"text": True}),
    "optimistic": ("orchestrion_values.optimistic:Optimistic", {}),
    "fitted-q": ("orchestrion_values.fitted_q:FittedQ", {}),
}
"""By name: where a trainer stands, and how it is set, other than by default."""
LEAST, MOST = 20, 64


@frozen
class Auto:
    """Picks a trainer of the policy `values` by what some episodes show, and says why.

    The first episodes try choices at random. What they show decides: `bandit` where one choice is
    all there is to an episode, with the words of problems where there are many; `optimistic` where
    what the task shows comes back, so that it can be counted, and says how an episode ends; else
    `fitted-q`. The one that is picked learns from these episodes too. Which it was, and why, is in
    the run's notes and in the metrics.

    Args:
        episodes: training episodes of the whole run, with those that decide.
        probe: the share that decides; 20 episodes at least where there are 100, and 64 at most.
    """

    episodes: Annotated[int, Meta(ge=1)] = 300
    probe: Annotated[float, Meta(gt=0, lt=1)] = 0.1

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    @property
    def first(self) -> int:
        """Episodes that decide."""
        share = min(MOST, round(self.probe * self.episodes))
        return max(1, min(LEAST, self.episodes // 5), share)

    @property
    def iterations(self) -> int:
        """One to look, and fewer than any trainer has, so that each has episodes in all of them."""
        left = self.episodes - self.first
        return 1 + (max(1, len(batches(left)) * 2 // 3) if left > 0 else 0)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Open every trainer that may be picked."""
        from orchestrion_values.picking import Picker

        left = max(1, self.episodes - self.first)
        async with AsyncExitStack() as stack:
            learners = {}
            for name, (where, settings) in CANDIDATES.items():
                module, _, kind = where.partition(":")
                trainer = getattr(import_module(module), kind)(episodes=left, **settings)
                inside = evolve(ctx, key=ctx.key.child(name), note=_quiet)
                learners[name] = await stack.enter_async_context(trainer.open(inside))
            yield Picker(learners, self, ctx)


def _quiet(name: str, text: str) -> None:
    """What a trainer notes that may not be picked is of no interest."""
