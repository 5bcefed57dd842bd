"""The trainer `auto`: settings, and its candidates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, ClassVar

from attrs import evolve, frozen

from orchestrion import JSON, Meta, OpenContext, Trainer
from orchestrion_values.bandit import Bandit
from orchestrion_values.fitted_q import FittedQ
from orchestrion_values.optimistic import Optimistic

LEAST, MOST = 20, 64


def candidates(episodes: int) -> dict[str, Bandit | Optimistic | FittedQ]:
    """Return the trainers to pick from, by name, for a number of episodes."""
    return {
        "bandit": Bandit(episodes),
        "bandit with text": Bandit(episodes, text=True),
        "optimistic": Optimistic(episodes),
        "fitted-q": FittedQ(episodes),
    }


@frozen
class Auto:
    """Picks a trainer of the policy `values` by the first episodes, and notes why.

    The first episodes make random choices. They decide: `bandit` if an episode is one choice, with
    the words of problems if there are many; `optimistic` if situations repeat, so that they can be
    counted, and determine how an episode ends, and the policy names no encoders; else `fitted-q`.
    The picked trainer learns from these episodes too. The run's notes say which one it is and why;
    metrics have its index.

    Args:
        episodes: training episodes of the whole run, including the first ones.
        probe: the share of first episodes; from 100 episodes on at least 20, and at most 64.
    """

    episodes: Annotated[int, Meta(ge=1)] = 300
    probe: Annotated[float, Meta(gt=0, lt=1)] = 0.1

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    @property
    def first(self) -> int:
        """Return the number of first episodes."""
        share = min(MOST, round(self.probe * self.episodes))
        return max(1, min(LEAST, self.episodes // 5), share)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        from orchestrion_values.picking import Picker

        left = max(1, self.episodes - self.first)
        async with AsyncExitStack() as stack:
            learners = {}
            for name, trainer in candidates(left).items():
                inside = evolve(ctx, key=ctx.key.child(name), note=lambda name, text: None)
                learners[name] = await stack.enter_async_context(trainer.open(inside))
            yield Picker(learners, self, ctx)
