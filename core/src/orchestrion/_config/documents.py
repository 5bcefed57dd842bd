"""Reads YAML 1.2 and TOML into nodes, with the line of every value.

YAML is built from the parser's events: scalars follow the core schema of YAML 1.2 (`1e-3` is a
number, `no` a word), a duplicate key is a problem, and aliases cannot grow without bound.
"""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

from attrs import define, field

from orchestrion._config.nodes import (
    BROKEN,
    MAX_DEPTH,
    MAX_NODES,
    Node,
    Problems,
    Source,
    at_index,
    at_key,
)
from orchestrion._suggest import article

__all__ = ["MAX_BYTES", "from_plain", "read_toml", "read_yaml", "scalar"]

MAX_BYTES: Final = 1 << 20

_BOOLS = {
    w: b for b, ws in ((True, "true True TRUE"), (False, "false False FALSE")) for w in ws.split()
}
_NULLS = {"", "~", "null", "Null", "NULL"}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
_ENV = "${env:"
_ENV_HINT = '; a value with ${env:NAME} must stand in quotes: "${env:NAME}"'


class _Stop(Exception):
    """The document cannot be read any further."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line


def scalar(text: str) -> Any:
    """An unquoted scalar by the core schema of YAML 1.2.

    Raises:
        ValueError: a number that is too large.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"the number {text[:40]} is too large")
        return number
    if special := _SPECIAL.fullmatch(text):
        return float("nan") if "n" in text[1:2].lower() else float(f"{special[1] or ''}inf")
    return text


def _integer(text: str) -> int:
    bases = {"0o": 8, "0x": 16}
    number = int(text, bases.get(text[:2], 10)) if len(text) <= 40 else 1 << 64
    return _bounded(number, text)


def _bounded(number: int, text: str) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"the integer {text[:40]} does not fit in 64 bits")
    return number


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text with half of a surrogate pair") from None
    return text


def from_plain(
    value: Any, source: Source, line: int | None = None, depth: int = 0, path: str = ""
) -> Node:
    """Plain data as nodes that all have the same place.

    A class stands for its import path, as `use` names it.

    Raises:
        ValueError: something that cannot stand in a config; says where.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"{_before(path)}key {wrong[0]!r} is not text")
        items = {
            _text(k): from_plain(v, source, line, depth + 1, at_key(path, k))
            for k, v in value.items()
        }
        return Node(items, source, line)
    if isinstance(value, (list, tuple)):
        nodes = [
            from_plain(v, source, line, depth + 1, at_index(path, i)) for i, v in enumerate(value)
        ]
        return Node(nodes, source, line)
    if isinstance(value, str):
        return Node(_text(value), source, line)
    if isinstance(value, (datetime.date, datetime.time)):
        return Node(value.isoformat(), source, line)
    if isinstance(value, int) and not isinstance(value, bool):
        return Node(_bounded(value, str(value.bit_length()) + " bits long"), source, line)
    if value is None or isinstance(value, (bool, float)):
        return Node(value, source, line)
    if isinstance(value, type):
        return Node(_import_path(value, path), source, line)
    raise ValueError(
        f"{_before(path)}{article(type(value).__name__)} cannot stand in a config; it holds "
        "numbers, texts, lists and mappings. A component of your own is given by its class, and "
        "its fields beside it: {'use': MyAgent, 'size': 3}"
    )


def _before(path: str) -> str:
    return f"{path}: " if path else ""


def _import_path(cls: type, path: str) -> str:
    """ "module:Class", by which a later process finds the class."""
    name = cls.__qualname__
    if "<locals>" in name:
        raise ValueError(
            f"{_before(path)}the class {name} is made inside a function, so that nothing can "
            "import it; define it at the top of a module"
        )
    return f"{cls.__module__}:{name}"


# ------------------------------------------------------------------------------ YAML


def read_yaml(text: str, source: Source, problems: Problems) -> Node | None:
    """The document as nodes, or None if a problem kept it from being read."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _Composer(source, problems).compose(YAML(typ="safe", pure=True).parse(text))
    except _Stop as exc:
        problems.add(Node(None, source, exc.line), "", str(exc))
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = mark.line + 1 if mark is not None else None
        message = f"not valid YAML: {exc.problem or exc.context}"
        if exc.context and exc.problem:
            message += f" ({exc.context})"
        lines = text.splitlines()
        if line and _ENV in "".join(lines[max(0, line - 2) : line]):
            message += _ENV_HINT
        problems.add(Node(None, source, line), "", message)
    except (YAMLError, ValueError, RecursionError) as exc:
        problems.add(Node(None, source), "", f"not valid YAML: {_first_line(exc)}")
    # The parser has odd corners, in which it raises whatever its own code runs into.
    except (TypeError, AttributeError, IndexError, KeyError, AssertionError) as exc:
        problems.add(Node(None, source), "", f"not valid YAML ({type(exc).__name__} in the parser)")
    return None


def _first_line(exc: BaseException) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0]


@define
class _Frame:
    """An open mapping or list: the key that waits for its value, and what `<<` names."""

    node: Node
    key: tuple[str, int] | None = None
    merging: bool = False
    merged: list[Node] = field(factory=list)


class _Composer:
    """Turns parser events into nodes, without recursion."""

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source, self.problems = source, problems
        self.stack: list[_Frame] = []
        self.anchors: dict[str, Node] = {}
        self.count = 0

    def compose(self, events: Any) -> Node:
        root: Node | None = None
        for event in events:
            name, line = type(event).__name__, event.start_mark.line + 1
            if name == "DocumentStartEvent" and root is not None:
                raise _Stop(line, "a config is one YAML document, this is the second")
            node = self._node(name, event, line)
            if node is not None and not self._keyed(node, event, line):
                self._place(node)
                root = root or node
                if name in ("MappingStartEvent", "SequenceStartEvent"):
                    self.stack.append(_Frame(node))
                    if len(self.stack) > MAX_DEPTH:
                        raise _Stop(line, f"more than {MAX_DEPTH} levels deep")
            elif name in ("MappingEndEvent", "SequenceEndEvent"):
                self._close(self.stack.pop())
        return root if root is not None else Node(None, self.source, 1)

    def _node(self, name: str, event: Any, line: int) -> Node | None:
        """A new node for an event that begins one."""
        self.count += 1
        if self.count > MAX_NODES:
            raise _Stop(line, f"more than {MAX_NODES} values; are aliases nested in aliases?")
        if name == "AliasEvent":
            return self._alias(event.anchor, line)
        if name == "ScalarEvent":
            node = Node(self._scalar(event, line), self.source, line)
        elif name == "MappingStartEvent":
            node = Node({}, self.source, line)
        elif name == "SequenceStartEvent":
            node = Node([], self.source, line)
        else:
            return None
        if name != "ScalarEvent" and event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            self.problems.add(node, "", f"tag {event.tag} is not supported")
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _scalar(self, event: Any, line: int) -> Any:
        tag = event.tag
        place = Node(None, self.source, line)
        if tag not in (None, "!") and tag.removeprefix(_TAG) not in (
            "str",
            "int",
            "float",
            "bool",
            "null",
        ):
            self.problems.add(place, "", f"tag {tag} is not supported")
            return BROKEN
        try:
            quoted = event.style is not None or tag in ("!", f"{_TAG}str")
            return _text(event.value) if quoted else scalar(_text(event.value))
        except ValueError as exc:
            self.problems.add(place, "", str(exc))
            return BROKEN

    def _alias(self, anchor: str, line: int) -> Node:
        node = self.anchors.get(anchor)
        if node is None:
            raise _Stop(line, f"alias *{anchor} refers to no anchor above it")
        if any(node is frame.node for frame in self.stack):
            raise _Stop(line, f"alias *{anchor} refers to what it is a part of")
        return self._copy(node, line, len(self.stack))

    def _copy(self, node: Node, line: int, depth: int) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise _Stop(line, f"more than {MAX_NODES} values; are aliases nested in aliases?")
        if depth > MAX_DEPTH:
            raise _Stop(line, f"more than {MAX_DEPTH} levels deep")
        value = node.value
        if isinstance(value, dict):
            value = {key: self._copy(child, line, depth + 1) for key, child in value.items()}
        elif isinstance(value, list):
            value = [self._copy(child, line, depth + 1) for child in value]
        return Node(value, node.source, node.line)

    def _keyed(self, node: Node, event: Any, line: int) -> bool:
        """Take a node as the key of the open mapping, if a key is due there."""
        frame = self.stack[-1] if self.stack else None
        if frame is None or not isinstance(frame.node.value, dict):
            return False
        if frame.key is not None:
            return False
        key = node.value
        if isinstance(key, (dict, list)):
            raise _Stop(line, "a key must be text")
        if not isinstance(key, str):
            if key is not BROKEN:
                self.problems.add(node, "", f"key {key!r} is not text: put it in quotes")
            key = str(getattr(event, "value", key))
        # In quotes it is a key like any other.
        frame.merging = key == "<<" and getattr(event, "style", "") is None
        if key in frame.node.value or (frame.merging and frame.merged):
            first = frame.node.value[key].line if key in frame.node.value else frame.node.line
            self.problems.add(node, "", f"key {key!r} stands here twice, first in line {first}")
        frame.key = (key, line)
        return True

    def _place(self, node: Node) -> None:
        """Put a node into the open mapping or list."""
        if not self.stack:
            return
        frame = self.stack[-1]
        if isinstance(frame.node.value, list):
            frame.node.value.append(node)
        elif frame.merging:
            frame.merged.append(node)
            frame.key, frame.merging = None, False
        elif frame.key is not None:
            key, node.line = frame.key
            frame.node.value[key] = node
            frame.key = None

    def _close(self, frame: _Frame) -> None:
        """Merge what `<<` names below the mapping's own keys."""
        for merge in frame.merged:
            for source in merge.value if isinstance(merge.value, list) else [merge]:
                if not isinstance(source.value, dict):
                    self.problems.add(merge, "", "'<<' merges mappings only")
                    continue
                for key, child in source.value.items():
                    frame.node.value.setdefault(key, child)


# ------------------------------------------------------------------------------ TOML


def read_toml(text: str, source: Source, problems: Problems) -> Node | None:
    """The document as nodes, or None if a problem kept it from being read."""
    import tomllib

    try:
        data = tomllib.loads(text)
        node = from_plain(data, source, 1)
    except tomllib.TOMLDecodeError as exc:
        at = re.search(r"at line (\d+)", str(exc))
        place = Node(None, source, int(at[1]) if at else None)
        problems.add(place, "", f"not valid TOML: {_first_line(exc)}")
        return None
    except (ValueError, RecursionError) as exc:
        problems.add(Node(None, source), "", f"not valid TOML: {_first_line(exc)}")
        return None
    _set_lines(node, _toml_lines(text), "", 1)
    return node


_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _toml_lines(text: str) -> dict[str, int]:
    """Lines by config path. tomllib has none; tables and keys at the start of a line will do."""
    lines: dict[str, int] = {}
    arrays: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.match(line):
            table = _dotted("", match[2], arrays)
            if match[1] == "[[":
                arrays[table] = arrays.get(table, -1) + 1
                lines.setdefault(table, number)
                table = f"{table}[{arrays[table]}]"
            lines.setdefault(table, number)
        elif match := _KEY.match(line):
            lines.setdefault(_dotted(table, match[1], arrays), number)
    return lines


def _dotted(path: str, keys: str, arrays: dict[str, int]) -> str:
    parts = re.findall(r""""[^"]*"|'[^']*'|[\w-]+""", keys)
    for index, key in enumerate(parts):
        path = at_key(path, key.strip("\"'"))
        if path in arrays and index < len(parts) - 1:
            path = f"{path}[{arrays[path]}]"
    return path


def _set_lines(node: Node, lines: dict[str, int], path: str, inherited: int) -> None:
    node.line = lines.get(path, inherited)
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            _set_lines(child, lines, at_key(path, key), node.line)
    elif isinstance(node.value, list):
        for index, child in enumerate(node.value):
            _set_lines(child, lines, f"{path}[{index}]", node.line)
