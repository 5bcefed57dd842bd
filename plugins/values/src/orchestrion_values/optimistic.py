"""The trainer `optimistic`: plan over what was seen, and hope for the best elsewhere.

After R-max (Brafman and Tennenholtz 2002) and MBIE-EB (Strehl and Littman 2008): what was tried
too rarely counts as the best possible, everything else gets a bonus / sqrt(tries), and the best
plan over that is followed. Deviations:

* Episodes are finite: plans are made by backward induction, with the number of the decision beside
  the state, and counts are shared between decisions.
* States share what they have in common: trees predict, from the features, the effect of a choice
  and what an end pays. A prediction counts as a few tries, as many as it has proved to be worth
  (`pooled`), and as far as every two features of the state were tried together (`dynamics`).
* States are what the task shows, without its clock, and without a history that never repeats
  (`states`).
* Where such a history is shown, what matters is taken to be hidden: a hidden-state model is learned
  from it (`log`, `hidden`), and the plan is one over beliefs (`beliefs`). It shares everything
  among all histories, so that exploring is by chance: softmax, and now and then anything.
* Plans are made anew when the episodes have grown by the share `growth`; equally good choices are
  drawn from. The final policy goes by the means, without hope.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, ClassVar

from attrs import frozen

from orchestrion import JSON, Meta, OpenContext, Trainer

__all__ = ["Optimistic"]


@frozen
class Optimistic:
    """Learns what choices lead to, tries what is unknown, and plans.

    For tasks that show where things stand as features, where few episodes have to do. It trains
    the policy `values`.

    Args:
        episodes: training episodes of the whole run.
        known: tries after which a choice in a state no longer counts as the best possible.
        bonus: what is added to its value then, over the square root of the tries, as a share of the
            difference between the best and the worst end.
        best: what the best end pays, if no better one was seen.
        levels: a feature with more different values is cut into so many intervals.
        hidden_states: of the model of what is hidden, where what was heard is shown call by call; 0
            never looks for it.
        tries: random beginnings of that model's fit.
        temperature: how much worse a choice may look to be tried there, as a share of the same
            difference.
        random: the share of choices there that are any.
        growth: plan anew after so many more episodes, as a share of those already made.
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
        """Episodes of each iteration."""
        sizes: list[int] = []
        done = 0
        while done < self.episodes:
            sizes.append(min(self.episodes - done, max(8, int(done * self.growth))))
            done += sizes[-1]
        return tuple(sizes)

    @property
    def iterations(self) -> int:
        """As many plans as are made."""
        return len(self.sizes)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Trainer]:
        """The trainer at work."""
        from orchestrion_values.optimism.learner import Learner

        yield Learner(self, ctx)
