"""Find whose code a thread or a task runs, by its stack: that costs the engine nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from attrs import frozen

from orchestrion._engine.activation import act
from orchestrion._engine.batch import DecisionBatcher
from orchestrion._engine.episode import Engine


@frozen(eq=False)
class Work:
    """A component that runs now."""

    who: str  # how messages name it; empty if it is not known
    limit: float | None = None  # in seconds
    line: str = ""  # the file and line that it runs
    frame: FrameType | None = None  # of the call, to tell it from the next call
    imports: bool = False  # whether it imports a module, which is slow at first

    def __str__(self) -> str:
        return f"{self.who or 'something'} (in {self.line})" if self.line else self.who


_CALLERS: dict[CodeType, Callable[[dict[str, Any]], tuple[str, float | None]]] = {
    act.__code__: lambda names: (names["engine"].name_of(names["seat"]), names["seconds"]),
    DecisionBatcher.ask.__code__: lambda names: (names["self"].place, None),
    Engine._result.__code__: lambda names: (names["who"], names["self"].timeout),
}
"""The functions that call components, and how to read component and limit from their variables."""

_LIBRARY = os.path.dirname(os.__file__)


def of_stack(thread: int) -> Work:
    """Return what a thread runs."""
    inner = frame = sys._current_frames().get(thread)
    while inner is not None and _is_library(inner.f_code.co_filename):
        inner = inner.f_back
    line = f"{inner.f_code.co_filename}, line {inner.f_lineno}" if inner is not None else ""
    imports = False
    while frame is not None:
        imports = imports or frame.f_code.co_filename.startswith("<frozen importlib")
        caller = _CALLERS.get(frame.f_code)
        if caller is not None:
            return Work(*caller(frame.f_locals), line, frame, imports)
        if frame.f_globals.get("__name__", "").startswith("orchestrion."):
            place = frame.f_locals.get("place")
            if isinstance(place, str):
                return Work(place, None, line, frame, imports)
        frame = frame.f_back
    return Work("", None, line, imports=imports)


def _is_library(file: str) -> bool:
    inside = file.startswith((_LIBRARY, "<frozen")) and "-packages" not in file
    return inside or file.startswith(os.path.dirname(os.path.dirname(__file__)))


def of_task(task: asyncio.Task[Any]) -> str:
    """Return the agent, verifier or reward function that a task waits for, or an empty text."""
    waits: Any = task.get_coro()
    while waits is not None:
        frame = getattr(waits, "cr_frame", None)
        if frame is not None and frame.f_code in _CALLERS:
            return _CALLERS[frame.f_code](frame.f_locals)[0]
        waits = getattr(waits, "cr_await", None)
    return ""
