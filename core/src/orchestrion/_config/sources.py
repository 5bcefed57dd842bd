"""Builds one tree of nodes from files, includes and overrides."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from orchestrion._config.documents import MAX_BYTES
from orchestrion._config.environment import expand
from orchestrion._config.nodes import (
    Node,
    Problems,
    Source,
    parse_path,
    replaced,
    walk,
    without,
)
from orchestrion._config.yaml import read_yaml
from orchestrion._suggest import did_you_mean, listed

_MAX_INCLUDES = 64
_OPEN_ALREADY = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def read_tree(path: Path, environment: Mapping[str, str], problems: Problems) -> Node | None:
    """Return a config file with what it includes, or None if it cannot be read."""
    return _Reader(environment, problems).read(path, ())


class _Reader:
    def __init__(self, environment: Mapping[str, str], problems: Problems) -> None:
        self.environment, self.problems = environment, problems
        self.files = 0

    def read(self, path: Path, above: tuple[Path, ...], by: Node | None = None) -> Node | None:
        """Return a file merged over what it includes; `by` includes it, `above` are around it."""
        source = Source(str(path), path.parent)
        text, problem = _text(path, by is not None)
        if problem:
            place = Node(None, source) if by is None else by
            self.problems.add(place, "" if by is None else "include", problem)
            return None
        root = read_yaml(text, source, self.problems)
        if root is None:
            return None
        if not isinstance(root.value, dict):
            what = "is empty" if root.value is None else "must be a mapping of sections"
            self.problems.add(Node(None, source, root.line), "", f"a config {what}")
            return None
        # Variables in names of files are not expanded: a message may show these names.
        include = root.value.pop("include", None)
        expand(root, self.environment, self.problems)
        if include is None:
            return root
        files = [include] if isinstance(include.value, str) else include.value
        if not isinstance(files, list):
            self.problems.add(include, "include", "expected a list of files")
            return None  # what it would have included is not missing
        below: Node | None = None
        for item in files:
            included = self._include(item, path, (*above, _identity(path)))
            if included is not None:  # later files win over earlier ones
                below = included if below is None else merge(below, included)
        return root if below is None else merge(below, root)

    def _include(self, item: Node, path: Path, above: tuple[Path, ...]) -> Node | None:
        if not isinstance(item.value, str) or not item.value or "\0" in item.value:
            self.problems.add(item, "include", "expected the name of a file")
            return None
        file = path.parent / item.value
        self.files += 1
        if _identity(file) in above:
            chain = " -> ".join(p.name for p in (*above, _identity(file)))
            self.problems.add(item, "include", f"files include each other: {chain}")
        elif self.files > _MAX_INCLUDES:
            self.problems.add(item, "include", f"more than {_MAX_INCLUDES} files")
        else:
            return self.read(file, above, item)
        return None


def _text(path: Path, included: bool) -> tuple[str, str]:
    """Return the text of a file and "", or "" and why it cannot be read."""
    if path.suffix.lower() == ".toml":
        return "", f"{path} cannot be read: a config is YAML, and this is TOML"
    try:
        if included or str(path) not in _OPEN_ALREADY:
            mode = os.stat(path).st_mode
            if stat.S_ISDIR(mode):
                return "", f"{path} cannot be read: it is a folder"
            if not stat.S_ISREG(mode):  # opening a pipe may wait forever
                return "", f"{path} cannot be read: it is a pipe or device"
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            return "", f"{path} is larger than {MAX_BYTES >> 20} MiB"
        return data.decode("utf-8-sig"), ""
    except FileNotFoundError:
        return "", f"there is no file {path}"
    except UnicodeDecodeError as exc:
        return "", f"{path} is not UTF-8 (byte {exc.start})"
    except (OSError, ValueError) as exc:
        return "", f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}"


def _identity(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises where links form a circle


def merge(below: Node, above: Node) -> Node:
    """Return two trees as one: mappings are merged, other values are those of `above`.

    A mapping that `use`s another component is replaced too: its settings belong to the other.
    """
    if not (isinstance(below.value, dict) and isinstance(above.value, dict)):
        return above
    use, other = below.child("use"), above.child("use")
    if use is not None and other is not None and use.value != other.value:
        return above
    value = dict(below.value)
    for key, child in above.value.items():
        value[key] = merge(value[key], child) if key in value else child
    return Node(value, above.source, above.line)


def override(
    root: Node, overrides: Sequence[str], environment: Mapping[str, str], problems: Problems
) -> Node:
    """Return the tree after `a.b=c` overrides; values are YAML 1.2.

    null in place of a section, a named component or a baseline leaves it out.
    """
    for item in overrides:
        text = str(item)  # what is no text fails below, with the message that explains overrides
        source = Source(f"-o {text.partition('=')[0]}", Path.cwd())
        place = Node(None, source)
        path, equals, value = text.partition("=")
        segments = parse_path(path.strip())
        if not equals or segments is None:
            problems.add(place, "", "an override is PATH=VALUE, e.g. policy.hidden=[64]")
        elif segments[0] == "include":
            problems.add(place, "", "include cannot be overridden")
        else:
            node = read_yaml(value, source, problems)
            if node is None:
                continue
            expand(node, environment, problems)
            for _, inner in walk(node):
                inner.line = None  # within an override a line says nothing
            if node.value is None and _is_left_out(root, segments):
                root = without(root, segments)
                continue
            if node.value is None and (names := _names_beside(root, segments)):
                close = did_you_mean(str(segments[-1]), names) or f" (known: {listed(names)})"
                text = f"there is no {str(segments[-1])!r} that null could leave out{close}"
                problems.add(place, "", text)
                continue
            try:
                root = replaced(root, segments, node)
            except ValueError as exc:
                problems.add(place, "", str(exc))
    return root


def _is_left_out(root: Node, segments: Sequence[str | int]) -> bool:
    """Return whether a path is that of a section, a named component or a baseline."""
    node: Node | None = root
    for segment in segments:
        if node is None or "use" in node.names:  # settings of a component keep their null
            return False
        node = node.child(str(segment))
    return node is not None and isinstance(node.value, (dict, list))


def _names_beside(root: Node, segments: Sequence[str | int]) -> Collection[str]:
    """Return the names of the components or baselines among which a path names another one."""
    node: Node | None = root
    for segment in segments[:-1]:
        if node is None or "use" in node.names:
            return ()
        node = node.child(str(segment))
    if node is None or "use" in node.names or segments[-1] in node.names:
        return ()
    named = any("use" in child.names for child in node.names.values())
    return node.names if named or segments[:-1] == ["evaluation", "baselines"] else ()
