"""An event loop whose clock leaps: time limits pass at once, however slow the machine is.

What waits for ever is cut off at its limit without a wait, and what is quick is never too late
because the machine was busy: no time passes while there is something left to do.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LeapingLoop", "run"]

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Leaps instead of waiting for a timer; waits for events where there is no timer."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.leaps = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]]
        if timeout is None or timeout <= 0 or not self.leaps:
            ready = super().select(timeout)
        elif not (ready := super().select(0)):
            self.ahead += timeout
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """The loop.

    It does not know of threads: set `leaps` to False while one works that must not be too late.
    """

    def __init__(self) -> None:
        self._leaping = _Selector()
        super().__init__(self._leaping)

    @property
    def leaps(self) -> bool:
        """Whether the clock leaps when nothing is left to do."""
        return self._leaping.leaps

    @leaps.setter
    def leaps(self, value: bool) -> None:
        self._leaping.leaps = value

    def time(self) -> float:
        """Seconds, those included that were leapt over."""
        return super().time() + self._leaping.ahead


def run(main: Coroutine[Any, Any, T], leaps: bool = True) -> T:
    """As `asyncio.run`, with a clock that leaps, or does once `leaps` is set on the loop."""

    def loop() -> LeapingLoop:
        made = LeapingLoop()
        made.leaps = leaps
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)
