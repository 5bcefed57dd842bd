"""The improver `gepa`, alone or as a trainer: settings. What it does stands in `evolver`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, Literal

from attrs import frozen
from orchestrion_beam.interfaces import Improver

from orchestrion import JSON, Meta, Model, OpenContext, Trainer
from orchestrion_improve.standalone import SMOKE, Rounds

__all__ = ["Gepa", "GepaTrainer"]

Count = Annotated[int, Meta(ge=1)]


@frozen(kw_only=True)
class Gepa:
    """Evolves what agents are told, by reflection on what happened (GEPA, arXiv 2507.19457).

    Candidates are texts, one for each agent. A parent is drawn from the per-instance front; a model
    reads its episodes on a few training problems, verifier's findings included, and writes the
    text of one agent anew; only if the child does better on the same problems with the same keys
    is it evaluated on all instances and taken in. At the end of a round the best are judged beside
    what the team has now, on fresh draws, and nothing is changed that does not hold there.

    Args:
        model: reflects.
        setting: the learnable setting that evolves, a text.
        agents: whose; by default those of the team that have the setting.
        evaluations: episodes of the search in a round; the judgement at its end comes on top.
        instances: validation problems of the front, at most half of those there are.
        draws: episodes on each instance.
        minibatch: training problems a child has to do better on.
        choose: parents come from the `front`, or are always the `best` by mean, which climbs one
            hill: to compare with.
        merge: whether lineages that are good at different instances are merged.
        finalists: candidates that are judged at the end of a round.
        pairs: pairs of episodes in the judgement of each.
        chance: that a round adopts what is no better.
        extra: share of calls, dollars or cost that an episode may take more.
        longest: characters of a text.
        max_tokens: of an answer of the model.
    """

    model: Model
    setting: str = "instructions"
    agents: Sequence[str] = ()
    evaluations: Count = 300
    instances: Count = 24
    draws: Count = 1
    minibatch: Count = 4
    choose: Literal["front", "best"] = "front"
    merge: bool = True
    finalists: Count = 2
    pairs: Count = 200
    chance: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    extra: Annotated[float, Meta(ge=0)] = 0.5
    longest: Count = 4000
    max_tokens: Count = 2000

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Any]:
        """A pool without candidates."""
        yield self.improver(ctx)

    def improver(self, ctx: OpenContext) -> Improver:
        """The runtime."""
        from orchestrion_improve.evolver import Evolver

        return Evolver(self, ctx.path, ctx.key, [one.name for one in ctx.roster])


@frozen(kw_only=True)
class GepaTrainer(Rounds, Gepa):
    """Evolves instructions with plain episodes of the team's own policy."""

    smoke: ClassVar[Mapping[str, JSON]] = {
        **SMOKE,
        "evaluations": 16,
        "instances": 2,
        "minibatch": 2,
        "finalists": 1,
        "pairs": 6,
    }

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The pool, and what runs rounds."""
        from orchestrion_improve.training import Training

        yield Training(self, self.improver(ctx), ctx)
