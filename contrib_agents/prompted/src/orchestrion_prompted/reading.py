"""Read a response strictly: the whole text, the content of a tag, or that of a box."""

from __future__ import annotations

import re
from typing import Literal

Form = Literal["text", "tag", "boxed"]
_BOX = re.compile(r"\\boxed\s*\{")


def read_response(text: str, form: Form, tag: str = "") -> str | None:
    r"""Return what a response says, or None if it does not have the form.

    The last tag or box counts, because models correct themselves.

    Args:
        text: the response.
        form: `text` for all of it, `tag` for the content of <TAG>..</TAG>, `boxed` for that of
            \boxed{..}.
        tag: the tag's name, for the form `tag`.
    """
    if form == "text":
        return text
    if form == "tag":
        contents = re.findall(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", text, re.DOTALL)
        return contents[-1].strip() if contents else None
    boxes = list(_BOX.finditer(text))
    return _braced(text, boxes[-1].end()) if boxes else None


def _braced(text: str, start: int) -> str | None:
    """Return the text from `start` to the brace that closes the one before `start`."""
    depth = 1
    for i in range(start, len(text)):
        if text[i] == "{" and text[i - 1] != "\\":
            depth += 1
        elif text[i] == "}" and text[i - 1] != "\\":
            depth -= 1
            if not depth:
                return text[start:i].strip()
    return None
