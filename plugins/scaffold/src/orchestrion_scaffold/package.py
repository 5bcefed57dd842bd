"""Writes the package that `orchestrion new` starts a plugin with: small, working, tested."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from shutil import rmtree
from string import Template
from typing import Final

from attrs import frozen

import orchestrion
from orchestrion import UsageError

KINDS: Final = ("agent", "task", "policy", "reward", "trainer")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RESERVED = {"plugin", "conformance", "example-agent", "example-task", "tests"}
# Names that the templates import; a class of that name would hide them.
_IMPORTED = {"Annotated", "Any", "AsyncIterator", "Iterator", "Sequence"}
_PLURALS = {"policy": "policies"}

_SUMMARIES: Mapping[str, str] = {
    "agent": "finds a word that stands twice in a row",
    "task": "asks which word stands twice in a row",
    "policy": "starts agents at random, then stops",
    "reward": "takes something off the verified score for every turn",
    "trainer": "tries values of a learnable setting and keeps the best",
}
_SETTINGS: Mapping[str, str] = {
    "agent": """\
| `ignore_case` | `false` | whether "The the" counts; learnable |
| `cost` | `1.0` | what one turn costs |""",
    "task": "| `limit` | `10` | how many problems of each split to use |",
    "policy": "| `turns` | `1` | how many agents act in one episode |",
    "reward": "| `turn_weight` | `0.1` | what a turn takes off |",
    "trainer": """\
| `path` | `""` | a learnable setting to try values for |
| `values` | `[true, false]` | the values, one an iteration |""",
}
_EXAMPLE = "\n        example={},  # values of required settings, which the checks need"
_EXAMPLES: Mapping[str, str] = {"agent": "Finder", "task": "DoubledWords"}
"""Classes of the components that example.yaml needs besides."""


@frozen
class Package:
    """Names of a new distribution, all derived from one."""

    kind: str
    name: str

    @classmethod
    def of(cls, kind: str, name: str) -> Package:
        """Check a name."""
        if name.startswith("orchestrion-"):
            raise UsageError(
                f"leave out 'orchestrion-': {name.removeprefix('orchestrion-')!r} becomes the "
                f"distribution {name!r} by itself"
            )
        if not _NAME.fullmatch(name) or len(name) > 50:
            raise UsageError(
                f"{name!r} cannot be the name of a plugin: use lower-case words of letters and "
                "digits with '-' between them, e.g. my-critic"
            )
        if keyword.iskeyword(name) or name in _RESERVED:
            raise UsageError(f"{name!r} is reserved; take another name")
        return cls(kind, name)

    @property
    def distribution(self) -> str:
        return f"orchestrion-{self.name}"

    @property
    def qualified(self) -> str:
        """Return the component's name in configs, which no other distribution can supply."""
        return f"{self.distribution}:{self.name}"

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def package(self) -> str:
        return f"orchestrion_{self.module}"

    @property
    def cls(self) -> str:
        name = "".join(word.capitalize() for word in self.name.split("-"))
        is_taken = name in orchestrion.__all__ or name in _IMPORTED or keyword.iskeyword(name)
        return name + self.kind.capitalize() if is_taken else name


def render(package: Package) -> dict[str, str]:
    """Return the files of a package, by path."""
    kind, name, qualified = package.kind, package.name, package.qualified
    source = f"src/{package.package}"
    major, minor = orchestrion.__version__.split(".")[:2]
    extra = {
        "reward": f"reward: {{use: {qualified}}}",
        "trainer": f"trainer: {{use: {qualified}, path: agents.finder.ignore_case, "
        "values: [false, true]}",
    }
    sequence = "policy: {use: sequence, steps: [finder]} # of orchestrion-basics"
    values = {
        "kind": kind,
        "name": name,
        "distribution": package.distribution,
        "package": package.package,
        "module": package.module,
        "cls": package.cls,
        "title": " ".join(name.split("-")).capitalize(),
        "article": "An" if kind == "agent" else "A",
        "summary": _SUMMARIES[kind],
        "sentence": f"It {_SUMMARIES[kind]}.",
        "floor": f"{major}.{minor}",
        "ceiling": f"{major}.{int(minor) + 1}",
        "verb": "train" if kind == "trainer" else "eval",
        "settings": _SETTINGS[kind],
        "task": qualified if kind == "task" else f"{qualified}-task",
        "agent": qualified if kind == "agent" else f"{qualified}-agent",
        "policy": f"policy: {{use: {qualified}}}" if kind == "policy" else sequence,
        "extra": extra.get(kind, "limits: {turns: 4}"),
        "hooks": _hooks(package),
    }
    templates = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "readme.md",
        "example.yaml": "example.yaml",
        f"{source}/__init__.py": "init.py",
        f"{source}/plugin.py": "plugin.py",
        f"{source}/{package.module}.py": f"{kind}.py",
        "tests/test_conformance.py": "test_conformance.py",
        f"tests/test_{package.module}.py": f"test_{kind}.py",
    }
    examples = {
        f"{source}/example_{role}.py": _fill(f"{role}.py", {"cls": cls})
        for role, cls in _EXAMPLES.items()
        if role != kind
    }
    filled = {path: _fill(template, values) for path, template in templates.items()}
    return {**filled, **examples, f"{source}/py.typed": ""}


def _hooks(package: Package) -> str:
    """Return the hook of the component, and those of what the example needs besides."""
    supplied = {package.kind: (package.name, package.module, package.cls, "")}
    for kind, cls in _EXAMPLES.items():
        names = (f"{package.name}-{kind}", f"example_{kind}", cls, "for example.yaml: ")
        supplied.setdefault(kind, names)
    hooks = []
    for kind, (name, module, cls, purpose) in supplied.items():
        values = {
            "kinds": _PLURALS.get(kind, f"{kind}s"),
            "component": name,
            "path": f"{package.package}.{module}:{cls}",
            "summary": f"{purpose}{_SUMMARIES[kind]}",
            "example": "" if purpose else _EXAMPLE,
        }
        hooks.append(_fill("hook", values))
    return "\n\n".join(hooks).rstrip()


def _fill(template: str, values: Mapping[str, str]) -> str:
    text = (files(__package__) / "templates" / f"{template}.tmpl").read_text("utf-8")
    return Template(text).substitute(values)


def write(package: Package, parent: Path) -> Path:
    """Write a package into a new folder below `parent`."""
    folder = parent / package.distribution
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        for place in (folder, parent):
            if place.is_symlink() and not place.exists():
                target = place.readlink()
                raise UsageError(f"{place} is a link to {target}, which is not there") from None
        raise UsageError(f"{folder} exists; nothing was written") from None
    except OSError as exc:
        raise UsageError(f"{folder} cannot be written: {exc.strerror}") from exc
    try:
        for path, text in render(package).items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    except OSError as exc:
        rmtree(folder, ignore_errors=True)
        raise UsageError(f"{folder} cannot be written: {exc.strerror}") from exc
    return folder
