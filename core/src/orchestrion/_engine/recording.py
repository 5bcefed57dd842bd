"""What of a call goes on record, and how records become durable: many in one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from orchestrion._records import JSON, NO_USAGE, Usage

__all__ = ["Batch", "Facts", "Journal", "Kind", "Recorded"]

Kind = Literal[
    "answer",  # what a call gave
    "cached",  # what an equal earlier call gave: its full cost, and no spend
    "failed",  # it failed for good: its error, for a replay; a resumed run tries again
    "started",  # an attempt under way; still there after a crash, it counts as `lost`
    "lost",  # cut off by a crash: what it may have taken
    "timeout",  # an attempt without an answer in time: what it may have taken
    "cut",  # an attempt cut off by the run itself: what it may have taken
    "billed",  # an attempt that failed and was paid for
    "stated",  # what turns stated that they took beside their calls, by agent and stage
    "arrival",  # which turns came first
    "late",  # a turn that took too long, for a replay
]


class Facts(NamedTuple):
    """What is told of a call beside its answer; no result depends on it.

    Args:
        service: whom it asked.
        who: on whose behalf: an agent ("crew/writer" in a nested team), "verifier", "reward" or
            "trainer".
        stage: the part of the run.
        seconds: what the attempt that was answered took.
        attempts: how many there were.
        estimated: whether the usage is an estimate.
    """

    service: str = ""
    who: str = ""
    stage: str = ""
    seconds: float | None = None
    attempts: int = 1
    estimated: bool = False


class Recorded(NamedTuple):
    """A call, or an attempt at one, as the journal holds it.

    Args:
        key: its name in the run; "" for a row that only ends another.
        request: digest of what was asked.
        answer: None for an attempt that gave none.
        usage: what it took.
        kind: see `Kind`.
        facts: for reports.
        ends: key of the attempt that is not under way any more.
        text: the answer as JSON, where somebody has written it already.
        pieces: what was asked, see `engine.pieces`; empty where nobody keeps it.
    """

    key: str
    request: str
    answer: JSON
    usage: Usage
    kind: Kind = "answer"
    facts: Facts = Facts()
    ends: str = ""
    text: str = ""
    pieces: tuple[bytes, ...] = ()


class Journal(Protocol):
    """Where calls are recorded, durably, before their answers are used.

    One with a true `keeps_attempts` is also given what is under way: a crash then loses no spend.
    One with a true `keeps_requests` is given what was asked.
    """

    def get(self, key: str) -> Recorded | None: ...
    def put_many(self, rows: list[Recorded]) -> None: ...


class Batch:
    """Rows that are ready together share one commit.

    Args:
        write: makes rows durable; called in a worker thread, never twice at once.
    """

    def __init__(self, write: Callable[[list[Recorded]], None]) -> None:
        self._write = write
        # Each row with whoever waits for it: one future for all would be cancelled by one of them.
        self._next: list[tuple[Recorded, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    def add(self, row: Recorded) -> asyncio.Future[None]:
        """Queue a row; the result is there when it is durable."""
        done = asyncio.get_running_loop().create_future()
        self._next.append((row, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return done

    async def drain(self) -> None:
        """Return when all rows are written, or cannot be; a cancellation does not cut that off.

        Whoever added a row is told of an error; here nobody is.
        """
        cancelled = False
        while (flushing := self._flushing) is not None and not flushing.done():
            try:
                await asyncio.wait([flushing])
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    async def _flush(self) -> None:
        try:
            while self._next:
                batch, self._next = self._next, []
                error: BaseException | None = None
                try:
                    await asyncio.to_thread(self._write, [row for row, _ in batch])
                except BaseException as caught:
                    error = caught
                for _, done in batch:
                    if done.done():
                        continue
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
                        done.exception()  # whoever waited may be gone
                if error is not None and not isinstance(error, Exception):
                    raise error
        finally:
            self._flushing = None


def ended(key: str) -> Recorded:
    """That an attempt is over, and took nothing."""
    return Recorded("", "", None, NO_USAGE, ends=key)
