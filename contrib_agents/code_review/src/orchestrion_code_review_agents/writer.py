"""The player that writes."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from orchestrion import Agent, Calls, Key, Meta, Output, View
from orchestrion_code_review_agents.stage import played, said, script_of, untidy

Chance = Annotated[float, Meta(ge=0, le=1)]


@frozen
class PlayWriter(Agent):
    """Writes a solution: a right one as often as its skill says, else one of the wrong ones.

    Every turn is a new attempt; it learns nothing from what was said.

    Args:
        basic: how often it is right on basic problems.
        intermediate: on intermediate ones.
        advanced: on advanced ones.
        tidy: how often its code has types and no unused import.
        cost: of a turn.
    """

    basic: Chance = 0.85
    intermediate: Chance = 0.6
    advanced: Chance = 0.35
    tidy: Chance = 0.5
    cost: Annotated[float, Meta(ge=0)] = 1.0

    @property
    def role(self) -> str:
        """What it does, for policies that read."""
        return "writes a solution"

    ceiling = played

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """One attempt."""
        script = script_of(view.problem)
        right, which, neat = key.uniforms(3)
        code = script.right
        if right >= getattr(self, script.level):
            code = script.wrong[int(which * len(script.wrong))]
        code = code if neat < self.tidy else untidy(code)
        return said(view, f"```python\n{code}```\n", {"code": code}, self.cost)
