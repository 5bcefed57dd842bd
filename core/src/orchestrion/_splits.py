"""Divide problems into splits by a hash of their names, so that none ever moves."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any

from attrs import Attribute, field, frozen
from msgspec import Meta

from orchestrion._records import Split

_Share = Annotated[float, Meta(ge=0, le=1)]
_ORDER: Sequence[Split] = ("train", "validation", "test")


@frozen
class SplitShares:
    """Say how large each split is. The split of a problem depends on its name and the seed alone.

    Args:
        train: share of the problems to learn from.
        validation: share of the problems to choose by during training.
        test: share of the problems to evaluate on.
        seed: another seed gives another division.

    Raises:
        ValueError: the three shares do not add up to 1.
    """

    train: _Share = 0.6
    validation: _Share = 0.1
    test: _Share = field(default=0.3)
    seed: int = 0

    @test.validator
    def _check_sum(self, attribute: Attribute[Any], value: float) -> None:
        total = self.train + self.validation + value
        if abs(total - 1) > 1e-6:
            raise ValueError(f"train + validation + test: got {total:g}, expected 1")


def split_of(name: str, shares: SplitShares) -> Split:
    """Return the split of the problem with this name; other problems make no difference."""
    digest = blake2b(f"{shares.seed}:{name}".encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    upper = 0.0
    for split in _ORDER:
        upper += getattr(shares, split)
        if position < upper:
            return split
    # Rounding can leave the sum just below 1: use the last split whose share is not 0.
    return next(split for split in reversed(_ORDER) if getattr(shares, split) > 0)
