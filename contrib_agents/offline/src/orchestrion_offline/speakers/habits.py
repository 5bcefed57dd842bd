"""Change the skill of a speaker by sentences in its instructions, and propose such sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import JSON, Key, Meta
from orchestrion_offline.interfaces import Answer, Speaker
from orchestrion_offline.reading import (
    Filler,
    Slot,
    asked_text,
    fill,
    form_of,
    mentioned,
    system_text,
)

Share = Annotated[float, Meta(ge=0, le=1)]


@frozen
class Habit:
    """A sentence that changes the skill of a speaker whose instructions have it.

    Args:
        text: the sentence; case, punctuation and line breaks do not matter.
        effect: added to the skill; negative if it harms, 0 if it is useless.
        category: the kind of step or level that it is for; "" for all.
    """

    text: str
    effect: Annotated[float, Meta(ge=-1, le=1)] = 0.0
    category: str = ""


HABITS: tuple[Habit, ...] = (
    Habit("Write the previous value down again before you use it.", 0.06),
    Habit("Multiply digit by digit, then add the parts.", 0.12, "products"),
    Habit("Write the three digits apart before you move them.", 0.12, "digits"),
    Habit("Answer at once and never check a result.", -0.12),
    Habit("Round large numbers before you go on.", -0.2, "sums"),
    Habit("Skip the multiplication when the numbers look large.", -0.3, "products"),
    Habit("Be polite and friendly."),
    Habit("Use a confident tone."),
    Habit("Keep the layout neat."),
)
"""Helpful, harmful and useless habits, the defaults of `solver` and `coach`."""


def effective(
    skills: Mapping[str, float],
    default: float,
    category: str,
    habits: Sequence[Habit],
    instructions: str,
    about: str = "",
) -> float:
    """Return the chance of success: the skill for a category, changed by the instructions.

    Args:
        skills: by category.
        default: for categories without an entry in `skills`.
        category: of the present step.
        habits: the sentences that change the skill.
        instructions: of the speaker. A line that begins with `When the problem is about C:` counts
            for problems of category C only.
        about: the category of the problem.
    """
    skill = skills.get(category, default)
    relevant = [habit for habit in habits if habit.effect and habit.category in ("", category)]
    if relevant:
        text = _lines_for(instructions, about)
        skill += sum(habit.effect for habit in relevant if mentioned(habit.text, text))
    return min(max(skill, 0.0), 1.0)


_WHEN = re.compile(r"\W*when the problem is about ([\w -]+):", re.I)


@lru_cache(maxsize=4096)
def _lines_for(instructions: str, category: str) -> str:
    """Return the instructions without the lines for other categories."""
    kept = []
    for line in instructions.splitlines():
        match = _WHEN.match(line)
        if match is None or match[1].strip().lower() == category.lower():
            kept.append(line)
    return "\n".join(kept)


# ---------------------------------------------------------------- coach

_AT_MOST = re.compile(r"\bat most (\d+)")
_LISTED = re.compile(r"^Categories: (.+)$", re.M)
_FENCED = re.compile(r"^~~~[^\n]*\n(.*?)^~~~", re.M | re.S)


@frozen
class Coach(Speaker):
    """Proposes habits from a pool, none that the question already shows.

    It answers in the form that the question asks for: a JSON Schema, or JSON as in an example.
    Asked for instructions, it returns those in the question with one habit more. A plain text is a
    list.

    Args:
        pool: the habits to draw from; `effect` says which ones help, and no answer tells it.
        proposals: how many at a time, unless the question asks for fewer.
        insight: the chance that a proposal is drawn from the helpful habits alone.
    """

    pool: tuple[Habit, ...] = field(default=HABITS)
    proposals: Annotated[int, Meta(ge=0, le=50)] = 2
    insight: Share = 0.0

    def say(self, request: Mapping[str, JSON], draw: Key) -> Answer:
        text = asked_text(request)
        limits = [int(number) for number in _AT_MOST.findall(f"{system_text(request)}\n{text}")]
        fresh = [habit for habit in self.pool if not mentioned(habit.text, text)]
        chosen = self._choose(fresh, min([self.proposals, *limits]), draw)
        form = form_of(request)
        if form is not None:
            improved = "\n".join([_instructions_in(text), *(h.text for h in chosen[:1])]).strip()
            listed = _LISTED.findall(text)
            categories = [name.strip() for name in listed[-1].split(",")] if listed else []
            return Answer(fill(form, _Proposals(chosen, categories, improved)))
        return Answer("\n".join(f"- {habit.text}" for habit in chosen))

    def _choose(self, pool: Sequence[Habit], count: int, draw: Key) -> list[Habit]:
        left, chosen = list(pool), []
        for i in range(min(count, len(left))):
            informed, which = draw.child("proposal", i).uniforms(2)
            helpful = [habit for habit in left if habit.effect > 0]
            options = helpful if informed < self.insight and helpful else left
            chosen.append(options[int(which * len(options))])
            left.remove(chosen[-1])
        return chosen


@frozen
class _Proposals(Filler):
    chosen: Sequence[Habit]
    categories: Sequence[str]
    improved: str

    def length(self, slot: Slot) -> int:
        return len(self.chosen)

    def text(self, slot: Slot) -> str | None:
        habit, name = self._habit(slot), slot.name.lower()
        if name.startswith(("instructions", "prompt", "system_prompt")):
            return self.improved
        if habit is None or "replace" in name:
            return None
        if "categor" in name:
            return _category(habit, self.categories)
        return "It should help." if "reason" in name or "why" in name else habit.text

    def choice(self, slot: Slot, options: list[Any]) -> Any:
        habit = self._habit(slot)
        if habit is not None and "categor" in slot.name.lower():
            return _category(habit, options)
        return options[0]

    def _habit(self, slot: Slot) -> Habit | None:
        index = next((part for part in slot.path if isinstance(part, int)), 0)
        return self.chosen[index] if index < len(self.chosen) else None


def _category(habit: Habit, options: Sequence[Any]) -> str:
    for name in (habit.category, "any", "all", ""):
        if name in options and (name or habit.category == name):
            return name
    return str(options[0]) if options else habit.category or "any"


def _instructions_in(text: str) -> str:
    """Return the lines of all `~~~` fences in a question, each once."""
    fences = [fence.strip() for fence in _FENCED.findall(text)]
    lines = "\n".join(fence for fence in fences if fence != "(none)").splitlines()
    return "\n".join(dict.fromkeys(lines))
