"""Small agents: echo, a Python function, a person, prepared lines, the end of an episode."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import Factory, frozen

from orchestrion import (
    JSON,
    Agent,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Usage,
    View,
    in_thread,
    load_function,
    no_calls,
    note_line,
    replace,
)


def last_text(view: View) -> str:
    """Return the latest text of another agent, else the observation's, else the problem's."""
    for turn in reversed(view.turns):
        if turn.output.content:
            return turn.output.content
    if view.observation is not None and view.observation.text:
        return view.observation.text
    return view.problem.text


KNOWN = ("content", "cost", "data", "delay", "fail", "final")


@frozen
class Echo(Agent):
    """Repeats the latest text it may read: another agent's, else the problem's.

    If that text is a JSON object with the one key "echo", it is a script for this turn:
    `content` to say, `data` beside it, `cost` of the turn, `delay` in seconds, `fail` with a
    message, `final` to end the episode.

    Args:
        prefix: put before what it repeats.
        cost: what a turn costs.
        delay: seconds a turn takes.
    """

    prefix: str = ""
    cost: Annotated[float, Meta(ge=0)] = 1.0
    delay: Annotated[float, Meta(ge=0)] = 0.0

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        text = last_text(view)
        script = read_script(text)
        delay = float(script.get("delay", self.delay))
        if delay:
            import asyncio

            await asyncio.sleep(delay)
        if "fail" in script:
            raise RuntimeError(str(script["fail"]))
        return Output(
            content=str(script.get("content", self.prefix + text)),
            data=script.get("data"),
            usage=Usage(cost=float(script.get("cost", self.cost))),
            final=bool(script.get("final", False)),
        )


def read_script(text: str) -> dict[str, JSON]:
    """Return the script in a text, or an empty one; raise ValueError for a wrong script."""
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value: Any = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(value, dict) or list(value) != ["echo"]:
        return {}
    script = value["echo"]
    if not isinstance(script, dict):
        raise ValueError('"echo" needs an object with any of ' + ", ".join(KNOWN))
    unknown = [name for name in script if name not in KNOWN]
    if unknown:
        raise ValueError(f"unknown {unknown[0]!r} in an echo script; known: {', '.join(KNOWN)}")
    return script


@frozen
class Function:
    """Calls `function`, sync or async, and makes its result the turn.

    A text becomes the content; a number becomes the content and the data; an `Output` is taken as
    it is; any other JSON value becomes the data. None fails the turn. Plain functions run in a
    worker thread.

    Args:
        function: "package.module:name" installed, or in the folder of the command.
        give: what it is called with: the latest `text`, or the whole `view`.
        cost: what a turn costs, unless the function returns an `Output` with a usage of its own.
    """

    function: Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
    give: Literal["text", "view"] = "text"
    cost: Annotated[float, Meta(ge=0)] = 0.0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Import the function, unless nobody will call it."""
        where = f"{ctx.path}.function"
        call = str if ctx.described else load_function(self.function, where, given=1)
        yield _Opened(self, call)


@frozen
class _Opened(Agent):
    settings: Function
    call: Callable[..., Any]

    def ceiling(self, tokens: int) -> Usage:
        return Usage(cost=self.settings.cost)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        import inspect

        given = last_text(view) if self.settings.give == "text" else view
        try:
            if inspect.iscoroutinefunction(self.call):
                result = await self.call(given)
            else:
                result = await in_thread(self.call, given)
        except (Exception, SystemExit) as error:
            note_line(error, self.call)
            raise
        if result is None:
            raise TypeError(
                f"{self.settings.function} returned None; is a `return` missing? To say nothing, "
                'return ""'
            )
        usage = Usage(cost=self.settings.cost)
        if isinstance(result, Output):
            return result if result.usage != Usage() else replace(result, usage=usage)
        if isinstance(result, str):
            return Output(result, usage=usage)
        is_number = isinstance(result, (int, float)) and not isinstance(result, bool)
        return Output(str(result) if is_number else "", result, usage)


# One terminal, one question at a time, however many episodes run.
_TERMINAL = threading.Lock()


@frozen
class Human(Agent):
    """Shows the latest text on the terminal and makes the typed line the turn.

    Args:
        prompt: what the person is asked.
        stop: a line that ends the episode.
        cost: what a turn costs.
    """

    prompt: str = "your turn"
    stop: str = "/stop"
    cost: Annotated[float, Meta(ge=0)] = 1.0

    ceiling = no_calls

    def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Ask; an end of input fails the turn."""
        with _TERMINAL:
            print(f"\n{last_text(view)}\n[{view.agent}] {self.prompt}: ", end="", file=sys.stderr)
            sys.stderr.flush()
            line = sys.stdin.readline()
        if not line:
            raise RuntimeError("the terminal gave no more input")
        text = line.rstrip("\n")
        return Output(text, usage=Usage(cost=self.cost), final=text == self.stop)


@frozen
class Line:
    """One prepared turn.

    Args:
        content: what is said.
        data: JSON beside it, e.g. `{next: critic}` for a router.
        cost: what the turn costs.
        final: end the episode.
    """

    content: str = ""
    data: JSON = None
    cost: Annotated[float, Meta(ge=0)] = 0.0
    final: bool = False


@frozen
class Scripted(Agent):
    """Says its lines in order, one in each of its turns.

    Args:
        lines: the prepared turns.
        then: what to do when they are used up: say the last again, start over, or fail.
    """

    lines: list[Line] = Factory(lambda: [Line()])
    then: Literal["last", "repeat", "fail"] = "last"

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        acted = sum(turn.agent == view.agent for turn in view.trajectory)
        number = len(self.lines)
        if not number:
            raise RuntimeError("the script is empty")
        if acted >= number and self.then == "fail":
            raise RuntimeError(f"the script has {number} lines and all are said")
        line = self.lines[acted % number if self.then == "repeat" else min(acted, number - 1)]
        return Output(line.content, line.data, Usage(cost=line.cost), line.final)


@frozen
class Terminator(Agent):
    """Ends the episode with its turn; the verifier decides whether that was a success.

    Args:
        text: what it says.
        cost: what its turn costs.
    """

    text: str = ""
    cost: Annotated[float, Meta(ge=0)] = 0.0

    ceiling = no_calls
    ends = True

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(self.text, usage=Usage(cost=self.cost), final=True)
