"""A debug agent: it repeats what it reads, or does what it reads."""

from __future__ import annotations

import json
from typing import Annotated, Any

from attrs import frozen

from orchestrion import JSON, Agent, Calls, Key, Meta, Output, Usage, View, no_calls
from orchestrion_basic_agents.reading import last_text

__all__ = ["Echo"]

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
        """Say it again."""
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
    """The script in a text, or an empty one; raises ValueError on a script it cannot follow."""
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
