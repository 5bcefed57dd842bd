"""A table of recorded answers: what it holds, and what is the same answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import Factory, evolve, frozen

NONE = "-"
"""In a table: the model was asked and gave no usable answer."""
MISSING = "?"
"""In a table: nothing is recorded, so the model cannot be asked. An empty field means the same."""


def same(answer: str) -> str:
    """Return the form in which answers are compared: case and white space do not matter."""
    return " ".join(answer.split()).casefold()


@frozen
class RecordedAnswer:
    """What one model did on one question; `answer` is None where it gave none.

    `price` is None where the table has one price a model. In a table of scores, `score` is how good
    the answer was, from 0 to 1, and `answer` is the model's name: what it said is not recorded.
    """

    answer: str | None
    price: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    latency: float | None = None
    score: float | None = None


@frozen
class Row:
    """One question; `options` is 0 where the table does not say how many there are.

    `line` is where it stands in its file. A model without a record is not in `answers`.
    """

    id: str
    group: str
    right: str
    options: int
    answers: Mapping[str, RecordedAnswer]
    text: str = ""
    line: int = 0


@frozen
class Table:
    """Questions in the order of their file, and every model's price where one is known.

    A `scored` table has a score in place of every answer, and no right answers.
    """

    source: str
    models: tuple[str, ...]
    rows: tuple[Row, ...]
    prices: Mapping[str, float] = Factory(dict)
    scored: bool = False

    def only(self, ids: Iterable[str]) -> Table:
        """Return the same table with these questions, in the table's order."""
        wanted = set(ids)
        rows = tuple(row for row in self.rows if row.id in wanted)
        return evolve(self, rows=rows)
