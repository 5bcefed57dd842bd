"""The player that reviews."""

from __future__ import annotations

from typing import Annotated

from attrs import frozen

from orchestrion import Agent, Calls, Key, Meta, Output, View
from orchestrion_code_review_agents.stage import latest, played, said, script_of

Chance = Annotated[float, Meta(ge=0, le=1)]


@frozen
class PlayReviewer(Agent):
    """Says whether the latest version has a defect; brings no version of its own.

    Args:
        skill: how often it sees the defect of a wrong version.
        false_alarm: how often it sees one in a right version.
        cost: of a turn.
    """

    skill: Chance = 0.85
    false_alarm: Chance = 0.05
    cost: Annotated[float, Meta(ge=0)] = 0.5

    @property
    def role(self) -> str:
        """What it does, for policies that read."""
        return "says whether the latest version has a defect"

    ceiling = played

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """One look at the latest version."""
        script, seen = script_of(view.problem), latest(view)
        if seen is None:
            return said(view, "There is nothing to review yet.", {"tool": "review"}, self.cost)
        chance = self.false_alarm if script.is_right(seen.code) else self.skill
        defect = key.uniform() < chance
        text = "I see a defect: it is not right for all inputs." if defect else "I see no defect."
        return said(view, text, {"tool": "review", "on": seen.on, "defect": defect}, self.cost)
