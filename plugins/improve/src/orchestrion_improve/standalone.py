"""What both improvers have as trainers of their own: where their episodes come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from attrs import frozen

from orchestrion import JSON, Meta

__all__ = ["SMOKE", "Rounds"]

Count = Annotated[int, Meta(ge=1)]

SMOKE: Mapping[str, JSON] = {"iterations": 1, "every": 1, "problems": 4, "samples": 4}
"""A trial run: one round, with samples enough to differ, since else the model is not asked."""


# Not slotted, so that it can be a base beside the settings of an improver.
@frozen(kw_only=True, slots=False)
class Rounds:
    """Episodes on training problems, and every so many iterations a round of improvement.

    Args:
        iterations: how many.
        every: iterations to a round.
        problems: training problems of an iteration.
        samples: episodes on each; advantages are within them.
        held_out: share of the validation problems that decide about nothing: what was learned is
            judged on them at the end, beside what there was at first.
    """

    iterations: Count = 4
    every: Count = 1
    problems: Count = 16
    samples: Annotated[int, Meta(ge=2)] = 4
    held_out: Annotated[float, Meta(ge=0, lt=1)] = 0.3
