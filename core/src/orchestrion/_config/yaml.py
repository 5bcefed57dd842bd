"""Reads YAML 1.2 into nodes and writes plain data as YAML, both with ruamel.yaml.

Three things differ from ruamel's defaults. Scalars follow the core schema of YAML 1.2 exactly
(`1_000` and `2020-01-01` are text). Every duplicate key is reported, not only the first. Aliases
become copies, whose number has a limit.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.representer import SafeRepresenter
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.tag import Tag

from orchestrion._config.documents import checked_text, scalar
from orchestrion._config.nodes import BROKEN, MAX_DEPTH, MAX_NODES, Node, Problems, Source

_TAG = "tag:yaml.org,2002:"
_NO_TAG = "?"
_SCALAR_TAGS = {_NO_TAG, *(_TAG + name for name in ("str", "int", "float", "bool", "null"))}
_BREAKS = re.compile("[\x85\u2028\u2029]")
_ENV_HINT = '; a value with ${env:NAME} must stand in quotes: "${env:NAME}"'


class _Stop(Exception):
    """The document cannot be read any further: (line, message)."""


class _ExplicitTags(VersionedResolver):
    """Leaves values without a written tag untagged; `scalar` decides what they are."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        return Tag(suffix=_NO_TAG)


def read_yaml(text: str, source: Source, problems: Problems) -> Node | None:
    """Return the document as nodes, or None if a problem keeps it from being read."""
    line: int | None = None
    if hidden := _BREAKS.search(text):
        # They are text in YAML 1.2, and for ruamel the end of a comment: what follows in the line
        # would become a part of the config.
        line, code = text.count("\n", 0, hidden.start()) + 1, f"{ord(hidden[0]):04X}"
        message = f'U+{code} is an invisible line break: remove it, or write "\\u{code}"'
        problems.add(Node(None, source, line), "", message)
        return None
    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver, yaml.max_depth = _ExplicitTags, MAX_DEPTH
    yaml.composer.warn_double_anchors = False  # YAML allows it: the nearest one above counts
    try:
        documents = list(yaml.compose_all(text))
        if not documents:
            return Node(None, source, 1)
        if len(documents) == 1:
            return _Converter(source, problems).node(documents[0])
        line = _line(documents[1]) if documents[1] is not None else None
        message = "a config is one YAML document, this is the second"
    except _Stop as exc:
        line, message = exc.args
    except MarkedYAMLError as exc:
        line, message = _syntax_problem(exc, text)
    except ReaderError as exc:
        line = text.count("\n", 0, text.find(chr(exc.character))) + 1
        message = f"not valid YAML: {str(exc).splitlines()[0]}"
    except (YAMLError, ValueError, RecursionError) as exc:
        message = f"not valid YAML: {(str(exc).splitlines() or [type(exc).__name__])[0]}"
    # The parser has odd corners, in which it raises whatever its own code runs into.
    except (TypeError, AttributeError, IndexError, KeyError, AssertionError) as exc:
        message = f"not valid YAML ({type(exc).__name__} in the parser)"
    problems.add(Node(None, source, line), "", message)
    return None


def _syntax_problem(exc: MarkedYAMLError, text: str) -> tuple[int | None, str]:
    mark = exc.problem_mark or exc.context_mark
    line = mark.line + 1 if mark is not None else None
    if isinstance(exc, MaxDepthExceededError):
        message = f"more than {MAX_DEPTH} levels deep"
    else:
        message = f"not valid YAML: {exc.problem or exc.context}"
        if exc.context and exc.problem:
            message += f" ({exc.context})"
    if line and "${env:" in "".join(text.splitlines()[max(0, line - 2) : line]):
        message += _ENV_HINT
    return line, message


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


class _Converter:
    """Converts ruamel's nodes to ours; notes what a config cannot hold."""

    def __init__(self, source: Source, problems: Problems) -> None:
        self.source, self.problems = source, problems
        self.above: list[Any] = []  # the collections that the present node stands in
        self.count = 0

    def node(self, given: Any) -> Node:
        """Return a node and all below it; raise `_Stop` if it is circular, too deep or large."""
        line = _line(given)
        self.count += 1
        if self.count > MAX_NODES:
            raise _Stop(line, f"more than {MAX_NODES} values; are aliases nested in aliases?")
        if any(given is node for node in self.above):
            raise _Stop(line, f"alias *{given.anchor} refers to what it is a part of")
        node = Node(None, self.source, line)
        if isinstance(given, ScalarNode):
            node.value = self._scalar(given, node)
            return node
        if given.tag not in (_NO_TAG, f"{_TAG}map", f"{_TAG}seq"):
            self.problems.add(node, "", f"tag {given.tag} is not supported")
        self.above.append(given)
        if len(self.above) > MAX_DEPTH:
            raise _Stop(line, f"more than {MAX_DEPTH} levels deep")
        if isinstance(given, MappingNode):
            node.value = self._mapping(given)
        else:
            node.value = [self.node(item) for item in given.value]
        self.above.pop()
        return node

    def _mapping(self, given: Any) -> dict[str, Node]:
        """Return the values by key; each has the line of its key."""
        values: dict[str, Node] = {}
        lines: dict[str, int] = {}
        merged: list[Node] = []
        for key_node, value_node in given.value:
            key, line = self._key(key_node), _line(key_node)
            if key in lines:
                text = f"key {key!r} stands here twice, first in line {lines[key]}"
                self.problems.add(Node(None, self.source, line), "", text)
            lines.setdefault(key, line)
            value = self.node(value_node)
            if key == "<<" and key_node.style is None:  # in quotes it is a key like any other
                merged += value.value if isinstance(value.value, list) else [value]
            else:
                value.line = line
                values[key] = value
        for node in merged:
            if not isinstance(node.value, dict):
                self.problems.add(node, "", "'<<' merges mappings only")
            for key, value in node.names.items():
                values.setdefault(key, value)
        return values

    def _key(self, given: Any) -> str:
        if not isinstance(given, ScalarNode):
            raise _Stop(_line(given), "a key must be text")
        node = self.node(given)
        if isinstance(node.value, str):
            return node.value
        if node.value is not BROKEN:
            self.problems.add(node, "", f"key {node.value!r} is not text: put it in quotes")
        return str(given.value)

    def _scalar(self, given: Any, place: Node) -> Any:
        if given.tag not in _SCALAR_TAGS:
            self.problems.add(place, "", f"tag {given.tag} is not supported")
            return BROKEN
        try:
            text = checked_text(given.value)
            return text if given.style is not None or given.tag == f"{_TAG}str" else scalar(text)
        except ValueError as exc:
            self.problems.add(place, "", str(exc))
            return BROKEN


# ------------------------------------------------------------------------------ writing

_WIDTH = 88
_WORDS = r"[A-Za-z_][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*"


class _Representer(SafeRepresenter):
    """Puts collections inside a document on one line if they are short; quotes all but words."""

    document: Any = None

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        # Only what is plain beyond doubt: ruamel writes `:0` so that nobody can read it again.
        bare = re.fullmatch(_WORDS, data) and isinstance(scalar(data), str)
        style = None if bare else "|" if _is_block(data) else '"'
        return self.represent_scalar(f"{_TAG}str", data, style=style)

    def represent_collection(self, data: Any) -> Any:
        short = not data or (
            data is not self.document and len(json.dumps(data, ensure_ascii=False)) < _WIDTH - 20
        )
        if isinstance(data, dict):
            return self.represent_mapping(f"{_TAG}map", data, flow_style=short)
        return self.represent_sequence(f"{_TAG}seq", data, flow_style=short)


_Representer.add_representer(str, _Representer.represent_str)
_Representer.add_representer(dict, _Representer.represent_collection)
_Representer.add_representer(list, _Representer.represent_collection)


def _is_block(text: str) -> bool:
    """Return whether text can stand as a block, as it is."""
    return (
        "\n" in text
        and text[:1].strip() != ""
        and not text.endswith("\n\n")
        and all(line.isprintable() for line in text.split("\n"))
    )


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return plain data as YAML 1.2 text; `load` reads the same data from it."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer, yaml.width = _Representer, 1 << 30
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
    text, document = io.StringIO(), dict(data)
    yaml.representer.document = document
    yaml.dump(document, text)
    return text.getvalue()
