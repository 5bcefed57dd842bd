"""What the benchmarks' tables have in common: number types, checks, problems, turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from attrs import Factory, fields_dict

from orchestrion import Meta, OpenContext, Problem, Split, Turn, UsageError

__all__ = [
    "Check",
    "Count",
    "Price",
    "Probability",
    "check_team",
    "played",
    "replace_tables",
    "spread",
    "typed",
]

Probability = Annotated[float, Meta(ge=0, le=1)]
Price = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class Check:
    """Collects what is wrong with a setting, so that it is reported at once."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def that(self, fine: bool, message: str) -> None:
        """Note `message` unless `fine`."""
        if not fine:
            self.problems.append(message)

    def known(self, where: str, names: Iterable[str], known: Sequence[str], noun: str) -> None:
        """Note names that are not among the known ones."""
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                self.problems.append(f"{where}: unknown {noun} {name!r} ({hint})")

    def names(self, where: str, names: Sequence[str], reserved: Sequence[str] = ()) -> None:
        """Note empty lists, empty names, repetitions and names that mean something else."""
        self.that(bool(names), f"{where}: expected at least one name")
        self.that(all(names), f"{where}: a name is empty")
        twice = sorted({name for name in names if names.count(name) > 1})
        self.that(not twice, f"{where}: named more than once: {', '.join(twice)}")
        taken = [name for name in names if name in reserved]
        self.that(not taken, f"{where}: {', '.join(taken)} cannot be a name here; choose another")

    def raise_any(self) -> None:
        """Raise what was noted, as attrs validators do."""
        if self.problems:
            raise ValueError("; ".join(self.problems))


def replace_tables(task: Any, tables: Mapping[str, Any]) -> None:
    """Set a task's fields to drawn values, while it is made.

    Raises:
        ValueError: a field was given as well.
    """
    fields = fields_dict(type(task))
    for name, value in tables.items():
        given, default = getattr(task, name), fields[name].default
        if isinstance(default, Factory):  # type: ignore[arg-type]
            default = default.factory()  # type: ignore[union-attr]
        # A stored config spells its defaults out, and `attrs.evolve` gives what was drawn.
        if given not in (default, value):
            raise ValueError(
                f"`{name}` has no effect beside `tables`, which draws it; remove one of them"
            )
        object.__setattr__(task, name, value)


def check_team(ctx: OpenContext, rows: Sequence[str], letter: str, noun: str) -> None:
    """Refuse agents that are named like drawn rows and are none, e.g. w8 where there are seven.

    Raises:
        UsageError: there are such agents.
    """
    numbered = re.compile(f"{letter}[0-9]+")
    strangers = [
        member.name
        for member in ctx.roster
        if numbered.fullmatch(member.name) and member.name not in rows
    ]
    if strangers:
        raise UsageError(
            f"{ctx.path}.tables: the {noun} drawn are {', '.join(rows)}; {', '.join(strangers)} of "
            f"the team would play no row: remove them, or give `{noun}` in `tables` "
            "(`orchestrion draw CONFIG SEED` prints a config with the right team)"
        )


def spread(kinds: Sequence[Problem], task: str, split: Split, number: int) -> tuple[Problem, ...]:
    """`number` problems that go round the kinds, so that every kind is equally frequent."""
    chosen = (kinds[i % len(kinds)] for i in range(number))
    return tuple(
        Problem(f"{task}-{split}-{i}", kind.text, kind.data, kind.category)
        for i, kind in enumerate(chosen)
    )


def typed(text: str, types: Sequence[str], task: str) -> int:
    """The type a free text names.

    Raises:
        UsageError: it names none.
    """
    name = text.strip()
    if name not in types:
        raise UsageError(
            f"{task}: an input is the name of a type ({', '.join(types)}), got {name!r}"
        )
    return list(types).index(name)


def played(turn: Turn) -> str:
    """The row of the table that a turn played; empty if it played none."""
    data = turn.output.data
    if turn.status != "completed" or not isinstance(data, dict):
        return ""
    row = data.get("plays", "")
    return row if isinstance(row, str) else ""
