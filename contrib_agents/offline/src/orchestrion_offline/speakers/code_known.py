"""The solutions of the task code-review, found by the text of a problem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from orchestrion_offline.reading import words

if TYPE_CHECKING:
    from orchestrion_code_review_agents.stage import Script

__all__ = ["blocks_of_code", "script_in", "worth_of"]

_CODE = re.compile(r"^[ >]{0,5}(`{3,})(?:python|py)[^\n`]*\n(.*?)^[ >]{0,5}\1", re.M | re.S)
_COMPOSED = re.compile(r"Take a list of whole numbers\. First (.+?)\. At last (.+?)\.\s", re.S)


def script_in(text: str) -> Script | None:
    """The right and wrong solutions of the last problem that a text shows; None if none is known.

    Raises:
        ValueError: the task that has them is not installed.
    """
    try:
        from orchestrion_code_review_agents.stage import script_of
    except ImportError:
        raise ValueError(
            "the speaker `coder` needs the task: pip install 'orchestrion-offline[code]'"
        ) from None
    from orchestrion import Problem

    name = _composed(text) or _builtin(text)
    return script_of(Problem(name)) if name else None


def worth_of(text: str) -> float:
    """What the last code in a text is worth: 1 if it is the right one; a half if nobody knows."""
    try:
        script = script_in(text)
    except ValueError:
        return 0.5
    if script is None:
        return 0.5
    code = blocks_of_code(text)
    if not code:
        return 0.0
    return 1.0 if script.is_right(code[-1][1]) else 0.25


def blocks_of_code(text: str) -> list[tuple[int, str]]:
    """The fenced blocks of Python, each with where it ends."""
    return [(match.end(), match[2]) for match in _CODE.finditer(text)]


@cache
def _statements() -> Sequence[tuple[str, str]]:
    from orchestrion_code_review.suite_files import builtin

    return [(words(one.text), one.id) for one in builtin()]


def _builtin(text: str) -> str:
    shown = words(text)
    found = [(shown.rfind(statement), name) for statement, name in _statements()]
    place, name = max(found, default=(-1, ""))
    return name if place >= 0 else ""


def _composed(text: str) -> str:
    """The id of a composed problem, from its sentence."""
    from orchestrion_code_review.blocks import ENDS, STEPS

    found = _COMPOSED.findall(text)
    if not found:
        return ""
    steps, end = found[-1]
    said = {words(block.says): block.name for block in (*STEPS, *ENDS)}
    names = [said.get(words(one)) for one in (*steps.split(", then "), end)]
    return "composed/" + ".".join(one or "" for one in names) if all(names) else ""
