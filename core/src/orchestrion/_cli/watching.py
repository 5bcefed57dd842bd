"""What models write, on the terminal as it comes: whole lines, each with who says it."""

from __future__ import annotations

import sys

from orchestrion._cli.streams import visible
from orchestrion._secrets import begun, hidden

__all__ = ["Watch"]


class Watch:
    """Shows the pieces of answers on standard error.

    Whoever writes first has the current line, and is shown letter by letter; what others write
    beside that is kept back until they end a line, so that no line has two authors. Control
    characters are shown as such. What may be the beginning of a secret waits for the rest.
    """

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        """What each has said since the last end of a line that is shown."""
        self._waiting: dict[str, str] = {}
        """The end of what each has said, where that may be the beginning of a secret."""
        self._at = ""
        """Whose line the cursor is on; empty at the beginning of one."""
        self._said: dict[str, list[str]] = {}

    def __call__(self, who: str, piece: str) -> None:
        """A piece of what somebody says."""
        text = hidden(self._waiting.pop(who, "") + piece)
        safe = len(text) - begun(text)
        if safe < len(text):
            self._waiting[who] = text[safe:]
        self._show(who, text[:safe])

    def _show(self, who: str, piece: str) -> None:
        if not piece:
            return
        self._said.setdefault(who, []).append(piece)
        if self._at in ("", who):
            self._write(who, self._kept.pop(who, "") + piece)
            return
        text = self._kept.get(who, "") + piece
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._break()
            self._write(who, lines + newline)
        self._kept[who] = rest

    def _write(self, who: str, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._out(visible(line) if self._at else f"[{who}] {visible(line)}")
            self._at = "" if line.endswith("\n") else who

    def _break(self) -> None:
        if self._at:
            self._out("\n")
            self._at = ""

    def _out(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)

    def end(self, who: str = "") -> str:
        """Show what one, and whoever works inside it, still has to say; by default everybody.

        Returns what that one said in all.
        """
        for name in [name for name in self._waiting if _within(name, who)]:
            self._show(name, self._waiting.pop(name))
        for name in [name for name in self._kept if _within(name, who)]:
            kept = self._kept.pop(name)
            if kept:
                if self._at != name:
                    self._break()
                self._write(name, kept)
        if _within(self._at, who):
            self._break()
        return "".join(self._said.pop(who, ()))


def _within(name: str, who: str) -> bool:
    return not who or name == who or name.startswith(f"{who} > ")
