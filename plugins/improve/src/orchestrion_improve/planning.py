"""What a round of improvement takes at most, for `train --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from orchestrion import Model, Plan, Split, Usage, ceiling_of, times

if TYPE_CHECKING:
    from orchestrion_improve.behaviours import Behaviours
    from orchestrion_improve.gepa import Gepa

__all__ = ["habits_round", "plus", "texts_round"]

BYTES = 4
"""A character has so many at most, and a byte is taken for a token."""
FRAME = 20_000
"""Characters of a question beside its episodes, and of an answer that is shown again."""
TRACE = 6200
"""Characters of an episode that a model reflects on, with its heading."""


def habits_round(
    settings: Behaviours, roles: int, sizes: Mapping[Split, int], turns: int | None
) -> Plan | None:
    """One round of `behaviours`; None where turns or the model have no bound.

    A trial has two sides, each of which may be played for it alone. Everything may win, and is
    then tried again beside the others.
    """
    asked = _asked(settings.model, settings.reads, 2 * roles)
    if turns is None or asked is None:
        return None
    tried = roles * settings.proposals
    episodes = 2 * _pairs(settings.pairs, sizes) * (2 * tried + settings.again)
    episodes += 2 * _pairs(settings.elsewhere, sizes) * tried
    return Plan(episodes * turns, episodes, 0, asked, forked=False)


def texts_round(
    settings: Gepa, roles: int, sizes: Mapping[Split, int], turns: int | None
) -> Plan | None:
    """One round of `gepa`; None where turns or the model have no bound.

    Every step plays a minibatch, and may be followed by a merger, which may ask about every role.
    """
    steps = ceil(settings.evaluations / settings.minibatch) + 1
    reads = TRACE * settings.minibatch + 2 * settings.longest
    asked = _asked(settings.model, reads, 2 * steps * (1 + roles))
    if turns is None or asked is None:
        return None
    whole = settings.instances * settings.draws
    # The last step may begin just before the budget is used up; the first candidate comes on top.
    episodes = settings.evaluations + 2 * settings.minibatch + 2 * whole
    episodes += 2 * settings.finalists * _pairs(settings.pairs, sizes)
    return Plan(episodes * turns, episodes, 0, asked, forked=False)


def _pairs(pairs: int, sizes: Mapping[Split, int]) -> int:
    """Pairs of a trial, rounded up to whole laps through its problems."""
    return min(2 * pairs, pairs + sizes["validation"])


def _asked(model: Model, reads: int, questions: int) -> Usage | None:
    one = ceiling_of(model, BYTES * (reads + FRAME))
    return None if one is None else times(one, questions)


def plus(one: Plan, other: Plan) -> Plan:
    """Both, of whole episodes."""
    return Plan(
        one.activations + other.activations,
        one.verdicts + other.verdicts,
        one.scores + other.scores,
        one.usage + other.usage,
        forked=False,
    )
