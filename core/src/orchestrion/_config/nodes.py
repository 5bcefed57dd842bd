"""Holds a config as it was written: plain values, each with the place it came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen

__all__ = [
    "BROKEN",
    "Node",
    "Problem",
    "Problems",
    "Source",
    "at_index",
    "at_key",
    "parse_path",
    "replaced",
    "walk",
]

MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 48


class _Broken:
    def __repr__(self) -> str:
        return "BROKEN"


BROKEN: Final = _Broken()
"""Stands for a value whose problem is already reported; it causes no further problem."""


@frozen
class Source:
    """A file or an override that values come from; relative paths start at `directory`."""

    name: str
    directory: Path


@define(eq=False)
class Node:
    """A value and its place.

    Args:
        value: a scalar, a list of nodes, or a dict of str to nodes.
        source: the file or override it stands in.
        line: counted from 1.
        raw: the text before `${env:NAME}` was expanded in it, or None.
    """

    value: Any
    source: Source
    line: int | None = None
    raw: str | None = None

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}" if self.line else self.source.name

    def child(self, key: str) -> Node | None:
        """Return the node under a key, or None if this is not a mapping that has it."""
        child = self.value.get(key) if isinstance(self.value, dict) else None
        return child if isinstance(child, Node) else None

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


class Problem(str):
    """A mistake in a config; as text, a line with its place."""

    file: str
    line: int | None
    path: str
    message: str

    def __new__(cls, node: Node | None, path: str, message: str) -> Problem:
        place = f"{node}: " if node is not None else ""
        self = super().__new__(cls, f"{place}{path}: {message}" if path else f"{place}{message}")
        self.file = node.source.name if node is not None else ""
        self.line = node.line if node is not None else None
        self.path, self.message = path, message
        return self


@define
class Problems:
    """Collects problems, so that all of them are reported at once."""

    found: list[Problem] = field(factory=list)

    def add(self, node: Node | None, path: str, message: str) -> None:
        """Note a problem of the value at `path`."""
        problem = Problem(node, path, message)
        if problem not in self.found:
            self.found.append(problem)

    def in_order(self) -> list[Problem]:
        """Return them by file in the order of appearance, then by line."""
        files = list(dict.fromkeys(p.file for p in self.found))
        return sorted(self.found, key=lambda p: (files.index(p.file), p.line or 0))


def at_key(path: str, key: str) -> str:
    """Return the config path of a key of the mapping at `path`."""
    return f"{path}.{key}" if path else key


def at_index(path: str, index: int) -> str:
    """Return the config path of an element of the list at `path`."""
    return f"{path}[{index}]"


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield this node and every node below it, with their config paths."""
    yield path, node
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from walk(child, at_key(path, key))
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            yield from walk(child, at_index(path, index))


_SEGMENT = re.compile(r"(?:^|(?!^)\.)([^.\[\]=]+)|\[(\d{1,6})\]")


def parse_path(path: str) -> list[str | int] | None:
    """Return the keys and indices of a config path like `trainer[0].lr`, or None."""
    segments: list[str | int] = []
    position = 0
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None:
            return None
        key, index = match.groups()
        segments.append(key.strip() if key is not None else int(index))
        position = match.end()
    return segments if segments and isinstance(segments[0], str) and "" not in segments else None


def next_key(mapping: Mapping[str, Node], segments: list[str | int]) -> tuple[str, list[str | int]]:
    """Split the key that a path goes through from the rest of it; a key may hold dots."""
    for count in range(len(segments), 1, -1):
        key = ".".join(map(str, segments[:count]))
        if key in mapping and all(isinstance(segment, str) for segment in segments[:count]):
            return key, segments[count:]
    return str(segments[0]), segments[1:]


def replaced(node: Node, segments: list[str | int], new: Node, path: str = "") -> Node:
    """Return a copy of the tree with another node at a path; missing mappings are made.

    Raises:
        ValueError: the path leads through a value that has no such part.
    """
    if not segments:
        return new
    first, rest = segments[0], segments[1:]
    if isinstance(first, str):
        value = {} if node.value is None else node.value
        if not isinstance(value, dict):
            hint = ""
            if isinstance(value, list) and value:
                place = int(first) if first.isdecimal() and int(first) < len(value) else 0
                hint = f"; write {path}[{place}]"
            raise ValueError(f"{path} is not a mapping, so it has no {first!r}{hint}")
        first, rest = next_key(value, segments)
        below = value.get(first) or Node({} if rest else None, new.source, new.line)
        child = replaced(below, rest, new, at_key(path, first))
        return Node({**value, first: child}, node.source, node.line, node.raw)
    if not isinstance(node.value, list):
        raise ValueError(f"{path} is not a list, so it has no element [{first}]")
    if first >= len(node.value):
        raise ValueError(f"{path} has {len(node.value)} elements, so there is no [{first}]")
    items = list(node.value)
    items[first] = replaced(items[first], rest, new, at_index(path, first))
    return Node(items, node.source, node.line, node.raw)
