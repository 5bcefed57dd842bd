"""What speakers read in a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from orchestrion import JSON

__all__ = ["asked_text", "last_text", "mentioned", "system_text", "words"]

_WORD = re.compile(r"[^\W_]+")


def system_text(request: Mapping[str, JSON]) -> str:
    """The instructions: all system messages."""
    return "\n".join(_contents(request, ("system",)))


def asked_text(request: Mapping[str, JSON]) -> str:
    """All that is said besides the instructions, in order."""
    return "\n".join(_contents(request, ("user", "assistant", "tool")))


def last_text(request: Mapping[str, JSON]) -> str:
    """What the last message says."""
    messages: Sequence[Any] = request["messages"]
    return str(messages[-1].get("content") or "") if messages else ""


def _contents(request: Mapping[str, JSON], roles: Sequence[str]) -> list[str]:
    return [
        str(message.get("content") or "")
        for message in request["messages"]
        if message.get("role") in roles
    ]


@lru_cache(maxsize=4096)
def words(text: str) -> str:
    """A text as words alone, with a blank on either side, so that phrases can be looked up."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def mentioned(phrase: str, text: str) -> bool:
    """Whether a text has a phrase, whatever its case, punctuation and line breaks."""
    return words(phrase) in words(text)
