"""Which question belongs to which split: by a hash of its id, so that it never moves."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any

from attrs import Attribute, field, frozen

from orchestrion import Meta, Split

__all__ = ["Shares", "split_of"]

Share = Annotated[float, Meta(ge=0, le=1)]
_ORDER: Sequence[Split] = ("train", "validation", "test")


@frozen
class Shares:
    """How questions are divided. A question's place depends on its id and the seed alone.

    Args:
        train: share of the questions to learn from.
        validation: share to choose by while training.
        test: share to judge by.
        seed: another division.
    """

    train: Share = 0.6
    validation: Share = 0.1
    test: Share = field(default=0.3)
    seed: int = 0

    @test.validator
    def _check_sum(self, attribute: Attribute[Any], value: float) -> None:
        total = self.train + self.validation + value
        if abs(total - 1) > 1e-6:
            raise ValueError(f"train + validation + test: got {total:g}, expected 1")


def split_of(question: str, shares: Shares) -> Split:
    """The split of a question."""
    digest = blake2b(f"{shares.seed}:{question}".encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    below = 0.0
    for split in _ORDER:
        below += getattr(shares, split)
        if place < below:
            return split
    # Shares may add up to a hair under 1; the question goes to the last split that has any.
    return next(split for split in reversed(_ORDER) if getattr(shares, split) > 0)
