"""How often an edit of a kind is the right one, counted on the built-in suite's training split.

    python -m orchestrion_repair.prior        # counts again and writes operators/prior.json

No program is run: a bug of the suite knows its correct source, and an edit counts as right if it
restores it. The operators rank their candidates by these rates; the validation and test splits
are not looked at.
"""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from orchestrion_repair.bug import Bug
from orchestrion_repair.operators import FAMILIES, Candidate, candidates
from orchestrion_repair.symptoms import kinds_of_cases

__all__ = ["count", "rate", "rates", "restoring"]

STRENGTH = 30.0
"""How many candidates of a sub-kind it takes to weigh as much as its family's rate."""
DOUBT = 0.3
"""Right edits that every sub-kind is taken to have had: real mistakes are more varied."""
FLOOR = 1e-5

_LOOSE = str.maketrans("", "", "() \n\t\"'")


def count(bugs: Iterable[Bug]) -> dict[str, dict[str, tuple[float, int]]]:
    """For each family and sub-kind: right edits (shared among those of a bug), and all edits."""
    right: dict[tuple[str, str], float] = defaultdict(float)
    total: Counter[tuple[str, str]] = Counter()
    for bug in bugs:
        arguments = kinds_of_cases([case.to_json() for case in bug.visible], bug.entry_point)
        _, options = candidates(bug.code, bug.entry_point, arguments)
        for candidate in options:
            total[candidate.family, candidate.sub] += 1
        numbers = restoring(options, bug.code, bug.solution)
        for number in numbers:
            right[options[number].family, options[number].sub] += 1 / len(numbers)
    table: dict[str, dict[str, tuple[float, int]]] = {family: {} for family in FAMILIES}
    for (family, sub), number in sorted(total.items()):
        table[family][sub] = (round(right[family, sub], 3), number)
    return table


def restoring(edits: Sequence[Candidate], code: str, solution: str) -> list[int]:
    """The places of the edits after which `code` has the syntax tree of `solution`."""
    missing = _size(solution) - _size(code)
    return [
        place
        for place, edit in enumerate(edits)
        # Sizes first: to apply each of some thousand edits takes long.
        if _size(edit.text) - _size(code[edit.start : edit.end]) == missing
        and restores(edit.apply(code), solution)
    ]


def _size(code: str) -> int:
    """Characters, without those that a syntax tree may do without."""
    return len(code.translate(_LOOSE))


def restores(code: str, solution: str) -> bool:
    """Whether two sources have the same syntax tree."""
    if code.translate(_LOOSE) != solution.translate(_LOOSE):  # most differ here already
        return False
    try:
        return ast.dump(ast.parse(code)) == ast.dump(ast.parse(solution))
    except SyntaxError:
        return False


@lru_cache(maxsize=1)
def rates() -> dict[tuple[str, str], float]:
    """The rate of every sub-kind, drawn towards its family's where it was rarely seen."""
    table = json.loads(_file().read_text("utf-8"))
    by_kind: dict[tuple[str, str], float] = {}
    for family, subs in table.items():
        right, total = (sum(column) for column in zip(*subs.values(), (0.2, 400), strict=True))
        by_kind[family, ""] = max(FLOOR, right / total)
        for sub, (hits, number) in subs.items():
            mixed = (hits + DOUBT + STRENGTH * right / total) / (number + STRENGTH)
            by_kind[family, sub] = max(FLOOR, mixed)
    return by_kind


@cache
def rate(family: str, sub: str) -> float:
    """The rate of one sub-kind; its family's if it was never seen."""
    known = rates()
    return known.get((family, sub), known.get((family, ""), FLOOR))


def _file() -> Path:
    return Path(str(files("orchestrion_repair").joinpath("operators", "prior.json")))


def main() -> None:
    """Count on the training split and write the table."""
    from orchestrion_repair.suite import bugs

    table = count(bugs("train"))
    rows = ",\n".join(
        f'  "{family}": {{\n'
        + ",\n".join(f'    "{sub}": {json.dumps(pair)}' for sub, pair in subs.items())
        + "\n  }"
        for family, subs in table.items()
    )
    _file().write_text("{\n" + rows + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
