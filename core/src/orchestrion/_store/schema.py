"""The tables of a run's database. A file is compared with them to the letter: nothing here changes.

They are STRICT where SQLite knows that (3.37). Every row carries a checksum of its other columns
in `mark`; problems, and texts that calls asked, are named by their own digest.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import Final

SCHEMA: Final = 6
APPLICATION: Final = 0x4F524348  # "ORCH"
MARKED: Final = ("state", "iterations", "episodes", "calls", "cache", "evaluations", "events")
"""The tables whose rows carry a checksum."""
LAYOUT: Final = "SELECT name, replace(sql, ') STRICT', ')') FROM sqlite_master ORDER BY name"

_TABLES: Final = """
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL, mark INTEGER) STRICT;

-- One row a committed iteration; `seq` counts them over all stages.
CREATE TABLE iterations (
    seq INTEGER PRIMARY KEY,
    stage INTEGER NOT NULL,
    iteration INTEGER NOT NULL,
    metrics TEXT NOT NULL,          -- JSON
    episodes INTEGER NOT NULL,
    successes INTEGER NOT NULL,
    unrewarded INTEGER NOT NULL,    -- episodes whose reward is missing
    reward REAL,                    -- mean of the others
    checkpoint TEXT,                -- file name; NULL when none was written or it was pruned
    digest TEXT,                    -- its SHA-256
    seconds REAL NOT NULL,
    counts TEXT NOT NULL,           -- JSON: episodes by status, turns by agent
    mark INTEGER,
    UNIQUE (stage, iteration)
) STRICT;

CREATE TABLE problems (digest TEXT PRIMARY KEY, id TEXT NOT NULL, record TEXT NOT NULL) STRICT;

CREATE TABLE episodes (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    seq INTEGER NOT NULL,           -- of the iteration, or of the one that came next
    source TEXT NOT NULL,           -- 'train', or the name of an evaluation
    problem TEXT NOT NULL,          -- id
    category TEXT NOT NULL,
    status TEXT NOT NULL,
    success INTEGER NOT NULL,
    score REAL,
    reward REAL,
    turns INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    usd REAL,
    cost REAL,
    public TEXT NOT NULL,           -- digest of the problem's record
    record TEXT NOT NULL,           -- JSON, without the problem
    mark INTEGER
) STRICT;
-- All that lists of episodes filter and sort by, see `pages`.
CREATE INDEX episodes_columns ON episodes
    (seq, source, status, success, problem, category, reward, cost, turns);

CREATE VIEW turns AS
    SELECT e.id AS episode,
           json_extract(t.value, '$.index') AS number,
           json_extract(t.value, '$.agent') AS agent,
           json_extract(t.value, '$.option') AS option,
           json_extract(t.value, '$.status') AS status,
           json_extract(t.value, '$.output.content') AS content,
           json_extract(t.value, '$.output.usage.cost') AS cost,
           json_extract(t.value, '$.error') AS error
    FROM episodes e, json_each(e.record, '$.trajectory') t;

-- The journal: what was asked of the outside, and what it answered.
-- `kind` says what a row is, see `engine.recording.Kind`; no result depends on what follows `seq`.
CREATE TABLE calls (
    key TEXT PRIMARY KEY,
    request TEXT NOT NULL,          -- digest
    kind TEXT NOT NULL,
    answer TEXT,                    -- JSON; NULL once retention has dropped it; of a `cached`
                                    -- call with its cost, as only what was spent stands below
    calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    usd REAL,                       -- NULL: the price is not known
    cost REAL,
    seq INTEGER NOT NULL,           -- of the iteration in progress
    service TEXT NOT NULL,
    who TEXT NOT NULL,              -- an agent's name, 'verifier', 'reward', 'trainer'
    stage TEXT NOT NULL,
    seconds REAL,                   -- what the attempt that was answered took
    at REAL,                        -- when it began (Unix time), or when the call failed
    attempts INTEGER NOT NULL,
    estimated INTEGER NOT NULL,     -- whether the usage is an estimate
    pieces BLOB,                    -- what was asked: digests of texts, see `engine.pieces`
    mark INTEGER
) STRICT;
CREATE INDEX calls_kept ON calls (seq) WHERE answer IS NOT NULL;

-- JSON of what calls asked, by digest: each message, each long text, once.
CREATE TABLE texts (digest BLOB PRIMARY KEY, text TEXT NOT NULL) STRICT;

CREATE TABLE cache (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL,
    calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    usd REAL, cost REAL, mark INTEGER
) STRICT;

CREATE TABLE evaluations (
    name TEXT PRIMARY KEY, seq INTEGER NOT NULL, results TEXT NOT NULL, mark INTEGER
) STRICT;

CREATE TABLE events (
    number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
    mark INTEGER
) STRICT;
"""


def tables() -> str:
    """Return the SQL that makes all tables."""
    strict = sqlite3.sqlite_version_info >= (3, 37)
    return _TABLES if strict else _TABLES.replace(") STRICT;", ");")


@cache
def layout() -> tuple[list[tuple[str, str | None]], dict[str, tuple[str, ...]]]:
    """Return what `LAYOUT` selects in a new file, and by table the columns that marks cover."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(tables())
        columns = {
            table: tuple(
                name
                for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")
                if name not in ("mark", "number")
            )
            for table in MARKED
        }
        return connection.execute(LAYOUT).fetchall(), columns
