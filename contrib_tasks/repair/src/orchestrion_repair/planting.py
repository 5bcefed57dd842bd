"""Bugs planted into repaired programs: more to learn from, at the price of a run of the tests.

A program that the verifier accepted is right, so any edit of it that makes a visible test fail is a
bug whose repair is known (Allamanis et al., 2021, and Ye et al., 2022, train neural networks so).
Planted bugs are not distributed like real ones. So they say nothing of which kind of edit is right:
where such a repair is learned from, it competes only with edits of its own kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from orchestrion_repair.operators import Candidate
from orchestrion_repair.prior import restoring
from orchestrion_repair.ranking import Program, program

__all__ = ["plants", "undoing"]

ATTEMPTS = 4
"""How many edits are looked at for one bug."""


def plants(
    right: str, entry_point: str, arguments: tuple[str, ...], generator: random.Random
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Programs with a bug, each with the numbers of the edits that undo it, all of one kind.

    Families and sub-kinds are drawn alike, so that rare ones are seen.
    """
    known = program(right, entry_point, arguments).candidates
    families: dict[str, dict[str, list[Candidate]]] = {}
    for one in known:
        families.setdefault(one.family, {}).setdefault(one.sub, []).append(one)
    for _ in range(ATTEMPTS if known else 0):
        kinds = families[generator.choice(sorted(families))]
        code = generator.choice(kinds[generator.choice(sorted(kinds))]).apply(right)
        numbers = undoing(program(code, entry_point, arguments), code, right)
        if numbers:
            yield code, numbers


def undoing(wrong: Program, code: str, right: str) -> tuple[int, ...]:
    """The edits of the first kind that has some which give the right program."""
    edits = wrong.candidates
    found = [edits[place] for place in restoring(edits, code, right)]
    kind = {(one.family, one.sub) for one in found[:1]}
    return tuple(one.number for one in found if (one.family, one.sub) in kind)
