"""What the benchmarks' tables have in common: number types, checks, problems, turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Protocol

from attrs import Factory, fields_dict

from orchestrion import (
    Calls,
    Key,
    Meta,
    OpenContext,
    Problem,
    Scores,
    Split,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    no_calls,
)

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


class Rules(Protocol):
    """The dynamics of one set of tables."""

    kinds: Sequence[Problem]
    """A problem of each type."""

    def begin(self, kind: str, key: Key) -> Step:
        """Return the first state of a problem of a type."""
        ...

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        """Return the state after a turn."""
        ...

    def scores(self, state: Any) -> Scores:
        """Return what a state is worth if the episode ends there."""
        ...


class TableTask(Task):
    """A task that is given by tables: the part that the benchmarks share."""

    name: ClassVar[str]
    ceiling = no_calls

    @property
    def rules(self) -> Rules:
        """The dynamics, computed once from the tables."""
        raise NotImplementedError

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split; types take turns, so that each is equally frequent."""
        kinds = self.rules.kinds
        chosen = (kinds[i % len(kinds)] for i in range(getattr(self, split)))
        return tuple(
            Problem(f"{self.name}-{split}-{i}", kind.text, kind.data, kind.category)
            for i, kind in enumerate(chosen)
        )

    def problem_from(self, text: str) -> Problem:
        """Return a problem of the type that `text` names.

        Raises:
            UsageError: it names none.
        """
        kinds = {kind.category: kind for kind in self.rules.kinds}
        if text.strip() not in kinds:
            raise UsageError(
                f"{self.name}: an input is the name of a type ({', '.join(kinds)}), got "
                f"{text.strip()!r}"
            )
        return kinds[text.strip()]

    def start(self, problem: Problem, key: Key) -> Step:
        return self.rules.begin(problem.category, key)

    def step(self, state: Any, turn: Turn, key: Key) -> Step:
        return self.rules.step(state, turn, key)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        return self.rules.scores(state)


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


def played(turn: Turn) -> str:
    """Return the row of the table that a turn played; empty if it played none."""
    data = turn.output.data
    if turn.status != "completed" or not isinstance(data, dict):
        return ""
    row = data.get("plays", "")
    return row if isinstance(row, str) else ""
