"""Keep the library of habits: what was proposed, what it is worth, what is in use.

As JSON the library is role -> category -> habits, as `learned_behaviors.json` shows it and
`begin_with` reads it; the category `any` is for all problems.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import evolve, frozen

from orchestrion import JSON, UsageError

__all__ = ["ANY", "Habit", "Library", "normalized", "problem_of_text", "read_file"]

ANY = "any"
LONGEST = 300
Status = Literal["active", "refused", "retired"]


@frozen
class Habit:
    """Hold one habit and its history.

    Args:
        role: the agent it is for.
        category: the category of problems; `any` for all.
        text: what the agent is told.
        version: counts the habits of this role and category, from 1.
        status: `active` habits are in use.
        reason: why it is not in use, or what it replaced.
        effect: mean difference in reward in its trial.
        low: lower end of the interval of `effect`.
        high: upper end of the interval.
        problems: number of validation problems in its trial.
        pairs: pairs of episodes in its trial.
        again: mean effect in later trials.
        again_pairs: pairs of episodes in later trials.
        round: the round of its proposal; -1 if it came from another run.
    """

    role: str
    category: str
    text: str
    version: int = 1
    status: Status = "active"
    reason: str = ""
    effect: float = 0.0
    low: float = 0.0
    high: float = 0.0
    problems: int = 0
    pairs: int = 0
    again: float = 0.0
    again_pairs: int = 0
    round: int = -1

    @property
    def name(self) -> tuple[str, str, int]:
        """Return what identifies the habit in a library: role, category and version."""
        return self.role, self.category, self.version

    @property
    def told(self) -> str:
        """Return the text in the agent's settings, which says when the habit applies."""
        if self.category == ANY:
            return self.text
        return f"When the problem is about {self.category}: {self.text}"

    @property
    def worth(self) -> float:
        """Return the effect to rank by: of later trials, since the first trial chose the habit."""
        return self.again if self.again_pairs else self.effect

    def tested_again(self, effect: float, pairs: int) -> Habit:
        """Return the habit with the result of a later trial."""
        total = self.again_pairs + pairs
        if not total:
            return self
        mean = (self.again * self.again_pairs + effect * pairs) / total
        return evolve(self, again=mean, again_pairs=total)

    def as_json(self) -> dict[str, JSON]:
        """Return the habit as it is stored."""
        data: dict[str, JSON] = {
            "text": self.text,
            "version": self.version,
            "status": self.status,
            "reason": self.reason,
            "effect": self.effect,
            "interval": [self.low, self.high],
            "tested_on": {
                "split": "validation",
                "problems": self.problems,
                "pairs": self.pairs,
            },
            "round": self.round,
        }
        if self.again_pairs:
            data["tested_again"] = {"effect": self.again, "pairs": self.again_pairs}
        return data


class Library:
    """Holds all habits that were ever proposed, in their order."""

    def __init__(self, habits: Sequence[Habit] = ()) -> None:
        self.habits = list(habits)

    def add(self, habit: Habit) -> Habit:
        """Add a habit under the next version of its role and category; return it."""
        before = [other.version for other in self._of(habit.role, habit.category)]
        numbered = evolve(habit, version=max(before, default=0) + 1)
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
        order = {status: n for n, status in enumerate(get_args(Status))}
        for habit in sorted(
            self.habits,
            key=lambda h: (h.role, h.category, order[h.status], -h.worth, h.version),
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
            known = library.knows(habit.role, habit.category, habit.text)
            if habit.status == "active" and not known:
                library.add(evolve(habit, round=-1))
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
    if isinstance(data, str):
        data = {"text": data}
    fields = dict(_mapping(data, where))
    text = fields.pop("text", None)
    if problem := problem_of_text(text):
        raise UsageError(f"{where}.text: {problem}")
    if problem := problem_of_text(role) or problem_of_text(category):
        raise UsageError(f"{where}: its role or category {problem}")
    tested = dict(_mapping(fields.pop("tested_on", {}), f"{where}.tested_on"))
    again = dict(_mapping(fields.pop("tested_again", {}), f"{where}.tested_again"))
    status = fields.pop("status", "active")
    if status not in get_args(Status):
        raise UsageError(f"{where}.status: is {status!r}, not one of {', '.join(get_args(Status))}")
    interval = _list(fields.pop("interval", [0.0, 0.0]), f"{where}.interval")
    if len(interval) != 2:
        raise UsageError(f"{where}.interval: must have two numbers")
    habit = Habit(
        role,
        category,
        str(text),
        version=_count(fields.pop("version", n + 1), f"{where}.version", 1),
        status=status,
        reason=str(fields.pop("reason", "")),
        effect=_number(fields.pop("effect", 0.0), f"{where}.effect"),
        low=_number(interval[0], f"{where}.interval"),
        high=_number(interval[1], f"{where}.interval"),
        problems=_count(tested.get("problems", 0), f"{where}.tested_on.problems"),
        pairs=_count(tested.get("pairs", 0), f"{where}.tested_on.pairs"),
        again=_number(again.get("effect", 0.0), f"{where}.tested_again.effect"),
        again_pairs=_count(again.get("pairs", 0), f"{where}.tested_again.pairs"),
        round=_count(fields.pop("round", -1), f"{where}.round", -1),
    )
    if fields:
        raise UsageError(f"{where}: unknown fields of a habit: {', '.join(sorted(fields))}")
    return habit


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise UsageError(f"{where}: must be an object, not {type(data).__name__}")
    return data


def _list(data: Any, where: str) -> Sequence[Any]:
    if not isinstance(data, list | tuple):
        raise UsageError(f"{where}: must be a list, not {type(data).__name__}")
    return data


def _number(data: Any, where: str) -> float:
    if type(data) not in (int, float) or not isfinite(data):
        raise UsageError(f"{where}: must be a finite number, not {data!r:.80}")
    return float(data)


def _count(data: Any, where: str, least: int = 0) -> int:
    if type(data) is not int or data < least:
        raise UsageError(f"{where}: must be a whole number from {least}, not {data!r:.80}")
    return data
