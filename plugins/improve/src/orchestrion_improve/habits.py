"""The library of habits: what was proposed, what it is worth, what is in use.

As JSON it is what `learned_behaviors.json` shows, role -> category -> habits, and what
`begin_with` reads; the category `any` is for all problems.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import evolve, frozen

from orchestrion import JSON, UsageError

__all__ = ["ANY", "Habit", "Library", "normalized", "read_file", "text_problem"]

ANY = "any"
LONGEST = 300
Status = Literal["active", "refused", "retired"]


@frozen
class Habit:
    """One habit and its history.

    Args:
        role: the agent it is for.
        category: of problems; `any` for all.
        text: what the agent is told.
        version: counts the habits of this role and category, from 1.
        status: `active` ones are in use.
        reason: why it is not, or what it replaced.
        effect: mean difference in reward that it made in its trial.
        low: lower end of the interval.
        high: upper end.
        problems: how many validation problems it was tried on.
        pairs: how many pairs of episodes.
        again: mean effect in later trials.
        again_pairs: pairs of episodes in these.
        round: in which it was proposed; -1 if it came from another run.
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
    def told(self) -> str:
        """As it stands in the agent's settings: it says when it applies."""
        if self.category == ANY:
            return self.text
        return f"When the problem is about {self.category}: {self.text}"

    @property
    def worth(self) -> float:
        """What it ranks by: later trials chose nothing, so they count instead of the first."""
        return self.again if self.again_pairs else self.effect

    def tested_again(self, effect: float, pairs: int) -> Habit:
        """With another trial of it."""
        total = self.again_pairs + pairs
        if not total:
            return self
        mean = (self.again * self.again_pairs + effect * pairs) / total
        return evolve(self, again=mean, again_pairs=total)

    def as_json(self) -> dict[str, JSON]:
        """As it is stored."""
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
    """All habits that were ever proposed, in the order in which they came."""

    def __init__(self, habits: Sequence[Habit] = ()) -> None:
        self.habits = list(habits)

    def add(self, habit: Habit) -> Habit:
        """Take one in, with the next version of its role and category."""
        before = [one.version for one in self._place(habit.role, habit.category)]
        numbered = evolve(habit, version=max(before, default=0) + 1)
        self.habits.append(numbered)
        return numbered

    def put(self, habit: Habit) -> None:
        """Replace what has its role, category and version."""
        name = _name(habit)
        self.habits[[_name(one) for one in self.habits].index(name)] = habit

    def knows(self, role: str, category: str, text: str) -> bool:
        """Whether this was proposed before, whatever became of it."""
        wanted = normalized(text)
        return any(normalized(one.text) == wanted for one in self._place(role, category))

    def active(self, role: str = "") -> list[Habit]:
        """Those in use, by role, the best first."""
        found = [one for one in self.habits if one.status == "active" and role in ("", one.role)]
        return sorted(found, key=lambda one: (one.role, -one.worth, one.category, one.version))

    def told(self, role: str) -> list[str]:
        """What an agent is told, the best first."""
        return [one.told for one in self.active(role)]

    def refused(self, role: str) -> list[Habit]:
        """What is not, or no longer, in use, in the order of rounds."""
        found = [one for one in self.habits if one.role == role and one.status != "active"]
        # Not as they came: what is loaded from a checkpoint has to read alike.
        return sorted(found, key=lambda one: (one.round, one.category, one.version))

    def _place(self, role: str, category: str) -> list[Habit]:
        return [one for one in self.habits if (one.role, one.category) == (role, category)]

    def as_json(self) -> dict[str, dict[str, list[JSON]]]:
        """Role -> category -> habits, in use first."""
        found: dict[str, dict[str, list[JSON]]] = {}
        order = {status: n for n, status in enumerate(get_args(Status))}
        for one in sorted(
            self.habits,
            key=lambda h: (h.role, h.category, order[h.status], -h.worth, h.version),
        ):
            found.setdefault(one.role, {}).setdefault(one.category, []).append(one.as_json())
        return found

    @staticmethod
    def from_json(data: JSON, where: str) -> Library:
        """The inverse, in the order of rounds.

        Raises:
            UsageError: it has another form; says where.
        """
        habits = [
            _habit(role, category, n, one, f"{where}: {role}.{category}[{n}]")
            for role, categories in _mapping(data, where).items()
            for category, list_ in _mapping(categories, f"{where}: {role}").items()
            for n, one in enumerate(_list(list_, f"{where}: {role}.{category}"))
        ]
        library = Library(sorted(habits, key=lambda h: (h.round, h.role, h.category, h.version)))
        names = [_name(one) for one in library.habits]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            role, category, version = twice[0]
            raise UsageError(f"{where}: {role}.{category} has version {version} twice")
        return library


def _name(habit: Habit) -> tuple[str, str, int]:
    return habit.role, habit.category, habit.version


def normalized(text: str) -> str:
    """A text by which equal habits are found out."""
    return " ".join(text.casefold().split()).rstrip(".")


def text_problem(text: object) -> str:
    """What is wrong with a habit's text; "" if nothing is."""
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
    """The habits in use of an earlier run.

    Args:
        path: a run's folder, its `learned_behaviors.json`, or a file of habits by role and
            category.

    Raises:
        UsageError: there is none, or it cannot be used; says where.
    """
    file = path / "exports" / "learned_behaviors.json" if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{file}: there is no such file; name a run's folder or its export") from (
            None
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read as JSON: {error}") from None
    found = [one for part in _parts(data, file) for one in Library.from_json(*part).habits]
    active = [evolve(one, round=-1) for one in found if one.status == "active"]
    if not active:
        raise UsageError(f"{file}: has no habit that is in use")
    library = Library()
    for one in active:
        if not library.knows(one.role, one.category, one.text):
            library.add(one)
    return library


def _parts(data: JSON, file: Path) -> Iterator[tuple[JSON, str]]:
    """Habits by role and category, wherever they stand in a run's export."""
    if isinstance(data, dict) and "learned" in data and "settings" in data:
        for path, learned in _mapping(data["learned"], f"{file}: learned").items():
            if isinstance(learned, dict) and "habits" in learned:
                yield learned["habits"], f"{file}: learned.{path}.habits"
    else:
        yield data, str(file)


def _habit(role: str, category: str, n: int, data: JSON, where: str) -> Habit:
    if isinstance(data, str):
        data = {"text": data}
    fields = dict(_mapping(data, where))
    text = fields.pop("text", None)
    if problem := text_problem(text):
        raise UsageError(f"{where}.text: {problem}")
    if problem := text_problem(role) or text_problem(category):
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
        raise UsageError(f"{where}: {', '.join(sorted(fields))}: no field of a habit")
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
