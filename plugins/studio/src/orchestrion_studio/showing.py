"""How much of an episode a page shows, and in which form: bounded, whatever agents wrote."""

from __future__ import annotations

import json
import re
from typing import Any

from orchestrion_studio.contents import pretty, unified_diff

TEXT = 20_000
"""Limit of characters of one text."""
PAGE = 400_000
"""Limit of characters of all texts on a page; beyond it only the beginning of a text is shown."""
BEGINNING = 400
MARKDOWN, ALL_MARKDOWN = 8_000, 100_000
CODE = 150_000
"""Limit of characters that are highlighted."""
COMPARED, ALL_COMPARED = 4_000, 20_000
"""Limits of lines compared in two programs, and on a page: the time grows with their square."""
# Both take time in proportion to a text: the one always finds an end, the other looks at one line.
_FENCE = re.compile(r"(?ms)^(```|~~~).*?(^\1[ \t]*$|\Z)")
_MARKED = re.compile(r"(?m)^(#{1,6} |[ \t]*[-*+] |[ \t]*\d+[.)] |\|.*\|[ \t]*$)|\*\*\w|`\S")
_INDENTED = re.compile(r"(?m)^(?!\s|[-*+] |\d+[.)] ).*\n(    |\t)")
"""A line that begins with spaces right after one that does not: Markdown would join the two."""


class Showing:
    """Cuts the texts of one page, and says in which form each is shown.

    A shown text is `{text, form, size, cut, name}`: `size` in characters, as far as it is known;
    `name` says where the whole one is.
    """

    def __init__(self) -> None:
        self._left, self._markdown, self._code = PAGE, ALL_MARKDOWN, CODE
        self._compared = ALL_COMPARED

    def text(self, text: str, name: str) -> dict[str, Any]:
        """Show what an agent wrote: Markdown, JSON or plain text."""
        stripped = text.strip()
        if stripped[:1] in ("{", "[") and stripped[-1:] in ("}", "]") and len(text) <= TEXT:
            try:
                return self.json(json.loads(stripped), name)
            except (ValueError, RecursionError):
                pass
        shown = self._cut(text, name, "text")
        if len(shown["text"]) <= min(MARKDOWN, self._markdown) and _is_markdown(shown["text"]):
            self._markdown -= len(shown["text"])
            shown["form"] = "markdown"
        elif _INDENTED.search(shown["text"]):
            shown["form"] = "mono"
        return shown

    def plain(self, text: str, name: str) -> dict[str, Any]:
        """Show a text as it is."""
        return self._cut(text, name, "text")

    def json(self, data: Any, name: str) -> dict[str, Any]:
        """Show data; an empty text for None."""
        return self.code("" if data is None else pretty(data, TEXT), name, "json")

    def code(self, text: str, name: str, language: str = "python") -> dict[str, Any]:
        """Show code in colours, as long as there is not too much of it."""
        shown = self._cut(text, name, language)
        self._code -= len(shown["text"])
        if self._code < 0:
            shown["form"] = "text"
        return shown

    def difference(self, old: str, new: str, name: str) -> dict[str, Any]:
        """Show the lines that changed, or say that there are too many to compare."""
        before, after = old.splitlines(), new.splitlines()
        lines = len(before) + len(after)
        if lines > min(COMPARED, self._compared):
            return self.plain("(too long to be compared line by line)", name)
        self._compared -= lines
        return self.code(unified_diff(before, after), name, "diff")

    def _cut(self, text: str, name: str, form: str) -> dict[str, Any]:
        shown = text[: max(min(TEXT, self._left), BEGINNING)]
        self._left -= len(shown)
        cut = len(shown) < len(text)
        return {"text": shown, "form": form, "size": len(text), "cut": cut, "name": name}


def _is_markdown(text: str) -> bool:
    """Return whether a text reads better as Markdown; code, whose lines are indented, does not."""
    rest = _FENCE.sub("", text)
    return not _INDENTED.search(rest) and (rest != text or _MARKED.search(rest) is not None)
