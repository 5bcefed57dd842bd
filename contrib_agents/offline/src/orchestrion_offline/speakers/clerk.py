"""Who sorts support tickets."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text
from orchestrion_offline.speakers.skills import Share
from orchestrion_offline.tickets import CATEGORIES, answer_in, category_of

__all__ = ["Clerk"]


@frozen
class Clerk(Speaker):
    """Names the category of a ticket of the task `tickets`, right at a known rate.

    Asked again it may err anew.

    Args:
        skills: how often it is right, by category.
        skill: on categories that `skills` does not name.
        checks: how often it sees whether the last answer before its own is right, and then keeps
            it or answers rightly; 0 is one that does not read what others say.
    """

    skills: Mapping[str, Share] = field(factory=dict)
    skill: Share = 0.7
    checks: Share = 0.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        text = asked_text(request)
        right = category_of(text)
        if not right:
            raise ValueError("the speaker clerk knows the made-up tickets of the task `tickets`")
        luck, which, looks = draw.uniforms(3)
        before = answer_in(text.rpartition("one of")[2])
        if before and looks < self.checks:
            return Answer(f"Category: {right}")
        if luck < self.skills.get(right, self.skill):
            return Answer(f"Category: {right}")
        others = [name for name in CATEGORIES if name != right]
        return Answer(f"Category: {others[int(which * len(others))]}")
