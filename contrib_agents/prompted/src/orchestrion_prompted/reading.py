"""Strict readings of a response: the whole text, a tag's content, a box's content."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Form", "read"]

Form = Literal["text", "tag", "boxed"]
_BOX = re.compile(r"\\boxed\s*\{")


def read(text: str, form: Form, tag: str = "") -> str | None:
    """What a response says; None if it cannot be read.

    The last tag or box counts: models correct themselves.
    """
    if form == "text":
        return text
    if form == "tag":
        found = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", text, re.DOTALL)
        return found[-1].strip() if found else None
    starts = list(_BOX.finditer(text))
    return _braced(text, starts[-1].end()) if starts else None


def _braced(text: str, start: int) -> str | None:
    """The text from `start` to the brace that closes the one before it."""
    depth = 1
    for i in range(start, len(text)):
        if text[i] == "{" and text[i - 1] != "\\":
            depth += 1
        elif text[i] == "}" and text[i - 1] != "\\":
            depth -= 1
            if not depth:
                return text[start:i].strip()
    return None
