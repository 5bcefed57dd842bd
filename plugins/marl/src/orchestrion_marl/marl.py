"""The component `marl`: checks its settings against the team, then opens the trainer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from attrs import frozen
from orchestrion_local import check_known, names_of, unsynced

from orchestrion import OpenContext, Trainer, UsageError
from orchestrion_marl.settings import MarlSettings


@frozen
class Marl(MarlSettings):
    """Trains the language models behind a team by the reward of the whole team.

    An iteration runs `group` episodes on each of `problems` problems, estimates the advantage of
    every call, and takes `updates` steps with the optimizer of each model on

        L = - mean min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) + kl KL - entropy H

    where rho is the probability of a token now divided by that when it was sampled, A the
    advantage and H the entropy; for A < 0 a token's loss is at most `dual_clip` |A|. Agents that
    name the same model train it together. The default estimator is Dr.MAS (Feng et al. 2026,
    arXiv 2602.08847), which compares an agent's calls only with calls of the same agent. The
    algorithm and its deviations from the paper are in `orchestrion_marl.trainer`.
    """

    smoke: ClassVar[Mapping[str, int]] = {"iterations": 1, "problems": 2, "group": 2}

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """Yield the trainer; in a dry run without models, which needs no torch.

        Raises:
            UsageError: a model has no weights; a name is not in the team or not in `models`; or a
                server never gets new weights and `max_staleness` would leave its calls out.
        """
        names = names_of(self.models, ctx)
        team = tuple(member.name for member in ctx.roster)
        check_known(self.agents, team, f"{ctx.path}.agents")
        check_known(self.optimizers, names, f"{ctx.path}.optimizers")
        oldest = self.iterations - 1
        fixed = unsynced(names, self.models)
        if fixed and self.max_staleness < oldest:
            raise UsageError(
                f"{ctx.path}.max_staleness: {fixed[0]} is sampled by a server with `sync: none`. "
                f"In the last of {self.iterations} iterations its responses are {oldest} versions "
                f"old; with max_staleness {self.max_staleness} they would be left out. Give the "
                f"server a `sync`, or set max_staleness to {oldest}"
            )
        # Not above: listing plugins must not load numpy.
        from orchestrion_marl.trainer import MarlTrainer

        yield MarlTrainer(self, ctx)
