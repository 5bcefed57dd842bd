"""What the tests know about the repository: its members, files and imports."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dev
from dev import ROOT

__all__ = [
    "ROOT",
    "Import",
    "Member",
    "distributions_of",
    "files",
    "imports",
    "members",
    "python_files",
    "tree_of",
]

_NOT_INSTALLED = {"mlflow": ("mlflow-skinny",)}
"""Distributions of extras whose modules have other names."""
_SKIPPED = {"__pycache__", "build", "dist"}


class Member:
    """One distribution of the workspace, as its files declare it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder.relative_to(ROOT).as_posix()
        self.text = (folder / "pyproject.toml").read_text(encoding="utf-8")
        self.data: dict[str, Any] = tomllib.loads(self.text)
        self.project: dict[str, Any] = self.data["project"]
        self.name: str = self.project["name"]
        module = self.data.get("tool", {}).get("flit", {}).get("module", {})
        self.package: str = module.get("name", self.name)
        self.source = folder / "src" / self.package

    def __repr__(self) -> str:
        return self.path

    @property
    def is_core(self) -> bool:
        return self.path == "core"

    @property
    def requirements(self) -> list[Requirement]:
        return [Requirement(text) for text in self.project.get("dependencies", [])]

    @property
    def extras(self) -> list[Requirement]:
        groups = self.project.get("optional-dependencies", {})
        return [Requirement(text) for group in groups.values() for text in group]

    @property
    def readme(self) -> str:
        return (self.folder / "README.md").read_text(encoding="utf-8")

    def declares(self, distributions: Iterable[str], *, extras: bool = True) -> bool:
        """Whether one of these distributions is a dependency."""
        declared = self.requirements + (self.extras if extras else [])
        names = {canonicalize_name(requirement.name) for requirement in declared}
        return any(canonicalize_name(name) in names for name in distributions)


class Import(NamedTuple):
    """One import statement: what it names, where, and whether importing the file runs it."""

    module: str
    line: int
    at_import: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


@cache
def members() -> tuple[Member, ...]:
    return tuple(Member(found.folder) for found in dev.read_workspace().members)


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the repository, committed or not yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = (ROOT / name for name in listed.stdout.split("\0") if name)
        return tuple(sorted(path for path in set(paths) if path.is_file()))
    return tuple(sorted(_walk(ROOT)))  # an unpacked archive


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        hidden_folder = path.name.startswith(".") and path.name != ".ci"
        if path.is_dir() and path.name not in _SKIPPED and not hidden_folder:
            yield from _walk(path)
        elif path.is_file() and path.suffix != ".pyc" and not path.name.endswith(".lock"):
            yield path


def python_files(folder: Path) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.is_relative_to(folder)]


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


@cache
def imports(file: Path) -> list[Import]:
    """The absolute imports of a file, without those that only a type checker sees."""
    found: list[Import] = []

    def visit(node: ast.AST, at_import: bool) -> None:
        if isinstance(node, ast.If) and _is_for_types(node.test):
            for other in node.orelse:
                visit(other, at_import)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, at_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append(Import(node.module, node.lineno, at_import))
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # which holds no import
                visit(child, at_import and not inside)

    visit(tree_of(file), at_import=True)
    return found


def _is_for_types(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


@cache
def distributions_of(module: str) -> tuple[str, ...]:
    """The distributions that supply a top-level module; those of extras need not be installed."""
    own = {member.package: member.name for member in members()}
    if module in own:
        return (own[module],)
    return tuple(_third_party().get(module) or _NOT_INSTALLED.get(module, (module,)))


@cache
def _third_party() -> Mapping[str, list[str]]:
    return packages_distributions()  # which reads the list of files of all that is installed
