"""Several speakers behind one model name, told apart by the role that the instructions name."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import system_text, words

__all__ = ["Cast"]


@frozen
class Cast(Speaker):
    """Plays whom the instructions name first, as one model plays all roles of a team.

    Args:
        roles: speakers by role; a role may have several words.
        otherwise: who speaks where the instructions name none of them.
    """

    roles: Mapping[str, Speaker] = field(factory=dict)
    otherwise: Speaker | None = None

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        told = words(system_text(request))
        named = [(told.find(words(role)), role) for role in self.roles]
        found = [(place, -len(role), role) for place, role in named if place >= 0]
        speaker = self.roles[min(found)[2]] if found else self.otherwise
        if speaker is None:
            known = ", ".join(self.roles) or "none"
            raise ValueError(f"the instructions name no role of this cast (roles: {known})")
        return speaker.say(request, draw)
