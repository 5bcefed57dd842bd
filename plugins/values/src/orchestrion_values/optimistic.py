"""The trainer `optimistic`: plan over what was seen, and hope for the best elsewhere.

After R-max (Brafman and Tennenholtz 2002) and MBIE-EB (Strehl and Littman 2008): what was tried
too rarely counts as the best possible, other choices get a bonus / sqrt(tries), and the best plan
by these values is followed. Deviations:

* Episodes are finite: plans use backward induction over state and decision number; counts are
  shared between decision numbers.
* States generalise: trees predict, from the features, the effect of a choice and the reward of an
  end. A prediction counts as a few tries, as many as it has proved to be worth, and at most as many
  as any two features of the state were tried together (`dynamics`).
* States are what the task shows, without its clock, and without a history that never repeats
  (`states`).
* If such a history is shown, a hidden state is assumed: a model of it is learned (`hidden`), and
  the plan is over beliefs (`beliefs`). This model shares all data between histories, so exploration
  is random: softmax, mixed with uniform.
* A new plan is made when the episodes have grown by the share `growth`; ties are drawn from. The
  final policy uses means without bonus.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar

from attrs import frozen

from orchestrion import JSON, Meta, OpenContext, Trainer


@frozen
class Optimistic:
    """Trains the policy `values` by a learned model of the task, optimism and planning.

    For tasks that show their state as features, with few episodes.

    Args:
        episodes: training episodes of the whole run.
        known: tries after which a choice in a state no longer counts as the best possible.
        bonus: added to its value then, over the square root of the tries, as a share of the
            difference between the best and the worst end.
        best: the reward of the best end, if no better one was seen.
        levels: a feature with more different values is cut into so many intervals.
        hidden_states: of the hidden-state model, if the task shows its history call by call; 0
            never learns one.
        tries: random starts of that model's fit.
        temperature: of exploring with that model, as a share of the same difference.
        random: the share of uniformly random choices with that model.
        growth: plan again after so many more episodes, as a share of those before.
    """

    episodes: Annotated[int, Meta(ge=1)] = 1000
    known: Annotated[float, Meta(ge=0)] = 2.0
    bonus: Annotated[float, Meta(ge=0)] = 0.05
    best: float = 1.0
    levels: Annotated[int, Meta(ge=2)] = 12
    hidden_states: Annotated[int, Meta(ge=0)] = 6
    tries: Annotated[int, Meta(ge=1)] = 16
    temperature: Annotated[float, Meta(gt=0)] = 0.1
    random: Annotated[float, Meta(ge=0, le=1)] = 0.25
    growth: Annotated[float, Meta(gt=0, le=1)] = 0.15

    smoke: ClassVar[Mapping[str, JSON]] = {"episodes": 12}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the episodes of each iteration."""
        sizes: list[int] = []
        done = 0
        while done < self.episodes:
            sizes.append(min(self.episodes - done, max(8, int(done * self.growth))))
            done += sizes[-1]
        return tuple(sizes)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        from orchestrion_values.optimism.learner import Learner

        yield Learner(self, ctx)
