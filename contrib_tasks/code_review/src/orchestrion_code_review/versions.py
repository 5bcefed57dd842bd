"""Read the versions of a program from the turns of a team."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from attrs import frozen
from orchestrion_repair import digest_of

from orchestrion import Turn

MOST_CODE = 50_000
"""Characters of a version; a longer one is ignored."""
_FENCE = re.compile(
    r"^[ ]{0,3}(`{3,}|~{3,})[ ]*(\w*)[^\n`]*\n(.*?)^[ ]{0,3}\1[`~]*[ ]*$", re.M | re.S
)
_PYTHON = ("", "python", "python3", "py")


@frozen
class Version:
    """One version of the program.

    Args:
        turn: the index of its turn.
        agent: of the turn.
        code: the program.
    """

    turn: int
    agent: str
    code: str

    @property
    def digest(self) -> str:
        """The short name that reports about this version use."""
        return digest_of(self.code)


def versions_of(turns: Iterable[Turn]) -> tuple[Version, ...]:
    """Return every version, in the order of the turns; failed turns have none."""
    versions = []
    for turn in turns:
        if turn.status == "completed" and (code := code_of(turn)) is not None:
            versions.append(Version(turn.index, turn.agent, code))
    return tuple(versions)


def code_of(turn: Turn) -> str | None:
    """Return the code of a turn, or None if it has none that can be used.

    It is `Output.data["code"]`, or else the last fenced block of Python in the turn's text.
    """
    data = turn.output.data
    code = data.get("code") if isinstance(data, Mapping) else None
    if not isinstance(code, str):
        blocks = [m[3] for m in _FENCE.finditer(turn.output.content) if m[2].lower() in _PYTHON]
        code = blocks[-1] if blocks else None
    return code if code is not None and _is_usable(code) else None


def _is_usable(code: str) -> bool:
    """Return whether code is not empty, not too long, and can be stored as text."""
    try:
        code.encode()
    except UnicodeEncodeError:
        return False
    return bool(code.strip()) and len(code) <= MOST_CODE and "\0" not in code
