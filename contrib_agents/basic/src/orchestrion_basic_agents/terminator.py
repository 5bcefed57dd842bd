"""The agent that ends an episode."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from orchestrion import Agent, Calls, Key, Meta, Output, Usage, View, no_calls

__all__ = ["Terminator"]


@frozen
class Terminator(Agent):
    """Ends the episode with its turn. Whether that was a success is the verifier's to say.

    Args:
        text: what it says.
        cost: what its turn costs.
    """

    text: str = "done"
    cost: Annotated[float, Meta(ge=0)] = 0.0

    ceiling = no_calls
    ends = True

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """The last turn."""
        return Output(self.text, usage=Usage(cost=self.cost), final=True)
