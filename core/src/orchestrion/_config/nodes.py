"""Holds a config as it was written: plain values, each with the place it came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 48


class Mark(Enum):
    """Values that stand for values that are not there."""

    BROKEN = "a value in a file; its problem is reported, and it causes no further one"
    FAILED = "a value that could not be converted; its problem is reported"
    OMIT = "a setting that a config cannot express; left out, it has its default"


BROKEN, FAILED, OMIT = Mark


class Source(NamedTuple):
    """A file or an override that values come from; relative paths start at `directory`."""

    name: str
    directory: Path


class Node(Struct, eq=False):
    """A value and its place."""

    value: Any  # a scalar, a list of nodes, or a dict of str to nodes
    source: Source  # the file or override it stands in
    line: int | None = None  # counted from 1
    raw: str | None = None  # the text before `${env:NAME}` was expanded in it

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}" if self.line else self.source.name

    @property
    def names(self) -> Mapping[str, Node]:
        """Return the nodes by key; none if this is not a mapping."""
        return self.value if isinstance(self.value, dict) else {}

    def child(self, key: str) -> Node | None:
        """Return the node under a key, or None if this is not a mapping that has it."""
        return self.names.get(key)

    def children(self, path: str) -> list[tuple[str, Node]]:
        """Return the nodes inside this one, which is at `path`, with their paths."""
        if isinstance(self.value, list):
            return [(at_index(path, index), node) for index, node in enumerate(self.value)]
        return [(at_key(path, key), node) for key, node in self.names.items()]

    def plain(self) -> Any:
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
        place = str(node) if node is not None else ""
        # An override is named by its path already.
        parts = (place, "" if place == f"-o {path}" else path, message)
        self = super().__new__(cls, ": ".join(filter(None, parts)))
        self.file = node.source.name if node is not None else ""
        self.line = node.line if node is not None else None
        self.path, self.message = path, message
        return self


class Problems:
    """Collects problems, so that all of them are reported at once."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, node: Node | None, path: str, message: str) -> None:
        """Note a problem of the value at `path`, once."""
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
    for inner_path, child in node.children(path):
        yield from walk(child, inner_path)


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


def value_at(config: Any, path: str) -> Any:
    """Return the value at a config path of plain data; None if there is none."""
    for segment in parse_path(path) or [path]:
        try:
            config = config[segment]
        except (KeyError, IndexError, TypeError):
            return None
    return config


def flat(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a config as plain data, each with its path, as `-o` takes them."""
    if isinstance(config, Mapping) and config:
        for key, item in config.items():
            yield from flat(item, at_key(path, str(key)))
    elif isinstance(config, list) and any(isinstance(item, (dict, list)) for item in config):
        for index, item in enumerate(config):
            yield from flat(item, at_index(path, index))
    else:
        yield path, config


def _next_key(mapping: Mapping[str, Node], segments: list[str | int]) -> tuple[str, int]:
    """Return the key that a path begins with, and of how many segments; a key may hold dots."""
    for count in range(len(segments), 1, -1):
        key = ".".join(map(str, segments[:count]))
        if key in mapping and all(isinstance(segment, str) for segment in segments[:count]):
            return key, count
    return str(segments[0]), 1


def without_nulls(root: Node) -> Node:
    """Return a tree without the sections that are null, which leaves them out."""
    value = {
        section: node
        for section, node in root.names.items()
        if node.value is not None or section == "seed"
    }
    return Node(value, root.source, root.line)


def without(node: Node, segments: Sequence[str | int]) -> Node:
    """Return a copy of the tree without what is at a path of keys."""
    first, rest = str(segments[0]), segments[1:]
    value = {
        key: without(child, rest) if rest and key == first else child
        for key, child in node.names.items()
        if rest or key != first
    }
    return Node(value, node.source, node.line, node.raw)


def replaced(node: Node, segments: list[str | int], new: Node, path: str = "") -> Node:
    """Return a copy of the tree with another node at a path; missing mappings are made."""
    if len(segments) > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels deep")
    if not segments:
        return new
    first = segments[0]
    value: Any
    if isinstance(first, int):
        if not isinstance(node.value, list):
            raise ValueError(f"{path} is not a list, so it has no element [{first}]")
        if first >= len(node.value):
            raise ValueError(f"{path} has {len(node.value)} elements, so there is no [{first}]")
        value = list(node.value)
        value[first] = replaced(value[first], segments[1:], new, at_index(path, first))
    else:
        value = {} if node.value is None else node.value
        if not isinstance(value, dict):
            hint = ""
            if isinstance(value, list) and value:
                index = int(first) if first.isdecimal() and int(first) < len(value) else 0
                hint = f"; write {path}[{index}]"
            raise ValueError(f"{path} is not a mapping, so it has no {first!r}{hint}")
        key, count = _next_key(value, segments)
        rest = segments[count:]
        below = value.get(key) or Node({} if rest else None, new.source, new.line)
        value = {**value, key: replaced(below, rest, new, at_key(path, key))}
    return Node(value, node.source, node.line, node.raw)
