"""Converts plain data and unquoted YAML scalars to nodes and values."""

from __future__ import annotations

import re
from typing import Any, Final

from orchestrion._components import KINDS
from orchestrion._config.nodes import MAX_DEPTH, Node, Source, at_index, at_key
from orchestrion._suggest import article

MAX_BYTES: Final = 1 << 20

_WORDS = {"": None} | {
    spelling: value
    for word, value in (("true", True), ("false", False), ("null", None), ("~", None))
    for spelling in (word, word.capitalize(), word.upper())
}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def scalar(text: str) -> Any:
    """Return the value of an unquoted scalar by the core schema of YAML 1.2.

    `1e-3` is a number, `no` is text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return _bounded(int(text, base) if len(text) <= 40 else 1 << 64, text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"the number {text[:40]} is too large")
        return number
    if special := _SPECIAL.fullmatch(text):
        return float("nan") if "n" in text[1:2].lower() else float(f"{special[1] or ''}inf")
    return text


def _bounded(number: int, text: str) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"the integer {text[:40]} does not fit in 64 bits")
    return number


def checked_text(text: str) -> str:
    """Return text as it is; raise ValueError if half of a surrogate pair is in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text with half of a surrogate pair") from None
    return text


def from_plain(value: Any, source: Source, line: int | None = None) -> Node:
    """Return plain data as nodes that all have the same place.

    A class is replaced by its import path, which `use` accepts.
    """
    return Node(_nodes(value, Node(None, source, line), "", 0), source, line)


def _interface(path: str) -> str:
    """Return in brackets which methods a class of the section at a path has, if it has one."""
    section = re.split(r"[.\[]", path)[0]
    names = [kind.interface.partition(":")[2] for kind in KINDS if kind.section == section]
    return f" (with the methods of `{names[0]}`, see docs/python.md)" if names else ""


def _nodes(value: Any, place: Node, path: str, depth: int) -> Any:
    """Return a value with nodes for what is inside it."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels deep")

    def node(inner: Any, inner_path: str) -> Node:
        return Node(_nodes(inner, place, inner_path, depth + 1), place.source, place.line)

    before = f"{path}: " if path else ""
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"{before}key {wrong[0]!r} is not text")
        return {checked_text(key): node(item, at_key(path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [node(item, at_index(path, index)) for index, item in enumerate(value)]
    if isinstance(value, str):
        return checked_text(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return _bounded(value, f"{value.bit_length()} bits long")
    if not isinstance(value, type):
        raise ValueError(
            f"{before}{article(type(value).__name__)} cannot stand in a config; it holds "
            "numbers, texts, lists and mappings. Give a component of your own by its class"
            f"{_interface(path)}, with its settings beside it: {{'use': MyClass, 'size': 3}}"
        )
    name = value.__qualname__
    if "<locals>" in name:
        raise ValueError(
            f"{before}the class {name} is made inside a function, so it cannot be imported; "
            "define it at the top of a module"
        )
    return f"{value.__module__}:{name}"
