"""Which column of a table is what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

from attrs import Factory, frozen

from orchestrion import UsageError

Measure = Literal["price", "input_tokens", "output_tokens", "latency"]

# The first that a table has is taken; compared in lower case.
_QUESTION = ("question_id", "questionid", "qid", "problem_id", "id", "question", "problem", "uid")
_GROUP = ("group", "category", "subject", "domain", "task", "topic", "dataset", "benchmark")
_RIGHT = (
    *("right", "answer", "truth", "correct", "label", "gold", "target"),
    *("right_answer", "correct_answer", "gold_answer", "reference"),
)
OPTIONS = ("n_options", "num_options", "options", "n_choices", "num_choices", "choices")
_TEXT = ("text", "prompt", "question_text", "question")
MEASURES: Mapping[str, Measure] = {
    "price": "price",
    "cost": "price",
    "usd": "price",
    "input_tokens": "input_tokens",
    "prompt_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "completion_tokens": "output_tokens",
    "tokens": "output_tokens",
    "latency": "latency",
    "seconds": "latency",
}
"""What the end of a column's name says it holds; longer endings first."""
_JOINTS = "_.:/ -"


@frozen
class Columns:
    """Names of a table's columns; an empty one is recognised by its usual names.

    Args:
        question: the id of a question, each once.
        group: what kind of question it is.
        right: the right answer; a table without one has scores from 0 to 1 in place of answers.
        options: how many answers there are to choose from.
        text: the question in words, for agents and people.
        models: the columns of answers, one a model; by default every column that is nothing
            else. A column named like a model's plus `_price` (or `_cost`, `_usd`),
            `_input_tokens`, `_output_tokens` (or `_tokens`) or `_latency` belongs to that
            model's answers.
    """

    question: str = ""
    group: str = ""
    right: str = ""
    options: str = ""
    text: str = ""
    models: list[str] = Factory(list)


@frozen
class Layout:
    """The columns of one table; an empty name means that it has none."""

    question: str
    group: str
    right: str
    options: str
    text: str
    models: tuple[str, ...]
    measures: Mapping[str, tuple[str, Measure]]
    """Column -> the model it belongs to, and what it holds."""


def lay_out(header: Sequence[str], columns: Columns, where: str) -> Layout:
    """Find the columns of a header; `where` is "file:line", for errors.

    Raises:
        UsageError: a column is missing or named twice, or no model is left.
    """
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise UsageError(f"{where}: column {twice[0]!r} occurs more than once; rename one of them")
    finder = _Finder(header, where)
    question = finder.find("question", columns.question, _QUESTION, needed=True)
    right = finder.find("right", columns.right, _RIGHT)
    group = finder.find("group", columns.group, _GROUP)
    options = finder.find("options", columns.options, OPTIONS)
    text = finder.find("text", columns.text, _TEXT)
    for model in columns.models:
        finder.find("models", model, ())
    left = [name for name in header if name not in finder.taken]
    models = tuple(columns.models) or tuple(name for name in left if not _measure(name, left))
    if not models:
        raise UsageError(
            f"{where}: no column of answers is left beside {', '.join(map(repr, finder.taken))}; "
            "a table has one column for each model"
        )
    measures = {name: measure for name in left if (measure := _measure(name, models))}
    return Layout(question, group, right, options, text, models, measures)


def _measure(name: str, models: Sequence[str]) -> tuple[str, Measure] | None:
    """Return the model and the measure a column's name is made of, if it is."""
    for ending, measure in MEASURES.items():
        if name.lower().endswith(ending):
            stem = name[: -len(ending)]
            model = stem.rstrip(_JOINTS)
            if model != stem and model in models and model != name:
                return model, measure
    return None


class _Finder:
    def __init__(self, header: Sequence[str], where: str) -> None:
        self.header, self.where = header, where
        self.taken: list[str] = []

    def find(self, role: str, wanted: str, usual: Sequence[str], *, needed: bool = False) -> str:
        """Return the column for a role, marked as taken; empty if there is none."""
        column = wanted if wanted in self.header else "" if wanted else self._usual(usual)
        if wanted and not column:
            near = get_close_matches(wanted, self.header, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {self._listed()}"
            raise UsageError(
                f"{self.where}: the table has no column {wanted!r} (columns.{role}); {hint}"
            )
        if needed and not column:
            raise UsageError(
                f"{self.where}: no column is called {', '.join(usual[:5])} or the like; "
                f"name it in columns.{role} (the table has {self._listed()})"
            )
        if column:
            self.taken.append(column)
        return column

    def _usual(self, usual: Sequence[str]) -> str:
        for name in usual:
            for column in self.header:
                if column.lower() == name and column not in self.taken:
                    return column
        return ""

    def _listed(self) -> str:
        more = len(self.header) - 8
        names = ", ".join(map(repr, self.header[:8]))
        return names + (f" and {more} more" if more > 0 else "")
