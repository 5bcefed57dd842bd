"""How often an edit of each kind is the right one: what is learned without any context.

No program is run: an edit counts as right if it restores the repaired program, or if the caller
knows it to be right.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from attrs import Factory, frozen

from orchestrion_repair.operators import Candidate

Kind = tuple[str, str]
"""A family and a sub-kind."""

STRENGTH = 30.0
"""How many candidates of a sub-kind it takes to weigh as much as its family's rate."""
DOUBT = 0.3
"""Right edits that every sub-kind is taken to have had: real mistakes are more varied."""
START = (0.2, 400)
"""Right edits, and all edits, that every family is taken to have had."""
FLOOR = 1e-5

_LOOSE = str.maketrans("", "", "() \n\t\"'")


@frozen
class Counts:
    """By kind, the right edits (those of a problem share one) and all edits."""

    right: defaultdict[Kind, float] = Factory(lambda: defaultdict(float))
    total: Counter[Kind] = Factory(Counter)

    @staticmethod
    def of(edits: Sequence[Candidate], right: Collection[int]) -> Counts:
        """Return the counts of one problem."""
        kinds = [(edit.family, edit.sub) for edit in edits]
        counts = Counts(total=Counter(kinds))
        for number in sorted(right):
            counts.right[kinds[number]] += 1 / len(right)
        return counts

    def add(self, other: Counts, sign: int = 1) -> None:
        """Add the counts of another problem, or take them away with `sign` -1."""
        for kind, hits in other.right.items():
            self.right[kind] += sign * hits
        for kind, number in other.total.items():
            self.total[kind] += sign * number

    def without(self, other: Counts) -> Counts:
        """Return the counts as if a problem that was added had not been."""
        rest = Counts(self.right.copy(), self.total.copy())
        rest.add(other, -1)
        return rest

    def rates(self) -> dict[Kind, float]:
        """Return the rate of every kind, drawn towards its family's, which has no sub-kind."""
        families: dict[str, list[float]] = defaultdict(lambda: list(START))
        for kind, number in self.total.items():
            families[kind[0]][0] += self.right.get(kind, 0.0)
            families[kind[0]][1] += number
        rates = {(name, ""): max(FLOOR, hits / all_) for name, (hits, all_) in families.items()}
        for kind, number in self.total.items():
            mixed = self.right.get(kind, 0.0) + DOUBT + STRENGTH * rates[kind[0], ""]
            rates[kind] = max(FLOOR, mixed / (number + STRENGTH))
        return rates


def restoring(edits: Sequence[Candidate], code: str, solution: str) -> list[int]:
    """Return the places of the edits after which `code` has the syntax tree of `solution`."""
    missing = _size(solution) - _size(code)
    return [
        place
        for place, edit in enumerate(edits)
        # Sizes first: to apply each of some thousand edits takes long.
        if _size(edit.text) - _size(code[edit.start : edit.end]) == missing
        and restores(edit.apply(code), solution)
    ]


def _size(code: str) -> int:
    """Return the number of characters, without those that a syntax tree may do without."""
    return len(code.translate(_LOOSE))


def restores(code: str, solution: str) -> bool:
    """Return whether two sources have the same syntax tree."""
    if code.translate(_LOOSE) != solution.translate(_LOOSE):  # most differ here already
        return False
    try:
        return ast.dump(ast.parse(code)) == ast.dump(ast.parse(solution))
    except SyntaxError:
        return False
