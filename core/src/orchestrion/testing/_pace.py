"""Measure how long plugin code holds up the event loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import attrs

__all__ = ["Pace", "check_pace", "paced"]

BLOCKED = 0.1
"""Seconds asleep, or waiting for a file, lock or process, in one step of the event loop."""
COMPUTING = 0.1
"""Seconds of processor time in one step, on a machine on which `_spin` takes `_NOMINAL`."""
_NOMINAL = 0.004
"""Seconds of processor time that `_spin` takes on a machine of today."""
ATTEMPTS = 4


@attrs.define
class Pace:
    """The longest step of a piece of work: seconds `blocked`, and seconds `computing`."""

    blocked: float = 0.0
    computing: float = 0.0

    def add(self, blocked: float, computing: float) -> None:
        """Record another step."""
        self.blocked = max(self.blocked, blocked)
        self.computing = max(self.computing, computing)

    @property
    def slow(self) -> bool:
        """Return whether a step blocked the event loop for long."""
        return self.blocked >= BLOCKED or self.computing >= COMPUTING * _slowness()


@contextmanager
def _step(pace: Pace) -> Iterator[None]:
    """Time a step of this thread, without the time it waited for a processor."""
    queued, started, worked = _queued(), time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        computing = time.thread_time() - worked
        wall = time.perf_counter() - started
        pace.add(wall - computing - (_queued() - queued), computing)


def _queued() -> float:
    """Return the seconds this thread waited for a processor; 0 where that is not known."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@cache
def _slowness() -> float:
    """Return how much slower than usual this machine is; at least 1."""
    return max(1.0, min(_spin() for _ in range(3)) / _NOMINAL)


def _spin() -> float:
    started, total = time.thread_time(), 0
    for i in range(100_000):
        total += i
    return time.thread_time() - started


class _Paced(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are timed."""

    def __init__(self, work: Coroutine[Any, Any, Any], pace: Pace) -> None:
        self._work, self._pace = work, pace

    def send(self, value: Any) -> Any:
        with _step(self._pace):
            return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        with _step(self._pace):
            return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Any:
        value: Any = None
        while True:
            try:
                waits_for = self.send(value)
            except StopIteration as stop:
                return stop.value
            try:
                value = yield waits_for
            except GeneratorExit:
                self.close()
                raise
            except BaseException as error:
                try:
                    waits_for = self.throw(error)
                except StopIteration as stop:
                    return stop.value
                value = yield waits_for


def paced(work: Any, pace: Pace) -> Any:
    """Return an awaitable with the result of `work` whose steps are timed."""
    return _Paced(work, pace) if isinstance(work, Coroutine) else work


async def check_pace(what: str, work: Callable[[], Any], advice: str) -> None:
    """Run a method several times; fail if it blocks the event loop for long each time.

    A single slow run may import a library, or the machine may be busy.

    Args:
        what: the method, as the message names it.
        work: calls it; returns its result, or an awaitable.
        advice: what to do instead.
    """
    pace = Pace()
    for _ in range(ATTEMPTS):
        pace = Pace()
        with _step(pace):
            result = work()
        if isinstance(result, Awaitable):
            await paced(result, pace)
        if not pace.slow:
            return
    if pace.blocked >= BLOCKED:
        held = f"slept or waited for {pace.blocked:.2f} s"
    else:
        held = f"computed for {pace.computing:.2f} s"
    raise AssertionError(
        f"{what} blocks the event loop: it {held} in one step, in each of {ATTEMPTS} attempts, "
        f"and every other episode stands still meanwhile; {advice}"
    )
