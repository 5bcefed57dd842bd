"""Show what models write while they write it, each line with its author."""

from __future__ import annotations

import sys

from orchestrion._cli.streams import visible
from orchestrion._secrets import hidden, partial_secret


class Watch:
    """Shows the pieces of answers on standard error.

    The first author of a line is shown piece by piece; what others write meanwhile is held back
    until they end a line. Text that may be the beginning of a secret waits for the rest.
    """

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        """By author: text that is not shown yet."""
        self._author = ""
        """The author of the current line; empty at the beginning of a line."""
        self._pieces: dict[str, list[str]] = {}
        """By author: all pieces so far."""

    def __call__(self, who: str, piece: str) -> None:
        self._pieces.setdefault(who, []).append(piece)
        text = hidden(self._kept.get(who, "") + piece)
        shown = len(text) - partial_secret(text)
        if self._author not in ("", who):
            shown = text.rfind("\n", 0, shown) + 1
            if shown:
                self._break()
        self._write(who, text[:shown])
        self._kept[who] = text[shown:]

    def _write(self, who: str, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._out(visible(line) if self._author else f"[{who}] {visible(line)}")
            self._author = "" if line.endswith("\n") else who

    def _break(self) -> None:
        if self._author:
            self._out("\n")
            self._author = ""

    def _out(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)

    def end(self, who: str = "") -> str:
        """Show what is held back of an author and its nested team, or of all; return its text."""
        names = [name for name in self._kept if _within(name, who)]
        for name in sorted(names, key=lambda name: name != self._author):
            text = self._kept.pop(name)
            if text:
                if self._author != name:
                    self._break()
                self._write(name, text)
        if _within(self._author, who):
            self._break()
        return hidden("".join(self._pieces.pop(who, ())))


def _within(name: str, who: str) -> bool:
    return not who or name == who or name.startswith(f"{who} > ")
