"""Which candidates stay in the beam: the best, but not all of one family. Pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from attrs import frozen

__all__ = ["Candidate", "choose"]


@frozen
class Candidate:
    """One trajectory that could stay.

    Args:
        value: estimate of its final score; None ranks behind all numbers.
        tie: decides between equal values; drawn from a key, different for each.
        parent: the trajectory it grew from.
        root: the first turn that it goes back to.
    """

    value: float | None
    tie: bytes
    parent: Hashable = None
    root: Hashable = None

    @property
    def rank(self) -> tuple[bool, float, bytes]:
        """Sorts the best first."""
        return (self.value is None, -(self.value or 0.0), self.tie)


def choose(
    candidates: Sequence[Candidate], width: int, min_parents: int = 1, min_roots: int = 1
) -> list[int]:
    """Places of the `width` candidates to keep, the best first.

    They have at least `min_roots` different roots and `min_parents` different parents, or as many
    as there are: the best candidate of each of the best families is kept before what else is good.
    """
    order = sorted(range(len(candidates)), key=lambda i: candidates[i].rank)
    kept: dict[int, None] = {}
    roots: set[Hashable] = set()
    parents: set[Hashable] = set()

    def keep(i: int) -> None:
        kept[i] = None
        roots.add(candidates[i].root)
        parents.add(candidates[i].parent)

    for i in order:
        if len(kept) < min(width, min_roots) and candidates[i].root not in roots:
            keep(i)
    for i in order:
        room = len(kept) < width and len(parents) < min_parents
        if room and candidates[i].parent not in parents:
            keep(i)
    for i in order:
        if len(kept) < width:
            keep(i)
    return [i for i in order if i in kept]
