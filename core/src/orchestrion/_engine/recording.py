"""Journal rows: what they hold, and how they become durable, many in one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple, Protocol

import msgspec

from orchestrion._engine.reuse import RESULTS
from orchestrion._interfaces import Answer, Request
from orchestrion._keys import Key
from orchestrion._records import JSON, NO_USAGE, Usage

_encode, _decode = msgspec.json.encode, msgspec.json.decode

Kind = Literal[
    "answer",  # the answer of a call
    "cached",  # the answer of an equal earlier call: its full cost, and no spend
    "failed",  # the error of a call without an answer, for a replay; a resumed run tries again
    "started",  # an attempt in flight; if it is still there after a crash, it counts as `lost`
    "lost",  # an attempt cut off by a crash: what it may have spent
    "timeout",  # an attempt without an answer in time: what it may have spent
    "cut",  # an attempt cut off by the run itself: what it may have spent
    "billed",  # an attempt that failed and was paid for, or may have been
    "stated",  # usage that turns reported beside their calls, by agent and stage
    "arrival",  # the completion order of turns
    "late",  # a turn that exceeded its time limit, for a replay
]


class Facts(NamedTuple):
    """Describe a call in reports; no result depends on it."""

    service: str = ""
    who: str = ""  # an agent ("crew/writer" in a nested team), "verifier", "reward" or "trainer"
    stage: str = ""  # the part of the run
    seconds: float | None = None  # that the attempt which was answered took
    attempts: int = 1
    estimated: bool = False  # whether the usage is
    at: float | None = None  # when that attempt began, or when the call failed (Unix time)


class Recorded(NamedTuple):
    """One row of the journal: a call, an attempt at one, a completion order, a late turn."""

    key: str  # its name in the run; "" for a row that only ends another
    request: str  # a digest
    answer: JSON  # None for an attempt without an answer
    usage: Usage
    kind: Kind = "answer"
    facts: Facts = Facts()
    ends: str = ""  # key of the attempt that is no longer in flight
    text: str = ""  # the answer as JSON, if it has been encoded already
    pieces: tuple[bytes, ...] = ()  # the request, see `cut`; empty where requests are not kept
    computed: bool = False  # whether it may be computed again under this key, see `Request`


class Failure(NamedTuple):
    """A failed turn or judgement."""

    message: str
    usage: Usage = NO_USAGE  # of its calls
    made: tuple[str, ...] = ()  # names of its calls


class Booked:
    """Names of pure results whose usage is booked, also by earlier parts of the run; the latest."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = dict.fromkeys(names)
        self._new = 0

    def add(self, name: str) -> bool:
        """Add a name; return whether it was new."""
        if name in self._names:
            return False
        self._names[name] = None
        self._new += 1
        if len(self._names) > RESULTS:
            del self._names[next(iter(self._names))]
        return True

    def take(self) -> list[str]:
        """Return the names that were added since the last time."""
        new, self._new = self._new, 0
        return list(islice(reversed(self._names), new))


class Journal(Protocol):
    """Keeps calls durably; each is written before its answer is used.

    A journal with a true `keeps_attempts` also gets attempts in flight: a crash then loses no
    spend. A journal with a true `keeps_requests` gets the requests as well.
    """

    def get(self, key: str) -> Recorded | None: ...
    def put_many(self, rows: list[Recorded]) -> None: ...


class AnswerCache(Protocol):
    """Keeps answers beyond an iteration of a run, by request digest."""

    def get(self, key: str) -> Recorded | None: ...
    def put(self, row: Recorded) -> None: ...


def ended(key: str) -> Recorded:
    """Return the row that ends an attempt which spent nothing."""
    return Recorded("", "", None, NO_USAGE, ends=key)


def answer_of(row: Recorded) -> Answer:
    """Return a recorded answer as the call gave it."""
    return Answer(row.answer, row.usage, row.facts.estimated)


def place_of(episode: str, key: Key) -> str:
    """Name a place in the run for a row; several episodes may share the key."""
    return f"{episode}:{key.hex()}"


class JournalWriter:
    """Read and write a journal from the event loop; rows that are ready together share a commit."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self.keeps_attempts = bool(getattr(journal, "keeps_attempts", False))
        # One future per row: a future shared by all would be cancelled by any of them.
        self._next: list[tuple[Recorded, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        """Why a row that nobody waited for could not be written."""

    def get(self, key: str) -> Recorded | None:
        return None if self._journal is None else self._journal.get(key)

    async def find(self, key: str) -> Recorded | None:
        """Return the row under this key, also from where the journal is another process's."""
        return self.get(key)

    async def add(self, row: Recorded, wait: bool = True) -> None:
        """Return when the row is durable, or at once if `wait` is false.

        The error of a row that was not waited for is raised by the next `add`, or by `settle`.
        """
        if self._journal is None:
            return
        if self._failure is not None:
            raise self._failure
        done = self._queued(row)
        if wait:
            await done
        else:
            done.add_done_callback(self._note_failure)

    def _note_failure(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            self._failure = self._failure or done.exception()

    def add_soon(self, row: Recorded) -> None:
        """Queue a row without waiting for it, as a cancelled caller must do."""
        if self._journal is not None:
            self._queued(row)

    def pieces(self, request: Request) -> tuple[bytes, ...]:
        """Return the request in pieces; empty if the journal does not keep requests now."""
        # Not cached: a run's retention can be lowered while it is open.
        if not getattr(self._journal, "keeps_requests", False):
            return ()
        return cut(request.content if request.shown is None else request.shown)

    async def drain(self) -> None:
        """Return when all rows are written or have failed; a cancellation is raised after that.

        An error of a row is raised where it was added, not here.
        """
        cancelled = False
        while (flushing := self._flushing) is not None and not flushing.done():
            try:
                await asyncio.wait([flushing])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def settle(self) -> None:
        """Return when all rows are durable; raise the error of one that nobody waited for."""
        await self.drain()
        if self._failure is not None:
            raise self._failure

    def _queued(self, row: Recorded) -> asyncio.Future[None]:
        """Queue a row; return a future that is done when the row is durable."""
        done = asyncio.get_running_loop().create_future()
        self._next.append((row, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return done

    async def _flush(self) -> None:
        assert self._journal is not None
        try:
            while self._next:
                batch, self._next = self._next, []
                error: BaseException | None = None
                try:
                    rows = [row for row, _ in batch]
                    # In a thread, and never twice at once.
                    await asyncio.to_thread(self._journal.put_many, rows)
                except BaseException as caught:
                    error = caught
                for _, done in batch:
                    if done.done():
                        continue
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
                        done.exception()  # nobody may wait for it any more: no warning
                if error is not None and not isinstance(error, Exception):
                    raise error
        finally:
            self._flushing = None


# ------------------------------------------------------------------------------- requests

_SHORT = 64
"""Bytes up to which a value is not worth a piece of its own."""


def cut(content: JSON) -> tuple[bytes, ...]:
    """Return a request's content as pieces of JSON, which `joined` puts together again.

    What many requests share (a long prompt, tools) is stored once. The first piece holds short
    values (settings) and says where the other pieces belong: each record of a list (messages,
    tools) is a piece, and so is each other long value.
    """
    if not isinstance(content, dict):
        return (_encode([content, []]),)
    short: dict[str, JSON] = {}
    places: list[list[JSON]] = []
    pieces: list[bytes] = []
    for name, value in content.items():
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
            places.append([name, len(value)])
            pieces += map(_encode, value)
            continue
        if isinstance(value, (str, list, tuple, dict)):
            data = _encode(value)
            if len(data) > _SHORT:
                places.append([name, None])
                pieces.append(data)
                continue
        short[name] = value
    return (_encode([short, places]), *pieces)


def joined(pieces: Sequence[str]) -> JSON:
    """Return the content that was cut into these pieces."""
    content, places = _decode(pieces[0])
    start = 1
    for name, count in places:
        end = start + (1 if count is None else count)
        values = [_decode(piece) for piece in pieces[start:end]]
        start = end
        content[name] = values[0] if count is None else values
    return content
