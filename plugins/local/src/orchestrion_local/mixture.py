"""The model `mixture`: settings. The runtime is in `mixing`, which needs torch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from attrs import frozen

from orchestrion import Meta, Model, OpenContext, UsageError
from orchestrion_local.hf import PlannedModel, server_of
from orchestrion_local.settings import UNSUPPORTED, Count, SamplingLimits, settings_of


@frozen
class Mixture:
    """Several `hf` models with one tokenizer answer together, token by token.

    Args:
        members: the models; at least two.
        weights: of the members; equal by default. Only their ratios matter.
        mode: `average` takes the weighted mean of the members' probabilities; `draw` lets one
            member, drawn by weight for each token, decide alone. At temperature 1 both draw from
            the same distribution.
        max_tokens: maximal length of a response if the request gives none.
        temperature: sampling temperature if the request gives none.
    """

    unsupported = UNSUPPORTED

    members: Annotated[Sequence[Model], Meta(min_length=2)]
    weights: Sequence[Annotated[float, Meta(gt=0)]] = ()
    mode: Literal["average", "draw"] = "average"
    max_tokens: Count = 256
    temperature: Annotated[float, Meta(ge=0)] = 1.0

    def __attrs_post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.members):
            raise ValueError(
                f"weights: {len(self.weights)} for {len(self.members)} members; give one for each"
            )

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Model]:
        """Yield the model at work; in a dry run only check the kinds of the members.

        Raises:
            UsageError: a member is not an `hf` model, is sampled by a server, or does not fit
                the others.
        """
        if ctx.trial:
            for i, member in enumerate(self.members):
                if settings_of(member) is None:
                    raise UsageError(f"{ctx.path}.members[{i}]: is not an `hf` model")
                if server_of(member) is not None:
                    raise UsageError(
                        f"{ctx.path}.members[{i}]: has a `server`, which gives whole responses; a "
                        "mixture samples token by token in this process; remove the `server`"
                    )
            yield PlannedModel(self, self.max_tokens)
            return
        from orchestrion_local.mixing import MixedModel

        limits = SamplingLimits(self.max_tokens, self.temperature)
        yield MixedModel(ctx.path, self.members, self.weights, self.mode, limits)
