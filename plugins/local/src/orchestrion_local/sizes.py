"""Numbers of bytes, read and written."""

from __future__ import annotations

from typing import Annotated

from orchestrion import Meta

_UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
Size = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?)?B$")]


def parse_size(text: str) -> int:
    """Return the bytes of a size like "40 GB", which is the same as "40 GiB"."""
    number = text.rstrip("KMGTiB ")
    return int(float(number) * _UNITS[text[len(number) :].strip().replace("i", "")])


def size_text(size: float) -> str:
    """Return a number of bytes for people."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"
