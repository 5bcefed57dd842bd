"""Fenced blocks of the documentation, in order, as tests run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """One fenced block: its page, line, language, words after the language, and text."""

    page: str
    line: int
    language: str
    info: str
    text: str

    @property
    def file(self) -> str:
        """The file that the fence names, as in "```yaml team.yaml", or ""."""
        return next((word for word in self.info.split() if "." in word), "")


class Command(NamedTuple):
    """A line after `$ `, and the output shown under it."""

    line: str
    shown: str


def pages() -> list[Path]:
    """Every page: the README, docs/ and the READMEs of the members."""
    members = [ROOT / "README.md", *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    found = {*members, *(ROOT / "docs").rglob("*.md")}
    visible = (path for path in found if path.relative_to(ROOT).parts[0][0] != ".")
    return sorted(path for path in visible if path.is_file())


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text[: match.start()].count("\n") + 1
        name = str(page.relative_to(ROOT))
        yield Block(name, line, match[1], match[2].strip(), match[3])


def commands(block: Block) -> list[Command]:
    """The commands of a console block."""
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], ""))
        elif found:
            found[-1] = Command(found[-1].line, f"{found[-1].shown}{line}\n")
    return found


def matches(shown: str, printed: str) -> bool:
    """Whether what was printed is what is shown; `...` stands for anything, also lines."""
    pattern = ".*?".join(re.escape(part.strip()) for part in shown.strip().split("..."))
    # Runs of spaces are layout.
    squeeze = re.compile(r"[ \t]+")
    pattern = re.sub(r"(\\ )+", r"\\ ", pattern)
    return re.fullmatch(pattern, squeeze.sub(" ", printed.strip()), re.S) is not None
