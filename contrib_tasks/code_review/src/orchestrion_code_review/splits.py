"""Which split a problem is in: by a hash of its group, so that it stays there for ever."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import get_args

from orchestrion import Split, UsageError
from orchestrion_code_review.challenge import Challenge

__all__ = ["FRACTIONS", "check_fractions", "split_of"]

FRACTIONS: Mapping[Split, float] = {"train": 0.5, "validation": 0.2, "test": 0.3}
"""About these shares of problems that name no split."""


def split_of(challenge: Challenge, fractions: Mapping[Split, float] = FRACTIONS) -> Split:
    """Its own, or the one its group falls into; other problems have no say in it."""
    if challenge.split is not None:
        return challenge.split
    name = (challenge.group or challenge.id).encode("utf-8", "replace")
    draw = int.from_bytes(blake2b(name, digest_size=7).digest()) / 2**56
    for split in get_args(Split)[:-1]:
        draw -= fractions.get(split, 0.0)
        if draw < 0:
            return split  # type: ignore[no-any-return]
    return "test"


def check_fractions(fractions: Mapping[Split, float]) -> None:
    """Refuse what are no shares that make 1 together.

    Raises:
        UsageError: says what is wrong.
    """
    shares = list(fractions.values())
    if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise UsageError(f"fractions: {dict(fractions)} are not shares that make 1 together")
