"""Sees, while a program runs, what other expressions would have given in the same places.

This runs inside the sandbox; `alternatives.py` says why, and writes the calls into the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import CodeType
from typing import Any

__all__ = ["AFTER", "BEFORE", "Probe", "Probes", "TooManyLooks"]

BEFORE, AFTER = "_before_probe", "_after_probe"
MOST_ROUNDS = 60
"""How often a place is looked at in a test; what is equal for so long counts as different."""
MOST_LOOKS = 200_000
"""How often all places together are passed in a test: some .2 s, so that no clock ends it."""
Probe = tuple[list[int], list[str], list[bool], bool]
"""A place: the numbers of its alternatives, their texts, of each whether it makes a new object
where the program does too, and whether nothing but the truth of the value counts."""
_SCALAR = (int, float, complex, str, bytes, bool, type(None), range)


class TooManyLooks(BaseException):
    """The program passed its places too often; it has to be run without probes."""


@dataclass
class _Raised:
    """Stands for the value of what raised an error."""

    error: str


class Probes:
    """The places of a program, and which alternatives were different since `clear`.

    Args:
        sites: the places.
    """

    def __init__(self, sites: Sequence[Probe]) -> None:
        self.sites = sites
        self._compiled: dict[int, list[CodeType | None]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what was seen."""
        self._left = [dict(enumerate(numbers)) for numbers, *_ in self.sites]
        self._open: dict[int, tuple[int, list[tuple[int, Any]]]] = {}
        self._rounds = [0] * len(self.sites)
        self.looks = 0

    @property
    def too_many(self) -> bool:
        """Return whether the program passed its places too often, and was stopped for that."""
        return self.looks > MOST_LOOKS

    def same(self, error: str = "") -> str:
        """Return the alternatives that were never different, as the bits of a hexadecimal number.

        Args:
            error: name of the one that the program raised.
        """
        if self.too_many:
            return "0"
        for site, values in self._open.values():  # the program raised here
            for place, value in values:
                if value != _Raised(error):
                    self._left[site].pop(place, None)
        return f"{sum(1 << number for left in self._left for number in left.values()):x}"

    def before(
        self, site: int, names: Mapping[str, Any], globals_: dict[str, Any]
    ) -> list[tuple[int, Any]]:
        """Evaluate the alternatives that were equal so far, before the program's own expression.

        Raises:
            TooManyLooks: from here on, each time.
        """
        self.looks += 1
        if self.looks > MOST_LOOKS:
            raise TooManyLooks
        left = self._left[site]
        if not left:
            return []
        self._rounds[site] += 1
        if self._rounds[site] > MOST_ROUNDS:
            left.clear()
            return []
        if site not in self._compiled:
            self._compiled[site] = [_compiled(text) for text in self.sites[site][1]]
        codes = self._compiled[site]
        values: list[tuple[int, Any]] = []
        for place in left:
            try:
                values.append((place, eval(codes[place], globals_, names)))  # type: ignore[arg-type]  # noqa: S307
            except Exception as error:
                values.append((place, _Raised(type(error).__name__)))
        self._open[id(values)] = site, values
        return values

    def after(self, site: int, values: list[tuple[int, Any]], own: Any) -> Any:
        """Drop those that differ from the program's own value, which is returned."""
        if not values:
            return own
        del self._open[id(values)]
        _, _, fresh, truth = self.sites[site]
        for place, value in values:
            try:
                equal = bool(value) == bool(own) if truth else _same(value, own, fresh[place])
            except Exception:
                equal = False
            if type(value) is _Raised or not equal:
                self._left[site].pop(place, None)
        return own


def _compiled(text: str) -> CodeType | None:
    try:
        return compile(f"({text})", "<alternative>", "eval")
    except SyntaxError:
        return None


def _same(first: Any, second: Any, fresh: bool) -> bool:
    """Return whether a program could not tell two values apart; `fresh`: both are new objects."""
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple) or (fresh and isinstance(first, list | dict | set)):
        if isinstance(first, dict):
            first, second = list(first.items()), list(second.items())
        return len(first) == len(second) and all(map(_same, first, second, repeat(False)))
    return isinstance(first, _SCALAR) and bool(first == second)
