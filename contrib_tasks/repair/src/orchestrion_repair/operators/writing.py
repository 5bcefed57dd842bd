"""How operators on expressions read a site and write a new text for it."""

from __future__ import annotations

import ast

from orchestrion_repair.operators.source import Site, Source

__all__ = ["Change", "fit", "is_value", "kind_at", "loose", "operand_text"]

Change = tuple[str, str]
"""A sub-kind, by which changes of a family are ranked, and the text for the site's span."""


def loose(site: Site) -> bool:
    """Whether what stands around a site would take a new operand for its own."""
    parent = site.parent
    if isinstance(parent, ast.Subscript | ast.Attribute):
        return site.node is parent.value
    if isinstance(parent, ast.Call):
        return site.node is parent.func
    return isinstance(
        parent,
        ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.Starred | ast.IfExp
        | ast.comprehension,
    )  # fmt: skip


def fit(site: Site, text: str) -> str:
    """The text for this place, in parentheses if what stands around could tear it apart."""
    return f"({text})" if loose(site) else text


def operand_text(source: Source, node: ast.expr) -> str:
    """An expression's text that can be an operand of anything."""
    text = source.text(node)
    simple = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict)
    return text if isinstance(node, simple) else f"({text})"


def is_value(site: Site) -> bool:
    """Whether a site is read, and a thing of its own: no target, no called function."""
    if isinstance(site.parent, ast.Call) and site.parent.func is site.node:
        return False
    return not isinstance(getattr(site.node, "ctx", ast.Load()), ast.Store | ast.Del)


def kind_at(source: Source, site: Site, node: ast.expr | None = None) -> str:
    return source.kinds(site.function).of(node or site.node)
