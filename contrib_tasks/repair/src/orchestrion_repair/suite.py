"""The built-in suite: small functions, each with several mistakes people make.

The functions were written for this suite; none is taken from a public collection of bugs. They
stand in `suite_data/*.toml`, from which `python -m orchestrion_repair.build_suite` computes
`suite_data/suite.json`: the wanted values, and where each patch goes. Only that file is read here.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from orchestrion import JSON, Split
from orchestrion_repair.bug import Bug, Case

KINDS = (
    "missing logic",  # a condition, guard, operand or statement is not there
    "excess logic",  # one is there that should not be
    "wrong operator",  # comparison, arithmetic or boolean
    "wrong variable",
    "wrong value",  # a constant, mostly off by one
    "wrong function",  # another function or method is called
    "argument order",
    "wrong return",
    "initial value",
    "misplaced statement",
    "two places",  # two mistakes, each of which must be mended
    "wrong algorithm",  # nothing short of rewriting a part will do
)
UNMENDABLE = frozenset({"two places", "wrong algorithm"})
"""Kinds that take more than a small edit to undo, by what their author meant."""

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


def bugs(split: Split | None = None) -> tuple[Bug, ...]:
    """Return the suite's bugs in a fixed order: all, or those of one split."""
    return tuple(bug for bug in _bugs() if split is None or bug.split == split)


@cache
def _bugs() -> tuple[Bug, ...]:
    text = files("orchestrion_repair").joinpath("suite_data", "suite.json").read_text("utf-8")
    return tuple(bug for function in json.loads(text)["functions"] for bug in _expand(function))


def _expand(function: dict[str, Any]) -> list[Bug]:
    name, source = function["name"], function["source"]
    visible, hidden = _cases(function["visible"]), _cases(function["hidden"])
    return [
        Bug(
            id=f"{name}/{number}",
            name=f"{name}, mistake {number}",
            entry_point=name,
            code=patched(source, bug["edits"]),
            visible=visible,
            hidden=hidden,
            kind=bug["kind"],
            group=name,
            split=function["split"],
            category=function["category"],
            solution=source,
        )
        for number, bug in enumerate(function["bugs"], start=1)
    ]


def _cases(rows: list[list[JSON]]) -> tuple[Case, ...]:
    return tuple(Case(tuple(args), want) for args, want in rows)


def patched(source: str, edits: list[tuple[int, int, str]]) -> str:
    """Return the source with each slice `start:end` replaced; edits are in order, and apart."""
    for start, end, text in reversed(edits):
        source = source[:start] + text + source[end:]
    return source
