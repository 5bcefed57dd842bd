"""The versions of a program that a team brought, read from its turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from attrs import frozen

from orchestrion import Turn

__all__ = ["MOST_CODE", "Version", "code_of", "versions"]

MOST_CODE = 50_000
"""Characters of a version; a longer one is ignored."""
_FENCE = re.compile(
    r"^[ ]{0,3}(`{3,}|~{3,})[ ]*(\w*)[^\n`]*\n(.*?)^[ ]{0,3}\1[`~]*[ ]*$", re.M | re.S
)
_PYTHON = ("", "python", "python3", "py")


@frozen
class Version:
    """One version: which turn brought it, whose it is, and the code."""

    turn: int
    agent: str
    code: str


def versions(turns: Iterable[Turn]) -> tuple[Version, ...]:
    """Every version, in the order of the turns; failed turns bring none."""
    found = []
    for turn in turns:
        if turn.status == "completed" and (code := code_of(turn)) is not None:
            found.append(Version(turn.index, turn.agent, code))
    return tuple(found)


def code_of(turn: Turn) -> str | None:
    """The code a turn brings: `Output.data["code"]`, or else its last fenced block of Python."""
    data = turn.output.data
    code = data.get("code") if isinstance(data, Mapping) else None
    if not isinstance(code, str):
        blocks = [m[3] for m in _FENCE.finditer(turn.output.content) if m[2].lower() in _PYTHON]
        code = blocks[-1] if blocks else None
    return code if code is not None and _can_stand(code) else None


def _can_stand(code: str) -> bool:
    """Whether it is short enough, and text that can be stored."""
    try:
        code.encode()
    except UnicodeEncodeError:
        return False
    return bool(code.strip()) and len(code) <= MOST_CODE and "\0" not in code
