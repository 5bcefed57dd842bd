"""The player that refactors."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from orchestrion import Agent, Calls, Key, Meta, Output, View
from orchestrion_code_review_agents.stage import latest, played, said, script_of

Chance = Annotated[float, Meta(ge=0, le=1)]


@frozen
class PlayRefactorer(Agent):
    """Tidies the latest version, and mends it, mostly if a review says that it has a defect.

    Args:
        skill: how often it mends a wrong version that a review says has a defect.
        unaided: how often it mends one without such a review.
        slip: how often it breaks a right version that a review says has a defect.
        cost: of a turn.
    """

    skill: Chance = 0.9
    unaided: Chance = 0.05
    slip: Chance = 0.3
    cost: Annotated[float, Meta(ge=0)] = 0.8

    @property
    def role(self) -> str:
        """What it does, for policies that read."""
        return "tidies and mends the latest version"

    ceiling = played

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """A new version, if there is one to begin with."""
        script, seen = script_of(view.problem), latest(view)
        if seen is None:
            return said(view, "There is nothing to refactor yet.", {}, self.cost)
        chance, which = key.uniforms(2)
        if script.is_right(seen.code):
            breaks = seen.defect and chance < self.slip
            code = script.wrong[int(which * len(script.wrong))] if breaks else script.right
        elif chance < (self.skill if seen.defect else self.unaided):
            code = script.right
        else:
            code = seen.code
        return said(view, f"```python\n{code}```\n", {"code": code}, self.cost)
