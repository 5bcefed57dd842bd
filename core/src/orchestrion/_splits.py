"""Divide problems into splits by a hash of their names, in given shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Any

from attrs import Attribute, field, frozen
from msgspec import Meta

from orchestrion._records import Split

_Share = Annotated[float, Meta(ge=0, le=1)]
_ORDER: Sequence[Split] = ("train", "validation", "test")


@frozen
class SplitShares:
    """How large each split is, for `splits_of` and `split_of`.

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
            parts = f"{self.train:g} + {self.validation:g} + {value:g}"
            raise ValueError(
                f"train + validation + test: got {parts} = {total:g}, expected 1; a share that is "
                "left out has its default, so write all three"
            )


def splits_of(names: Iterable[str], shares: SplitShares) -> dict[str, Split]:
    """Return the split of each name, so that every split has its share to within one problem.

    The order of the names makes no difference, but further names may move a few to another split.
    A name that comes several times is in one split, and counts as often as it comes.
    """
    counts = Counter(names)
    before, total = 0, counts.total()
    splits: dict[str, Split] = {}
    for name in sorted(counts, key=lambda name: (_position(name, shares), name)):
        middle = before + counts[name] / 2
        splits[name] = _split_at(middle / total, shares)
        before += counts[name]
    return splits


def split_of(name: str, shares: SplitShares) -> Split:
    """Return the split of the problem with this name; other problems make no difference.

    A share is the probability of a split, so that few problems may be divided unevenly.
    """
    return _split_at(_position(name, shares), shares)


def _position(name: str, shares: SplitShares) -> float:
    """Return a number from 0 to 1 that depends on the name and the seed alone."""
    digest = blake2b(f"{shares.seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _split_at(position: float, shares: SplitShares) -> Split:
    upper = 0.0
    for split in _ORDER:
        upper += getattr(shares, split)
        if position < upper:
            return split
    # Rounding can leave the sum just below 1: use the last split whose share is not 0.
    return next(split for split in reversed(_ORDER) if getattr(shares, split) > 0)
