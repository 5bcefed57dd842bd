"""The vote over the answers seen so far.

A model that gave an answer backs it with its vote. The answer with the most votes leads; between
answers with equally many, the one first in the order of their compared text. What the votes are
is the task's setting:

- `plurality`: one each; between equally many, the larger sum of weights decides.
- `weighted`: the model's weight in the question's group; between equal sums, the number of votes.

Both fit into one whole number a model, so the result does not depend on the order of asking, and
is the same whoever adds it up. A model that gave no answer has no vote. Nothing asked, or no
answer at all: nothing leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

__all__ = ["Vote", "ballot", "leader", "tally"]

Vote = Literal["plurality", "weighted"]

_COUNT = 1 << 10  # more than there can be voters
_HEAD = 1 << 34  # more than all weights together: 1,000 voters of 5 * 2^20 each


def ballot(weight: int, vote: Vote) -> int:
    """Return what one model's vote counts for."""
    return _HEAD + weight if vote == "plurality" else weight * _COUNT + 1


def tally(said: Sequence[int], votes: Sequence[int], asked: Iterable[int], codes: int) -> list[int]:
    """Return votes by code of the answer; negative codes are no answers."""
    totals = [0] * codes
    for model in asked:
        if said[model] >= 0:
            totals[said[model]] += votes[model]
    return totals


def leader(totals: Sequence[int]) -> int:
    """Return the code that leads; -1 if nothing does."""
    highest = max(totals, default=0)
    return totals.index(highest) if highest > 0 else -1
