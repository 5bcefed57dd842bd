"""Keep the library of habits: what was proposed, what it is worth, what is in use.

As JSON the library is role -> category -> habits, as `learned_behaviors.json` shows it and
`begin_with` reads it; the category `any` is for all problems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from orchestrion import JSON, UsageError

ANY = "any"
LONGEST = 300
STATUSES = ("active", "refused", "retired")
Count = Annotated[int, Meta(ge=0)]
Finite = Annotated[float, Meta(ge=-1e300, le=1e300)]


class HabitTrial(Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the size of a habit's trial."""

    split: str = "validation"
    problems: Count = 0
    pairs: Count = 0  # of episodes


class LaterTrials(Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the results of a habit's later trials together."""

    effect: Finite = 0.0  # mean
    pairs: Count = 0  # of episodes


class Habit(Struct, frozen=True, forbid_unknown_fields=True):
    """Hold one habit and its history."""

    role: str  # the agent it is for
    category: str  # the category of problems; `any` for all
    text: str  # what the agent is told
    version: Annotated[int, Meta(ge=1)] = 1  # counts the habits of this role and category, from 1
    status: str = "active"  # `active` habits are in use; others are `refused` or `retired`
    reason: str = ""  # why it is not in use, or what it replaced
    effect: Finite = 0.0  # mean difference in reward in its first trial
    interval: tuple[Finite, Finite] = (0.0, 0.0)  # the interval of `effect`
    tested_on: HabitTrial = HabitTrial()  # the size of its first trial
    round: Annotated[int, Meta(ge=-1)] = -1
    """The round of its proposal; -1 if it came from another run."""
    tested_again: LaterTrials = LaterTrials()  # the results of later trials

    @property
    def name(self) -> tuple[str, str, int]:
        """Return what identifies the habit in a library: role, category and version."""
        return self.role, self.category, self.version

    @property
    def instruction(self) -> str:
        """Return the text in the agent's settings, which says when the habit applies."""
        if self.category == ANY:
            return self.text
        return f"When the problem is about {self.category}: {self.text}"

    @property
    def worth(self) -> float:
        """Return the effect to rank by: of later trials, since the first trial chose the habit."""
        return self.tested_again.effect if self.tested_again.pairs else self.effect

    def after_trial(self, effect: float, pairs: int) -> Habit:
        """Return the habit with the result of a later trial."""
        before = self.tested_again
        total = before.pairs + pairs
        if not total:
            return self
        mean = (before.effect * before.pairs + effect * pairs) / total
        return replace(self, tested_again=LaterTrials(mean, total))

    def as_json(self) -> dict[str, JSON]:
        """Return the habit as it is stored, without role and category."""
        data: dict[str, JSON] = to_builtins(self)
        del data["role"], data["category"]
        if not self.tested_again.pairs:
            del data["tested_again"]
        return {**data, "interval": list(self.interval)}


class Library:
    """Holds all habits that were ever proposed, in their order."""

    def __init__(self, habits: Sequence[Habit] = ()) -> None:
        self.habits = list(habits)

    def add(self, habit: Habit) -> Habit:
        """Add a habit under the next version of its role and category; return it."""
        before = [other.version for other in self._of(habit.role, habit.category)]
        numbered = replace(habit, version=max(before, default=0) + 1)
        self.habits.append(numbered)
        return numbered

    def put(self, habit: Habit) -> None:
        """Replace the habit with the same role, category and version."""
        self.habits[[other.name for other in self.habits].index(habit.name)] = habit

    def knows(self, role: str, category: str, text: str) -> bool:
        """Return whether this text was proposed before, whatever became of it."""
        wanted = normalized(text)
        return any(normalized(habit.text) == wanted for habit in self._of(role, category))

    def active(self, role: str = "") -> list[Habit]:
        """Return the habits in use, of one agent or by agent, the best first."""
        active = [h for h in self.habits if h.status == "active" and role in ("", h.role)]
        return sorted(active, key=lambda h: (h.role, -h.worth, h.category, h.version))

    def refused(self, role: str) -> list[Habit]:
        """Return an agent's habits that are not in use, in the order of rounds."""
        refused = [h for h in self.habits if h.role == role and h.status != "active"]
        # Sorted, so that a library from a checkpoint gives the same order.
        return sorted(refused, key=lambda h: (h.round, h.category, h.version))

    def _of(self, role: str, category: str) -> list[Habit]:
        return [h for h in self.habits if (h.role, h.category) == (role, category)]

    def as_json(self) -> dict[str, dict[str, list[JSON]]]:
        """Return the library as role -> category -> habits, those in use first."""
        data: dict[str, dict[str, list[JSON]]] = {}
        for habit in sorted(
            self.habits,
            key=lambda h: (h.role, h.category, STATUSES.index(h.status), -h.worth, h.version),
        ):
            data.setdefault(habit.role, {}).setdefault(habit.category, []).append(habit.as_json())
        return data

    @staticmethod
    def from_json(data: JSON, where: str) -> Library:
        """Return the library that `as_json` wrote, in the order of rounds.

        Args:
            data: the library as JSON.
            where: names the data in errors.

        Raises:
            UsageError: the data has another form.
        """
        habits = [
            _habit(role, category, n, habit, f"{where}: {role}.{category}[{n}]")
            for role, categories in _mapping(data, where).items()
            for category, list_ in _mapping(categories, f"{where}: {role}").items()
            for n, habit in enumerate(_list(list_, f"{where}: {role}.{category}"))
        ]
        library = Library(sorted(habits, key=lambda h: (h.round, h.role, h.category, h.version)))
        names = [habit.name for habit in library.habits]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            role, category, version = repeated[0]
            raise UsageError(f"{where}: {role}.{category} has version {version} twice")
        return library


def normalized(text: str) -> str:
    """Return a text in a form in which equal habits are equal texts."""
    return " ".join(text.casefold().split()).rstrip(".")


def problem_of_text(text: object) -> str:
    """Return what is wrong with a habit's text; empty if nothing is."""
    if not isinstance(text, str):
        return "must be text"
    if not text.strip():
        return "is empty"
    if len(text) > LONGEST:
        return f"has {len(text)} characters; {LONGEST} is the most"
    if not text.isprintable():
        return "must be one line of printable text"
    return ""


# ------------------------------------------------------------------------------- from files


def read_file(path: Path) -> Library:
    """Return the habits in use of an earlier run.

    Args:
        path: a run's folder, its `learned_behaviors.json`, or a file of habits by role and
            category.

    Raises:
        UsageError: there is no such file, or it cannot be used.
    """
    file = path / "exports" / "learned_behaviors.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message = f"{file}: there is no such file; name a run's folder or its export"
        raise UsageError(message) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read as JSON: {error}") from None
    library = Library()
    for where, habits in _parts(data, str(file)).items():
        for habit in Library.from_json(habits, where).habits:
            is_known = library.knows(habit.role, habit.category, habit.text)
            if habit.status == "active" and not is_known:
                library.add(replace(habit, round=-1))
    if not library.habits:
        raise UsageError(f"{file}: has no habit that is in use")
    return library


def _parts(data: JSON, file: str) -> dict[str, JSON]:
    """Return all libraries in a file, by where they stand: a run's export may have several."""
    if not (isinstance(data, dict) and "learned" in data and "settings" in data):
        return {file: data}
    return {
        f"{file}: learned.{path}.habits": learned["habits"]
        for path, learned in _mapping(data["learned"], f"{file}: learned").items()
        if isinstance(learned, dict) and "habits" in learned
    }


def _habit(role: str, category: str, n: int, data: JSON, where: str) -> Habit:
    """Return the n-th habit of a role and category; a plain text is enough."""
    fields = {"text": data} if isinstance(data, str) else _mapping(data, where)
    try:
        habit = convert({"version": n + 1, **fields, "role": role, "category": category}, Habit)
    except ValidationError as error:
        raise UsageError(f"{where}: {error}") from None
    if problem := problem_of_text(habit.text):
        raise UsageError(f"{where}.text: {problem}")
    if problem := problem_of_text(role) or problem_of_text(category):
        raise UsageError(f"{where}: its role or category {problem}")
    if habit.status not in STATUSES:
        raise UsageError(f"{where}.status: is {habit.status!r}, not one of {', '.join(STATUSES)}")
    return habit


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise UsageError(f"{where}: must be an object, not {type(data).__name__}")
    return data


def _list(data: Any, where: str) -> Sequence[Any]:
    if not isinstance(data, list | tuple):
        raise UsageError(f"{where}: must be a list, not {type(data).__name__}")
    return data
