"""Writes docs/reference/ from signatures, docstrings and settings.

python dev.py python docs/build_reference.py           # write
python dev.py python docs/build_reference.py --check   # exit with 1 if something is out of date
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrion import hookspecs
from orchestrion.config.components import kind_of
from orchestrion.config.plain import OMIT, Dumper
from orchestrion.config.sections import Budget, Evaluation, Limits, RunSettings
from orchestrion.config.shapes import (
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
from orchestrion.plugins import Found, Plugins

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
            f"{one.name}: {one.annotation}"
            for one in inspect.signature(function).parameters.values()
        )
        returns = function.__annotations__["return"]
        lines += ["", f"## {name}", "", "```python norun", f"def {name}({parameters}) -> {returns}"]
        lines += ["```", "", inspect.getdoc(function) or ""]
    return "\n".join(lines) + "\n"


def sections() -> str:
    """The plain sections of a config."""
    shaper = Shaper()
    lines = [
        "# Config: the plain sections",
        "",
        "`seed` (a whole number, 0 by default) is the root of all randomness of a run.",
        "`include` is a list of files, relative to the one that names them; later ones win.",
        "All other sections define components, see [components](components.md).",
    ]
    for name, cls in (
        ("limits", Limits),
        ("budget", Budget),
        ("run", RunSettings),
        ("evaluation", Evaluation),
    ):
        lines += ["", f"## {name}", "", _first_sentence(cls), "", *_table(shaper, cls, False)]
    return "\n".join(lines) + "\n"


def components() -> str:
    """Every component of the distributions in this repository, with its settings."""
    plugins = Plugins()
    shaper = Shaper(kind_of(plugins))
    lines = ["# Components", "", "What the distributions of this repository supply, by kind."]
    for kind in plugins.kinds().values():
        found = [one for one in plugins.components(kind.name) if _ours(one)]
        if found:
            lines += ["", f"## Kind {kind.name}", "", f"Config section `{kind.section}`."]
        for one in found:
            cls = plugins.component_class(one)
            origin = one.plugin.distribution
            lines += ["", f"### {one.component.name}", "", f"From `{origin}`: {_summary(one)}.", ""]
            lines += list(_prose(cls))
            lines += _table(shaper, cls, True)
    return "\n".join(lines) + "\n"


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
    for one in settings:
        learnable = " *Learnable.*" if one.learnable else ""
        cells = (f"`{one.key}`", _said(one.shape), _default(one), f"{one.help}{learnable}")
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


def _said(shape: Shape) -> str:
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
            return f"list of {_said(item)}"
        case Fixed(items=items):
            return "list of " + ", then ".join(map(_said, items))
        case Table(item=item):
            return f"mapping to {_said(item)}"
        case Record(cls=cls):
            return f"mapping ({', '.join(one.key for one in Shaper().settings(cls))})"
        case Ref(kind=kind):
            return f"a {kind}"
        case Variants(members=members):
            return " or ".join(map(_said, members))
        case Anything():
            return "anything"
    return type(shape).__name__


PAGES = {"hooks.md": hooks, "config.md": sections, "components.md": components}


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
