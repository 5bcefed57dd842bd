"""Episodes a page at a time, filtered and sorted, for people who look through many.

Rows are wide, as their records stand in them. The columns that filters and orders need are in an
index as well, so that a scan of all episodes reads the index alone.

What agents said stands in the records alone. A filter on it looks at records in the order of the
page until the page is full or a limit is reached, and says how far it came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypedDict

from attrs import asdict, fields, frozen

from orchestrion._errors import UsageError
from orchestrion._records import JSON
from orchestrion._store.database import Database
from orchestrion._store.serial import parse

EpisodeOrder = Literal["number", "reward", "cost", "turns"]


@frozen(kw_only=True)
class EpisodeFilter:
    """Which episodes a page shows; None, and an empty text, mean all.

    `problem` and `text` are parts of what they are compared with, in any case of ASCII letters.
    """

    source: str | None = None  # "train", or the name of an evaluation
    stage: int | None = None
    iteration: int | None = None
    status: str | None = None
    success: bool | None = None
    problem: str = ""  # part of the id or of the category of its problem
    reward_from: float | None = None  # the smallest; episodes without a reward are left out
    reward_to: float | None = None
    agent: str = ""  # has a turn in it, in a nested team too
    text: str = ""  # part of the content or of the error of a turn

    @property
    def reads(self) -> bool:
        """Return whether records must be read to decide."""
        return bool(self.agent or self.text)


class PageOptions(TypedDict, total=False):
    """How episodes are ordered, and where a page of them begins and ends."""

    order: EpisodeOrder  # "number", in which they were stored, by default; missing values come last
    descending: bool  # from the largest, by default
    after: str | None  # `EpisodePage.after` of the page before
    before: str | None  # `EpisodePage.before` of the page after; `after` wins
    limit: int  # how many episodes; 50 by default
    look: int  # how many records are read at most, where the filter reads records
    seconds: float  # for about how long they are read at most


@frozen
class EpisodeRow:
    """An episode without its turns. A missing score, reward or price is None."""

    number: int
    id: str
    source: str
    stage: int | None
    iteration: int | None
    problem: str
    category: str
    status: str
    success: bool
    score: float | None
    reward: float | None
    turns: int
    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    cost: float | None


@frozen
class EpisodePage:
    """Some episodes in order.

    `candidates` counts those that pass the filters on columns, on all pages together: the number of
    matches, unless the filter reads records. `looked` counts the records read for this page.
    """

    rows: tuple[EpisodeRow, ...]
    candidates: int
    looked: int
    after: str | None  # gives the next page; None for the last one
    before: str | None  # gives the page before; None for the first one


_COLUMNS: Final = tuple(field.name for field in fields(EpisodeRow))
_SELECTED: Final = (
    f"{', '.join(_COLUMNS)} FROM main.episodes"
    " LEFT JOIN (SELECT seq, stage, iteration FROM main.iterations) USING (seq)"
)
_CONDITIONS: Final = {
    "source": "source = ?",
    "stage": "seq IN (SELECT seq FROM main.iterations WHERE stage = ?)",
    "iteration": "seq IN (SELECT seq FROM main.iterations WHERE iteration = ?)",
    "status": "status = ?",
    "success": "success = ?",
    "reward_from": "reward >= ?",
    "reward_to": "reward <= ?",
}
_PIECE: Final = 32  # records that are read at once
_PLAIN: Final = re.compile("[A-Za-z0-9 ]{1,200}")
"""Text that a record holds unchanged, however the record was encoded."""


def read_page(
    database: Database,
    wanted: EpisodeFilter,
    order: EpisodeOrder = "number",
    descending: bool = True,
    after: str | None = None,
    before: str | None = None,
    limit: int = 50,
    look: int = 5000,
    seconds: float = 0.12,
) -> EpisodePage:
    """Return a page; see `RunReader.episode_page`."""
    where, values = _where(wanted)
    # Not left to SQLite, which would follow the order of wide rows to save sorting.
    scans = bool(where) or order != "number"
    table = "main.episodes" + " INDEXED BY episodes_columns" * scans
    condition = " AND ".join(where) or "TRUE"
    (total,) = database.one(f"SELECT count(*) FROM {table} WHERE {condition}", values)
    # The page before is the next one in the opposite direction.
    backwards = before is not None and after is None
    down = descending != backwards
    missing = "-9e999" if descending else "9e999"
    key = order if order in ("number", "turns") else f"ifnull({order}, {missing})"
    start = before if backwards else after
    if start is not None:
        condition += f" AND ({key}, number) {'<' if down else '>'} (?, ?)"
        values += _place(start)
    direction = "DESC" if down else "ASC"
    reach = look if wanted.reads else limit
    fetched = database.all(
        f"SELECT {key}, number FROM {table} WHERE {condition}"
        f" ORDER BY {key} {direction}, number {direction} LIMIT ?",
        (*values, reach + 1),
    )
    candidates, more = fetched[:reach], len(fetched) > reach
    looked = 0
    rows = candidates
    if wanted.reads:
        rows, looked = _reading(database, candidates, wanted, limit, seconds)
        more = more or looked < len(candidates)
    end = (rows if len(rows) == limit or not looked else candidates[:looked])[-1:]
    further = f"{end[0][0]!r},{end[0][1]}" if more and end else None
    if backwards:
        rows = rows[::-1]
    first = f"{rows[0][0]!r},{rows[0][1]}" if rows else start
    last = f"{rows[-1][0]!r},{rows[-1][1]}" if rows else start
    return EpisodePage(
        tuple(_rows(database, [number for _, number in rows])),
        total,
        looked,
        last if backwards else further,
        further if backwards else first if start is not None else None,
    )


def _rows(database: Database, numbers: Sequence[int]) -> Iterator[EpisodeRow]:
    among = ", ".join(map(str, numbers))
    rows = database.all(f"SELECT {_SELECTED} WHERE number IN ({among})")
    row_of = {row[0]: dict(zip(_COLUMNS, row, strict=True)) for row in rows}
    for number in numbers:
        if row := row_of.get(number):  # a resume may have dropped it meanwhile
            yield EpisodeRow(**{**row, "success": bool(row["success"])})


def _reading(
    database: Database, candidates: Sequence[Any], wanted: EpisodeFilter, limit: int, seconds: float
) -> tuple[list[Any], int]:
    """Return candidates whose records match, at most `limit`, and how many were looked at."""
    matches: list[Any] = []
    looked, deadline = 0, time.monotonic() + seconds
    while looked < len(candidates):
        # In small pieces, so that long records cannot keep it far beyond its time.
        piece = candidates[looked : looked + _PIECE]
        matching = _matching(database, [number for _, number in piece], wanted)
        for row in piece:
            looked += 1
            if row[1] in matching:
                matches.append(row)
            if len(matches) == limit:
                return matches, looked
        if time.monotonic() > deadline:
            break
    return matches, looked


def _matching(database: Database, numbers: Sequence[int], wanted: EpisodeFilter) -> set[int]:
    texts = [text for text in (wanted.agent, wanted.text) if text]
    parts = [max(_PLAIN.findall(text), key=len, default="") for text in texts]
    rows = database.all(
        "SELECT number, record FROM main.episodes WHERE number IN "
        f"({', '.join(map(str, numbers))}){' AND record LIKE ?' * len(parts)}",
        [f"%{part}%" for part in parts],
    )
    try:
        return {number for number, record in rows if _matches(parse(record), wanted)}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise database.damage(f"the record of an episode cannot be read ({error})") from None


def _where(wanted: EpisodeFilter) -> tuple[list[str], list[Any]]:
    chosen = {k: v for k, v in asdict(wanted).items() if k in _CONDITIONS and v is not None}
    where, values = [_CONDITIONS[name] for name in chosen], list(chosen.values())
    if wanted.problem:
        where.append("(problem LIKE ? ESCAPE '!' OR category LIKE ? ESCAPE '!')")
        values += [f"%{re.sub('[!%_]', lambda match: '!' + match[0], wanted.problem)}%"] * 2
    return where, values


def _place(text: str) -> list[float]:
    try:
        key, number = text.split(",")
        place = [float(key), int(number)]
        if not 0 <= place[1] < 2**63:
            raise ValueError  # what the database cannot hold
    except ValueError:
        raise UsageError(f"{text!r:.80} is no place in a list of episodes") from None
    return place


def _lower(text: str) -> str:
    """Return text with its ASCII letters in lower case: SQLite's LIKE takes no others as equal."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def _matches(record: JSON, wanted: EpisodeFilter) -> bool:
    turns = list(_turns(record["trajectory"]))
    text = _lower(wanted.text)
    if wanted.agent and all(turn["agent"] != wanted.agent for turn in turns):
        return False
    texts = (f"{turn['output']['content']}\n{turn['error']}" for turn in turns)
    return not text or any(text in _lower(content) for content in texts)


def _turns(trajectory: Iterable[JSON]) -> Iterator[JSON]:
    for turn in trajectory:
        yield turn
        yield from _turns(turn["output"]["inner"] or ())
