"""An installed Python function as an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Annotated, Any, Literal

from attrs import frozen

from orchestrion import (
    Agent,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Usage,
    UsageError,
    View,
    no_calls,
)
from orchestrion_basic_agents.reading import last_text

__all__ = ["Function"]


@frozen
class Function:
    """Calls `function`, sync or async, and makes its result the turn.

    A text becomes the content; an `Output` is taken as it is; any other JSON value becomes the
    data. Plain functions run in a worker thread.

    Args:
        function: "package.module:name" of something installed.
        give: what it is called with: the latest `text`, or the whole `view`.
        cost: what a turn costs, unless the function returns an `Output`.
    """

    function: Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
    give: Literal["text", "view"] = "text"
    cost: Annotated[float, Meta(ge=0)] = 0.0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Import the function."""
        yield _Opened(self, load(self.function, f"{ctx.path}.function"))


def load(path: str, where: str) -> Callable[..., Any]:
    """The callable at "package.module:name"; raises `UsageError` that says what is missing."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise UsageError(
            f"{where}: cannot load {path!r}: {type(error).__name__}: {error}"
        ) from None
    if not callable(found):
        raise UsageError(f"{where}: {path!r} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


@frozen
class _Opened(Agent):
    settings: Function
    call: Callable[..., Any]

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        import asyncio
        import inspect

        given = last_text(view) if self.settings.give == "text" else view
        if inspect.iscoroutinefunction(self.call):
            result = await self.call(given)
        else:
            result = await asyncio.to_thread(self.call, given)
        if isinstance(result, Output):
            return result
        usage = Usage(cost=self.settings.cost)
        if isinstance(result, str):
            return Output(result, usage=usage)
        return Output(data=result, usage=usage)
