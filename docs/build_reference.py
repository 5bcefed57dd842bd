"""Writes docs/reference/ from signatures, docstrings and settings.

python dev.py python docs/build_reference.py           # write
python dev.py python docs/build_reference.py --check   # exit with 1 if something is out of date
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orchestrion
from orchestrion import _components as supplied
from orchestrion import _errors as errors
from orchestrion import _hookspecs as hookspecs
from orchestrion import _interfaces as interfaces
from orchestrion import _keys as keys
from orchestrion import _records as records
from orchestrion._config.components import shaper_of
from orchestrion._config.nodes import OMIT
from orchestrion._config.plain import Dumper
from orchestrion._config.sections import BASELINE_KEYS
from orchestrion._config.shapes import (
    Anything,
    Choice,
    Fixed,
    Items,
    Record,
    Ref,
    Scalar,
    Setting,
    Shape,
    Shaper,
    Table,
    Variants,
)
from orchestrion._plugins import Found, Plugins
from orchestrion._suggest import article
from orchestrion.config import Baseline, Budget, Evaluation, Limits, RunSettings

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- written by docs/build_reference.py -->\n"


def hooks() -> str:
    """Every hook with its exact signature."""
    lines = [
        "# Hooks",
        "",
        "A plugin implements what it needs, decorated with `hookimpl`; an implementation may take",
        "fewer arguments than the spec has. A misspelt hook is an error that names the nearest.",
    ]
    names = [name for name in vars(hookspecs) if name.startswith("orchestrion_")]
    for name in names:
        function = getattr(hookspecs, name)
        # Annotations stay strings: heavy names are imported for type checkers only.
        parameters = ", ".join(
            f"{parameter.name}: {parameter.annotation}"
            for parameter in inspect.signature(function).parameters.values()
        )
        returns = function.__annotations__["return"]
        lines += ["", f"## {name}", "", "```python norun", f"def {name}({parameters}) -> {returns}"]
        lines += ["```", "", inspect.getdoc(function) or ""]
    return "\n".join(lines) + "\n"


def sections() -> str:
    """The plain sections of a config."""
    shaper = shaper_of(Plugins())
    lines = [
        "# Config: the plain sections",
        "",
        "`seed` (a whole number, 0 by default) is the root of all randomness of a run.",
        "`include` is a file or a list of files, relative to the one that names them; of several,",
        "later ones win.",
        "All other sections define components, see [components](components.md).",
    ]
    for name, cls in (
        ("limits", Limits),
        ("budget", Budget),
        ("run", RunSettings),
        ("evaluation", Evaluation),
    ):
        lines += ["", f"## {name}", "", _first_sentence(cls), "", *_table(shaper, cls, True)]
    return "\n".join(lines) + "\n"


def components() -> str:
    """Every component of the distributions in this repository, with its settings."""
    plugins = Plugins()
    shaper = shaper_of(plugins)
    lines = ["# Components", "", "What the distributions of this repository supply, by kind."]
    for kind in plugins.kinds().values():
        found = [component for component in plugins.components(kind.name) if _ours(component)]
        if found:
            lines += ["", f"## Kind {kind.name}", "", f"Config section `{kind.section}`."]
        for component in found:
            cls = plugins.component_class(component)
            origin = component.plugin.distribution
            lines += [
                "",
                f"### {component.component.name}",
                "",
                f"From `{origin}`: {_summary(component)}.",
                "",
            ]
            lines += list(_prose(cls))
            lines += _table(shaper, cls, True)
    return "\n".join(lines) + "\n"


def protocols() -> str:
    """Every protocol and record: fields, methods and what their docstrings say."""
    lines = [
        "# Interfaces and records",
        "",
        "What components implement, what they are handed, how a plugin names them, and errors:",
        "all is imported from `orchestrion`, but `TurnStatus` from `orchestrion._records`, and",
        "`Fault` from `orchestrion._errors`. A field with a value may be left out; so may an",
        "optional method, if its class subclasses the protocol.",
        "[Concepts](../concepts.md) tells how the parts work together, [hooks](hooks.md) how a",
        "plugin supplies them.",
    ]
    modules = {
        "Interfaces": interfaces,
        "Records": records,
        "Randomness": keys,
        "What a plugin supplies": supplied,
        "Errors": errors,
    }
    for heading, module in modules.items():
        lines += ["", f"## {heading}"]
        if module is errors:
            lines += ["", "```text", *(inspect.getdoc(errors) or "").splitlines()[2:], "```"]
        tree = ast.parse(inspect.getsource(module))
        for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            lines += list(_public(node, after))
    lines += ["", *META]
    return "\n".join(lines) + "\n"


META = """\
## Limits of settings

### Meta

`Annotated[int, Meta(ge=1)]` on a field of a component says which values a config may give; they
are checked when it is read, and stand in its JSON Schema.

- `ge`, `gt`, `le`, `lt`: bounds of a number.
- `multiple_of`: what a number is a multiple of.
- `min_length`, `max_length`: of a text, a list or a mapping.
- `pattern`: a regular expression that a text contains.""".splitlines()


def _public(node: ast.stmt, after: ast.stmt | None) -> Iterator[str]:
    """A section on a class, a function or an alias that the module exports."""
    name = getattr(node, "name", "")
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
    if name not in orchestrion.__all__:
        return
    yield from ("", f"### {name}", "")
    if isinstance(node, ast.ClassDef):
        yield from _described(ast.get_docstring(node))
        yield from _members(node)
    elif isinstance(node, ast.FunctionDef):
        yield from ("```python norun", *_signature(node), "```", "")
        yield from _described(ast.get_docstring(node))
    else:
        yield from ("```python norun", _code(node), "```")
        if said := _literal(after):
            yield from ("", said)


def _members(cls: ast.ClassDef) -> Iterator[str]:
    """The fields of a class in one block, then its methods."""
    protocol = "Protocol" in map(ast.unparse, cls.bases)
    fields = []
    for node, after in zip(cls.body, [*cls.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign | ast.Assign):
            line = _code(node)
            if line[0] != "_":
                text = _literal(after)
                fields.append(f"{line}  # {text}" if text else line)
    if fields:
        yield from ("", "```python norun", *fields, "```")
    for node in cls.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            optional = "Optional. " if protocol and not _abstract(node) else ""
            yield from ("", "```python norun", *_signature(node), "```", "")
            yield from _described(optional + (ast.get_docstring(node) or ""))


def _abstract(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the method is a docstring and `...`: a subclass gets nothing by it."""
    return _code(node.body[-1]) == "..."


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The first line of a function, on several lines where one would be long."""
    property_ = any(_code(decorator) == "property" for decorator in node.decorator_list)
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = _code(node.returns) if node.returns else "None"
    line = f"{word} {node.name}({_code(node.args)}) -> {returns}"
    lines = ["@property"] if property_ else []
    if len(line) <= 100:
        return [*lines, line]
    parts = [f"    {decorator}," for decorator in _arguments(node.args)]
    return [*lines, f"{word} {node.name}(", *parts, f") -> {returns}"]


def _arguments(args: ast.arguments) -> Iterator[str]:
    """The parameters one by one, as they are written."""
    required = len(args.args) - len(args.defaults)
    for i, argument in enumerate(args.args):
        default = f" = {_code(args.defaults[i - required])}" if i >= required else ""
        yield _code(argument) + default
    if args.kwonlyargs:
        yield "*"
    for argument, value in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield _code(argument) + (f" = {_code(value)}" if value else "")


def _described(doc: str | None) -> Iterator[str]:
    """A docstring in Google style as Markdown: what it lists becomes a list."""
    inside = False
    for line in (doc or "").splitlines():
        if line in ("Args:", "Raises:"):
            inside = True
            if line == "Raises:":
                yield from ("Raises:", "")
        elif inside and (item := re.match(r"    (\w+): (.*)", line)):
            yield f"- `{item[1]}`: {item[2]}"
        elif inside and line.startswith("    "):
            yield "  " + line.strip()
        else:
            inside = False if line else inside
            yield line


def _code(node: ast.AST) -> str:
    """The source of a node, quoted as everywhere else."""
    return ast.unparse(node).replace("'", '"')


def _literal(node: ast.stmt | None) -> str:
    """The text of a string that stands alone, as after a field."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value) if isinstance(node.value.value, str) else ""
    return ""


def _ours(found: Found) -> bool:
    return found.plugin.distribution.startswith("orchestrion-")


def _summary(found: Found) -> str:
    return found.component.summary.rstrip(".")


def _first_sentence(cls: type) -> str:
    return (inspect.getdoc(cls) or "").split("\n\n")[0]


def _prose(cls: type) -> Iterator[str]:
    """The docstring up to its list of arguments."""
    text = (inspect.getdoc(cls) or "").partition("\nArgs:")[0].strip()
    if text:
        yield from text.splitlines()
        yield ""


def _table(shaper: Shaper, cls: type, wired: bool) -> list[str]:
    settings = shaper.settings(cls, wired)
    if not settings:
        return ["No settings."]
    rows = ["| setting | value | default | |", "| --- | --- | --- | --- |"]
    for setting in settings:
        learnable = " *Learnable.*" if setting.learnable else ""
        cells = (
            f"`{setting.name}`",
            _expected(setting.shape),
            _default(setting),
            f"{setting.help}{learnable}",
        )
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    plain = Dumper(Shaper(), {}).default(setting)
    return "" if plain is OMIT else f"`{_short(plain)}`"


def _short(value: Any) -> str:
    import json

    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text"}


def _expected(shape: Shape) -> str:
    """What a shape allows, in words."""
    limits = [
        f"{word} {value}"
        for meta in shape.limits
        for name, word in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if (value := getattr(meta, name, None)) is not None
    ]
    return _base(shape) + (", " + ", ".join(limits) if limits else "")


def _base(shape: Shape) -> str:
    match shape:
        case Scalar(type=kind):
            return _WORDS.get(kind, "null" if kind is type(None) else "path")
        case Choice(values=values):
            return " or ".join(f"`{value}`" for value in values)
        case Items(item=item):
            return f"list of {_expected(item)}"
        case Fixed(items=items):
            return "list of " + ", then ".join(map(_expected, items))
        case Table(item=item):
            return f"mapping to {_expected(item)}"
        case Record(cls=cls):
            names = [setting.name for setting in Shaper().settings(cls)]
            return f"mapping ({', '.join(BASELINE_KEYS if cls is Baseline else names)})"
        case Ref(kind=kind):
            return article(kind)
        case Variants(members=members):
            return " or ".join(map(_expected, members))
        case Anything():
            return "anything"
    return type(shape).__name__


PAGES = {
    "hooks.md": hooks,
    "config.md": sections,
    "components.md": components,
    "interfaces.md": protocols,
}


def main(check: bool) -> int:
    """Write the pages, or compare them."""
    stale = []
    for name, page in PAGES.items():
        text, path = NOTE + page(), HERE / name
        if check and (not path.exists() or path.read_text() != text):
            stale.append(name)
        elif not check:
            HERE.mkdir(exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"docs/reference/{name} is out of date: python dev.py python {Path(__file__).name}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
