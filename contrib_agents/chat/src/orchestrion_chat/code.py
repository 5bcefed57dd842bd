"""Find code in a model's answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from attrs import frozen

_OPEN = re.compile(r"[ ]{0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*")
_PYTHON = ("python", "python3", "py")


@frozen
class _Block:
    """A fenced block: its first and last line, and what stands between."""

    first: int
    last: int
    language: str
    lines: tuple[str, ...]


def code_in(text: str) -> str | None:
    """Return the code in a text; None if there is none.

    This is its last fenced block of Python; else the last block without a language; else the whole
    text, if it is a program that defines something. An unclosed block reaches to the end.
    """
    blocks = [block for block in _blocks(text.splitlines()) if any(map(str.strip, block.lines))]
    for languages in (_PYTHON, ("",)):
        matching = [block for block in blocks if block.language in languages]
        if matching:
            return "\n".join(matching[-1].lines) + "\n"
    return text.strip() + "\n" if not blocks and _is_program(text) else None


def quoted(text: str) -> str:
    """Return the text with indented instead of fenced blocks."""
    lines = text.splitlines()
    out: list[str] = []
    start = 0
    for block in _blocks(lines):
        out += lines[start : block.first]
        out += [f"    {line}".rstrip() for line in block.lines]
        start = block.last + 1
    return text if not start else "\n".join([*out, *lines[start:]])


def _blocks(lines: list[str]) -> Iterator[_Block]:
    number = 0
    while number < len(lines):
        opened = _OPEN.fullmatch(lines[number])
        if opened is None:
            number += 1
            continue
        fence, first = opened[1], number
        closing = re.compile(rf"[ ]{{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*")
        inside: list[str] = []
        number += 1
        while number < len(lines) and not closing.fullmatch(lines[number]):
            inside.append(lines[number])
            number += 1
        last = min(number, len(lines) - 1)
        yield _Block(first, last, opened[2].lower(), tuple(inside))
        number += 1


def _is_program(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
