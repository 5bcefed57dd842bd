"""Who names the next agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text
from orchestrion_offline.shaped import Filler, Place, filled, form_of
from orchestrion_offline.speakers.skills import Share
from orchestrion_offline.speakers.steps import sheet_and_lines

__all__ = ["Router"]

_NEXT = ("next", "agent", "name", "choice", "member")


@frozen
class Router(Speaker):
    """Names the agent that should act next, as JSON, and misses it at a known rate.

    On a worksheet the right one is that for the kind of the next step; elsewhere the one that
    follows whom the question mentions last.

    Args:
        kinds: the agent for each kind of step: `sums`, `products`, `digits`.
        finish: whom it names when all lines are written.
        follows: by agent, who comes after it.
        first: who begins where nobody of `follows` is mentioned.
        accuracy: how often it names the right one, else any other.
    """

    kinds: Mapping[str, str] = field(factory=dict)
    finish: str = "stop"
    follows: Mapping[str, str] = field(factory=dict)
    first: str = ""
    accuracy: Share = 1.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        form = form_of(request) or {"type": "object", "properties": {"next": {"type": "string"}}}
        right = self._right(request)
        known = [*self.kinds.values(), *self.follows.values(), self.first, self.finish]
        return Answer(filled(form, _Naming(right, self.accuracy, known, draw)))

    def _right(self, request: Mapping[str, JSON]) -> str:
        if self.kinds:
            sheet, done = sheet_and_lines(request)
            number = done.blamed or len(done.lines) + 1
            if number > len(sheet.steps):
                return self.finish
            return self.kinds.get(sheet.steps[number - 1].kind, self.first or self.finish)
        text = asked_text(request)
        places = {
            name: [match.start() for match in re.finditer(rf"\b{re.escape(name)}\b", text)]
            for name in self.follows
        }
        found = [(spots[-1], name) for name, spots in places.items() if spots]
        return self.follows[max(found)[1]] if found else self.first or self.finish


class _Naming(Filler):
    def __init__(self, right: str, accuracy: float, known: list[str], draw: Key) -> None:
        self.right, self.accuracy, self.known, self.draw = right, accuracy, known, draw

    def text(self, place: Place) -> str | None:
        """The name, or a reason."""
        if not any(one in place.name.lower() for one in _NEXT):
            return None if "option" in place.name.lower() else "simulated"
        return self._drawn(self.known)

    def choice(self, place: Place, options: list[Any]) -> Any:
        """The name, out of those allowed; of what is no name, the first."""
        if not any(one in place.name.lower() for one in _NEXT):
            return options[0]
        return self._drawn([str(one) for one in options if one is not None])

    def _drawn(self, options: list[str]) -> str:
        others = sorted({one for one in options if one and one != self.right})
        luck, which = self.draw.uniforms(2)
        if others and (luck >= self.accuracy or self.right not in options):
            return others[int(which * len(others))]
        return self.right
