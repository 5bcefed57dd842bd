"""Find the solutions of the task code-review by the text of a problem."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrion_code_review_agents import Script

__all__ = ["blocks_of_code", "script_in", "worth_of"]

_CODE = re.compile(r"^[ >]{0,5}(`{3,})(?:python|py)[^\n`]*\n(.*?)^[ >]{0,5}\1", re.M | re.S)


def script_in(text: str) -> Script | None:
    """Return the right and wrong solutions of the last problem in a text; None if none is known.

    Raises:
        ValueError: the task that has them is not installed.
    """
    try:
        from orchestrion_code_review_agents import script_in as known_script_in
    except ImportError:
        raise ValueError(
            "the speaker `coder` needs the task: pip install 'orchestrion-offline[code]'"
        ) from None
    return known_script_in(text)


def worth_of(text: str) -> float:
    """Return what the last code in a text is worth: 1 if it is right, 0.5 if nobody knows."""
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
    """Return the fenced blocks of Python, each with the position of its end."""
    return [(match.end(), match[2]) for match in _CODE.finditer(text)]
