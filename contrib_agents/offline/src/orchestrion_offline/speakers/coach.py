"""Who proposes habits: good, bad and useless ones, as they come out of a pool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import JSON, Key, Meta
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import asked_text, mentioned, system_text
from orchestrion_offline.shaped import Filler, Place, filled, form_of
from orchestrion_offline.speakers.skills import HABITS, Habit, Share

__all__ = ["Coach"]

_AT_MOST = re.compile(r"\bat most (\d+)")
_LISTED = re.compile(r"^Categories: (.+)$", re.M)
_FENCED = re.compile(r"^~~~[^\n]*\n(.*?)^~~~|^```[^\n]*\n(.*?)^```", re.M | re.S)
_SAYS_HABIT = ("habit", "behaviour", "behavior", "rule", "text", "advice", "lesson")
_SAYS_INSTRUCTIONS = ("instructions", "prompt", "system_prompt")


@frozen
class Coach(Speaker):
    """Draws habits from a pool, none that the question shows already.

    It answers in the form that the question wants: by its JSON Schema, or by the JSON it shows as
    an example. Asked for instructions, it gives those it was shown with a drawn habit more; a plain
    text is a list.

    Args:
        pool: what it may propose; `effect` says what is helpful, nobody is told.
        proposals: how many at a time, unless the question wants fewer.
        insight: how likely a proposal is drawn from the helpful ones alone.
    """

    pool: tuple[Habit, ...] = field(default=HABITS)
    proposals: Annotated[int, Meta(ge=0, le=50)] = 2
    insight: Share = 0.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        """See `Speaker.say`."""
        text = asked_text(request)
        limits = [int(n) for n in _AT_MOST.findall(f"{system_text(request)}\n{text}")]
        fresh = [one for one in self.pool if not mentioned(one.text, text)]
        chosen = self._chosen(fresh, min([self.proposals, *limits]), draw)
        form = form_of(request)
        if form is not None:
            listed = _LISTED.findall(text)
            categories = [one.strip() for one in listed[-1].split(",")] if listed else []
            return Answer(filled(form, _Proposing(chosen, categories, _shown(text))))
        if "instruction" in text.lower() or "prompt" in text.lower():
            return Answer(f"```\n{_improved(_shown(text), chosen)}\n```")
        return Answer("\n".join(f"- {one.text}" for one in chosen))

    def _chosen(self, pool: Sequence[Habit], count: int, draw: Key) -> list[Habit]:
        left, chosen = list(pool), []
        for i in range(min(count, len(left))):
            sees, which = draw.child("proposal", i).uniforms(2)
            good = [one for one in left if one.effect > 0] if sees < self.insight else []
            among = good or left
            chosen.append(among[int(which * len(among))])
            left.remove(chosen[-1])
        return chosen


class _Proposing(Filler):
    def __init__(self, chosen: Sequence[Habit], categories: Sequence[str], shown: str) -> None:
        self.chosen, self.categories, self.shown = chosen, categories, shown

    def length(self, place: Place) -> int:
        """As many as were drawn."""
        return len(self.chosen)

    def text(self, place: Place) -> str | None:
        """By the name of the place."""
        habit = self._habit(place)
        name = place.name.lower()
        if any(name.startswith(one) for one in _SAYS_INSTRUCTIONS):
            return _improved(self.shown, self.chosen)
        if habit is None:
            return None
        if "categor" in name:
            return self._category(habit, self.categories)
        if "replace" in name:
            return None
        if any(one in name for one in _SAYS_HABIT):
            return habit.text
        return "It should help." if "reason" in name or "why" in name else habit.text

    def choice(self, place: Place, options: list[Any]) -> Any:
        """The habit's category, where that is asked for."""
        habit = self._habit(place)
        if habit is not None and "categor" in place.name.lower():
            return self._category(habit, options)
        return options[0]

    def _habit(self, place: Place) -> Habit | None:
        where = next((part for part in place.path if isinstance(part, int)), 0)
        return self.chosen[where] if where < len(self.chosen) else None

    @staticmethod
    def _category(habit: Habit, listed: Sequence[Any]) -> str:
        for name in (habit.category, "any", "all", ""):
            if name in listed and (name or habit.category == name):
                return name
        return str(listed[0]) if listed else habit.category or "any"


def _shown(text: str) -> str:
    """The instructions in a question: all lines of its `~~~` fences, else its first fence."""
    fences = list(_FENCED.finditer(text))
    tildes = [one[1].strip() for one in fences if one[1] is not None]
    if tildes:
        rows = "\n".join(one for one in tildes if one != "(none)").splitlines()
        return "\n".join(dict.fromkeys(rows))
    return fences[0][2].strip() if fences else ""


def _improved(shown: str, chosen: Sequence[Habit]) -> str:
    return "\n".join([shown, *(one.text for one in chosen[:1])]).strip()
