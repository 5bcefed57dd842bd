"""An agent that says prepared lines."""

from __future__ import annotations

from typing import Annotated, Literal

from attrs import Factory, frozen

from orchestrion import JSON, Agent, Calls, Key, Meta, Output, Usage, View, no_calls

__all__ = ["Line", "Scripted"]


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
    """Says its lines in order, one a turn, as often as it acted in this episode.

    Args:
        lines: the prepared turns.
        then: what to do when they are used up: say the last again, start over, or fail.
    """

    lines: list[Line] = Factory(lambda: [Line()])
    then: Literal["last", "repeat", "fail"] = "last"

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """The next line."""
        said = sum(turn.agent == view.agent for turn in view.trajectory)
        if not self.lines:
            raise RuntimeError("the script is empty")
        if said >= len(self.lines) and self.then == "fail":
            raise RuntimeError(f"the script has {len(self.lines)} lines and all are said")
        last = len(self.lines) - 1
        line = self.lines[said % len(self.lines) if self.then == "repeat" else min(said, last)]
        return Output(line.content, line.data, Usage(cost=line.cost), line.final)
