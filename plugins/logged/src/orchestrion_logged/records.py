"""The log format: JSON lines, one decision per line.

    {"context": {"text": "My card was charged twice", "category": "billing"},
     "allowed": ["small", "large"], "choice": "small", "propensity": 0.5,
     "score": 1.0, "cost": 0.02}

Only `context` and `choice` are required; `docs/logs.md` explains every field. Decisions of an
episode have the same `episode`, and are numbered by `step` from 0. A file named `*.gz` is
decompressed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta, Struct

from orchestrion import Observation, Problem, StoreError, UsageError

_LEAST = 1e-6
"""With a smaller propensity, one decision would outweigh a million others."""
MOST = 1e9
"""Larger rewards would dominate every mean."""
_WIDEST = 1e15
"""Larger features are no exact numbers any more, and their squares may overflow."""

Number = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(min_length=1)]


class Context(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The context of a decision, as far as it is known."""

    id: str = ""  # of the problem
    text: str = ""  # of the problem, e.g. what the user wrote
    category: str = ""  # of the problem
    data: Any = None  # anything else the problem shows, as JSON
    features: tuple[float, ...] = ()  # numbers; the same number in every line
    hints: Mapping[str, tuple[float, ...]] = {}
    """Numbers about single choices, 0 to 1; the same number for every choice."""
    progress: Share | None = None  # of the work, 0 to 1


def context_of(problem: Problem, observation: Observation | None) -> Context:
    """Return what a policy sees of a problem and an observation, without the problem's data."""
    seen = observation or Observation()
    return Context(
        problem.id,
        problem.text,
        problem.category,
        features=tuple(seen.features),
        hints=dict(seen.hints),
        progress=seen.progress,
    )


class Logged(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A logged decision."""

    context: Context  # of the decision
    choice: Name  # "agent", "agent:option", or "stop"
    allowed: tuple[Name, ...] | None = None  # the allowed choices; None for all of the team
    propensity: Annotated[float, Meta(gt=0, le=1)] | None = None
    """The probability of this choice by the logging policy; None if unknown. It must not be a
    guess: if it is wrong, so is every estimate."""
    reward: float | None = None  # between this decision and the next one of its episode
    score: float | None = None
    """The outcome, usually 0 to 1. In a log with scores instead of rewards, the reward is the
    score minus a weight times the cost."""
    cost: Number = 0.0  # of this choice
    episode: str = ""  # the same for the decisions of an episode; "" for a single decision
    step: Annotated[int, Meta(ge=0)] = 0  # in the episode, from 0
    answer: str = ""  # the text of the turn
    status: Literal["completed", "failed", "cancelled"] = "completed"  # how the turn ended
    time: float | str | None = None  # for people; seconds of Unix time, or ISO 8601
    tags: Mapping[str, Any] = {}  # anything, for people


LoggedEpisode = tuple[Logged, ...]
"""The decisions of an episode, in the order of their steps."""

_DECODER = msgspec.json.Decoder(Logged)


def check_record(record: Logged) -> str:
    """Return the error of a decision beyond the types of its fields; "" if there is none."""
    for name in (record.choice, *(record.allowed or ())):
        agent, colon, option = name.partition(":")
        if not agent or (colon and not option) or not name.isprintable():
            return f"{name!r} is no choice; write `agent`, `agent:option` or `stop`, in one line"
    if record.allowed is not None:
        if len(set(record.allowed)) != len(record.allowed):
            return "`allowed` names a choice twice"
        if record.choice not in record.allowed:
            return f"the choice {record.choice!r} is not in `allowed`"
    if record.propensity is not None and record.propensity < _LEAST:
        return f"the propensity {record.propensity:g} is too small to weigh by: at least {_LEAST:g}"
    numbers = (record.reward or 0.0, record.score or 0.0, record.cost)
    if any(abs(number) > MOST for number in numbers):
        return f"reward, score and cost must lie between -{MOST:g} and {MOST:g}"
    context = record.context
    if any(abs(x) > _WIDEST for part in (context.features, *context.hints.values()) for x in part):
        return f"`features` and `hints` must lie between -{_WIDEST:g} and {_WIDEST:g}"
    if record.step and not record.episode:
        return f"step {record.step} without an episode; set `episode`"
    if len({len(hint) for hint in context.hints.values()}) > 1:
        return "`hints` must have the same number of values for every choice"
    return ""


def checked(record: Logged, where: Path | str) -> bytes:
    """Return the line of a decision, with its end, after checking it as a reader would.

    Raises:
        UsageError: the record contradicts itself; see `check_record`.
    """
    if wrong := check_record(record):
        raise UsageError(f"{where}: this decision cannot be logged: {wrong}")
    # Types are not checked when a record is made.
    try:
        line = msgspec.json.encode(record)
        _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{where}: this decision cannot be logged: {error}") from error
    return line + b"\n"


class LogWriter:
    """Appends decisions to a log; use it with `with`.

    Each line is written in a single append, so that several processes may write to one log and a
    reader never sees half a line. A line that a crash or a full disk cut off is ended first.

    Args:
        path: created if it does not exist; must not end in `.gz`.

    Raises:
        UsageError: the name ends in `.gz`; compress a log when it is finished.
        StoreError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix == ".gz":
            raise UsageError(f"{path}: a compressed log cannot be appended to; leave out `.gz`")
        self.path = path
        self._torn = False
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            size = os.fstat(self._file).st_size
            if size:
                os.lseek(self._file, size - 1, os.SEEK_SET)
                if os.read(self._file, 1) != b"\n":
                    os.write(self._file, b"\n")
        except OSError as error:
            raise StoreError(f"{path}: cannot be written to: {error}") from error

    def append(self, record: Logged) -> None:
        """Add a decision.

        Raises:
            UsageError: the record contradicts itself; see `check_record`.
            StoreError: the file is closed, or the disk is full.
        """
        self.write(checked(record, self.path))

    def write(self, lines: bytes) -> None:
        """Add lines in a single append.

        Raises:
            StoreError: the file is closed, or the disk is full.
        """
        lines = b"\n" + lines if self._torn else lines
        try:
            done = os.write(self.fileno(), lines)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written to: {error}") from error
        self._torn = done != len(lines)
        if self._torn:
            raise StoreError(f"{self.path}: the line was cut off after {done} bytes; make room")

    def fileno(self) -> int:
        """Return the file's descriptor.

        Raises:
            StoreError: the file is closed.
        """
        if self._file is None:
            raise StoreError(f"{self.path}: is closed")
        return self._file

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
