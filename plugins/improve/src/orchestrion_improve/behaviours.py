"""The improver `behaviours`, alone or as a trainer: settings. What it does stands in `learner`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar

from attrs import frozen
from orchestrion_beam.interfaces import Improver

from orchestrion import JSON, Meta, Model, OpenContext, Trainer
from orchestrion_improve.standalone import SMOKE, Rounds

__all__ = ["Behaviours", "BehavioursTrainer"]

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0)]


@frozen(kw_only=True)
class Behaviours:
    """Learns short habits, and keeps those that help on problems they were not made from.

    In every round a model reads the best and the worst episodes of each agent that has a setting
    `habits`, and proposes habits for problems of one category, or of any. Each is tried on
    validation problems: the same problems and the same keys, with it and without. It enters the
    agent's habits if both a paired bootstrap interval and a randomisation test say that it
    helps, corrected for how many were tried in the round. Habits in use are tried again on fresh
    draws, and retired when they no longer help.

    Args:
        model: reads and proposes.
        agents: whose habits; by default those of the team that have the setting.
        proposals: habits an agent may be proposed in a round.
        examples: best and worst episodes that the model reads, of each category.
        reads: characters of episodes in a question; each is cut to its share.
        pairs: pairs of episodes in a trial; beyond the number of problems, problems come again
            with other draws. From .5 to .65 solved, 400 find 98 in 100.
        chance: that a round takes in anything useless, whatever the number of proposals.
        elsewhere: pairs on other categories, on which a habit for one category must not harm.
        extra: share of calls, dollars or cost that an episode may take more; better at a higher
            price is no help.
        again: habits in use that a round tries again, those tried least first.
        cap: habits in use an agent may have; a better one takes the place of the weakest.
        begin_with: habits to begin with: a run's folder, its `learned_behaviors.json`, or a file
            of habits by agent and category.
        max_tokens: of an answer of the model.
    """

    model: Model
    agents: Sequence[str] = ()
    proposals: Count = 4
    examples: Count = 2
    reads: Annotated[int, Meta(ge=1000)] = 24_000
    pairs: Count = 400
    chance: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    elsewhere: Annotated[int, Meta(ge=0)] = 64
    extra: Share = 0.2
    again: Annotated[int, Meta(ge=0)] = 1
    cap: Count = 8
    begin_with: Path | None = None
    max_tokens: Count = 1500

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Any]:
        """The library, empty."""
        yield self.improver(ctx)

    def improver(self, ctx: OpenContext) -> Improver:
        """The runtime."""
        from orchestrion_improve.learner import Learner

        return Learner(self, ctx.path, [one.name for one in ctx.roster])


@frozen(kw_only=True)
class BehavioursTrainer(Rounds, Behaviours):
    """Learns habits from plain episodes of the team's own policy."""

    smoke: ClassVar[Mapping[str, JSON]] = {**SMOKE, "pairs": 12, "elsewhere": 4}

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The library, and what runs episodes for it."""
        from orchestrion_improve.training import Training

        yield Training(self, self.improver(ctx), ctx)
