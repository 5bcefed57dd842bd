"""Who is in a memory that is too small for all: what is needed comes in, what rested longest goes.

This is bookkeeping alone, without torch. How things move is their own affair (`offloading`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from attrs import define

from orchestrion import RunError

__all__ = ["Guest", "Moved", "Pool", "said"]


class Guest(Protocol):
    """What a pool moves; compared by identity."""

    @property
    def name(self) -> str:
        """For errors."""
        ...

    @property
    def size(self) -> int:
        """Bytes it takes when it is in."""
        ...

    def enter(self) -> None:
        """Move in."""
        ...

    def leave(self) -> None:
        """Move out."""
        ...


def said(size: int) -> str:
    """Bytes for people."""
    for unit, bytes_ in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} B"


@define
class Moved:
    """How often anything moved in or out, and the seconds it took."""

    times: int = 0
    seconds: float = 0.0


class Pool:
    """A memory that guests take turns in.

    Who needs some of them pins them, all at once, for as long as they must stay. A thread that
    already has pins is never made to wait for more, so that no two threads can wait for each
    other; the others are served in the order in which they came, so that nobody waits forever.

    Args:
        name: of the device, for errors.
        memory: bytes; None means that all fit.
    """

    def __init__(self, name: str, memory: int | None) -> None:
        self.name, self.memory = name, memory
        self.moved = Moved()
        self._inside: dict[Guest, None] = {}
        """Who is in, the least recently used first."""
        self._pins: dict[int, Counter[Guest]] = {}
        """What each thread has pinned."""
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def inside(self) -> tuple[Guest, ...]:
        """Who is in, the least recently used first."""
        with self._changed:
            return tuple(self._inside)

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        with self._changed:
            return len(self._waiting)

    def check(self, wanted: Collection[Guest]) -> None:
        """Whether these could ever be in together.

        Raises:
            RunError: they could not; names who takes how much.
        """
        total = sum(one.size for one in wanted)
        if self.memory is not None and total > self.memory:
            sizes = ", ".join(f"{one.name} {said(one.size)}" for one in wanted)
            raise RunError(
                f"{self.name}: {said(total)} are needed at once and there are "
                f"{said(self.memory)} ({sizes}); take smaller models, bfloat16, a `lora`, or "
                "another device"
            )

    @contextmanager
    def pinned(self, guests: Collection[Guest]) -> Iterator[None]:
        """While it lasts, these are in.

        Raises:
            RunError: see `check`.
            RuntimeError: the thread has pins already, and these do not fit beside what is pinned.
        """
        wanted = tuple(dict.fromkeys(guests))
        me = threading.get_ident()
        with self._changed:
            mine = self._pins.get(me)
            if mine is None:
                self._wait(wanted)
            elif not self._fit(wanted):
                names = ", ".join(one.name for one in wanted)
                raise RuntimeError(
                    f"{self.name}: {names} cannot come in beside what is pinned; what is needed "
                    "together must be pinned together"
                )
            self._admit(wanted)
            self._pins.setdefault(me, Counter()).update(wanted)
        try:
            yield
        finally:
            with self._changed:
                self._unpin(me, wanted)

    def evict(self, guest: Guest) -> None:
        """Let somebody who is not pinned move out; who is out already moves what is new of him."""
        with self._changed:
            if guest in self._pinned():
                raise RuntimeError(f"{self.name}: {guest.name} is pinned")
            guest.leave()
            self._inside.pop(guest, None)

    def _wait(self, wanted: Sequence[Guest]) -> None:
        """Until it is this thread's turn and there is room."""
        self.check(wanted)
        ticket = object()
        self._waiting.append(ticket)
        try:
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._fit(wanted))
        finally:
            self._waiting.remove(ticket)
            self._changed.notify_all()

    def _pinned(self) -> dict[Guest, None]:
        return dict.fromkeys(one for pins in self._pins.values() for one in pins)

    def _fit(self, wanted: Sequence[Guest]) -> bool:
        together = self._pinned() | dict.fromkeys(wanted)
        return self.memory is None or sum(one.size for one in together) <= self.memory

    def _admit(self, wanted: Sequence[Guest]) -> None:
        new = [one for one in wanted if one not in self._inside]
        if new:
            self._make_room(sum(one.size for one in new), self._pinned() | dict.fromkeys(wanted))
        for one in wanted:
            if one in new:
                self._timed(one.enter)
            self._use(one)

    def _make_room(self, needed: int, staying: Collection[Guest]) -> None:
        if self.memory is None:
            return
        total = needed + sum(one.size for one in self._inside)
        for one in [one for one in self._inside if one not in staying]:
            if total <= self.memory:
                break
            self._timed(one.leave)
            del self._inside[one]
            total -= one.size

    def _timed(self, move: Callable[[], None]) -> None:
        start = time.perf_counter()
        move()
        self.moved.times += 1
        self.moved.seconds += time.perf_counter() - start

    def _use(self, guest: Guest) -> None:
        self._inside.pop(guest, None)
        self._inside[guest] = None

    def _unpin(self, me: int, wanted: Sequence[Guest]) -> None:
        mine = self._pins[me]
        mine.subtract(wanted)
        self._pins[me] = +mine
        if not self._pins[me]:
            del self._pins[me]
        for one in wanted:
            self._use(one)
        self._changed.notify_all()
