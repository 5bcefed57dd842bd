"""Whom to ask next, planned ahead: expected value under the estimates, a few answers deep.

Backward induction (Bellman 1957) over who agrees with whom: the value of stopping is how likely
the likeliest answer is right; that of asking, what is expected after each thing the model may say,
minus its price. After `DEPTH` answers, only one more is looked at. Looking one answer ahead from
the start would underrate what two cheap answers tell together.

A plan is a tree in plain data: `{"ask": name, "then": [...]}`, where `then` holds what follows if
it gave no answer, if it gave the first, second, ... of the answers heard before, or at last a new
one. `None` stops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrion_recorded.case import SILENT

if TYPE_CHECKING:
    from orchestrion_recorded.belief import Believer, Heard

__all__ = ["Planner", "Tree", "follow"]

DEPTH = 2
_SLACK = 1e-12  # a choice must be better by more than rounding

Tree = Any
"""A plan as described above; None stops."""


class Planner:
    """Works out plans for one price of cost, and keeps what it worked out.

    Args:
        believer: from the training questions.
        prices: by model, what asking costs in units of a right answer.
        models: those that may be asked, by index.
    """

    def __init__(self, believer: Believer, prices: Sequence[float], models: Sequence[int]) -> None:
        self._believer, self._prices, self._models = believer, prices, tuple(models)
        self._kept: dict[tuple[int, int, Heard], tuple[float, int | None]] = {}

    def best(self, group: int, options: int, heard: Heard) -> tuple[float, int | None]:
        """Return the value of going on in the best way, and the model to ask; None to stop.

        Args:
            group: of the question, among the estimates' groups.
            options: how many answers there are.
            heard: models with the number of their answer, by ascending model.
        """
        place = group, options, heard
        if place not in self._kept:
            self._kept[place] = self._work_out(*place)
        return self._kept[place]

    def _work_out(self, group: int, options: int, heard: Heard) -> tuple[float, int | None]:
        outlook = self._believer.outlook(group, options, heard)
        best, choice = outlook.now, None
        asked = {m for m, _ in heard}
        for m in self._models:
            if m in asked or 1 - self._prices[m] <= best:
                continue
            if len(heard) < DEPTH:
                worth = sum(
                    chance * self.best(group, options, _and(heard, m, code))[0]
                    for code, chance in enumerate(outlook.says[m], SILENT)
                    if chance > 0
                )
            else:
                worth = outlook.now + outlook.gains[m]
            if worth - self._prices[m] > best + _SLACK:
                best, choice = worth - self._prices[m], m
        return best, choice

    def tree(
        self, group: int, options: int, names: Sequence[str], first: int | None = None
    ) -> Tree:
        """Return the plan for a kind of question.

        Args:
            group: among the estimates' groups.
            options: how many answers there are.
            names: by model, what the plan calls it.
            first: the model to begin with; by default the one that is best.
        """
        return self._tree(group, options, names, (), first)

    def _tree(
        self, group: int, options: int, names: Sequence[str], path: Heard, first: int | None
    ) -> Tree:
        model = self.best(group, options, _ordered(path))[1] if first is None else first
        if model is None:
            return None
        codes = len({code for _, code in path if code != SILENT})
        last = min(codes, options - 1)  # where every option was named, there is no new one
        then = [
            self._tree(group, options, names, (*path, (model, code)), None)
            for code in range(SILENT, last + 1)
        ]
        return {"ask": names[model], "then": then}


def follow(tree: Tree, heard: Mapping[str, object]) -> str | None:
    """Return whom to ask next under a plan, or None to stop.

    Args:
        tree: the plan.
        heard: by name, the answer; None where it gave none.
    """
    codes: dict[object, int] = {}
    while tree is not None and tree["ask"] in heard:
        answer = heard[tree["ask"]]
        code = SILENT if answer is None else codes.setdefault(answer, len(codes))
        place = code - SILENT
        tree = tree["then"][place] if place < len(tree["then"]) else None
    return None if tree is None else str(tree["ask"])


def _and(heard: Heard, model: int, code: int) -> Heard:
    return _ordered((*heard, (model, code)))


def _ordered(path: Heard) -> Heard:
    """The same by ascending model, answers numbered as first met in that order."""
    codes: dict[int, int] = {}
    return tuple(
        (m, SILENT if code == SILENT else codes.setdefault(code, len(codes)))
        for m, code in sorted(path)
    )
