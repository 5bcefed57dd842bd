"""How good a speaker is at something, and what instructions do to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from attrs import frozen

from orchestrion import Meta
from orchestrion_offline.reading import mentioned

__all__ = ["HABITS", "Habit", "Share", "effective"]

Share = Annotated[float, Meta(ge=0, le=1)]


@frozen
class Habit:
    """A sentence that changes how good a speaker is if its instructions have it.

    Args:
        text: the sentence; case, punctuation and line breaks do not matter.
        effect: what it adds to the skill; negative if it harms, 0 if it is of no use.
        category: only for this kind of step or level; "" for all.
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
"""Helpful, harmful and useless ones, for `solver` and `coach` alike."""


def effective(
    skills: Mapping[str, float],
    default: float,
    category: str,
    habits: Sequence[Habit],
    instructions: str,
    about: str = "",
) -> float:
    """How likely it goes well: the skill for a category, and what the instructions add.

    Args:
        skills: by category.
        default: for those that `skills` does not name.
        category: of what is to be done now.
        habits: sentences that change the skill.
        instructions: what the speaker is told. A line that begins with `When the problem is about
            C:` counts for problems of the category C only.
        about: the problem's category.
    """
    skill = skills.get(category, default)
    known = [one for one in habits if one.effect and one.category in ("", category)]
    if known:
        told = _applying(instructions, about)
        skill += sum(one.effect for one in known if mentioned(one.text, told))
    return min(max(skill, 0.0), 1.0)


_WHEN = re.compile(r"\W*when the problem is about ([\w -]+):", re.I)


@lru_cache(maxsize=4096)
def _applying(instructions: str, about: str) -> str:
    """The instructions without the lines that are for other problems."""
    kept = []
    for line in instructions.splitlines():
        found = _WHEN.match(line)
        if found is None or found[1].strip().lower() == about.lower():
            kept.append(line)
    return "\n".join(kept)
