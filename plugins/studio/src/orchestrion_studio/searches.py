"""What searches leave: the front of an evolution, and the tree of a beam search."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrion.runs import RunReader

MOST_NODES = 600
"""Nodes of a tree that are shown."""
MOST_POINTS = 2000
MOST_BYTES = 20_000_000
_TREE = re.compile(r"tree-(\d+)\.jsonl")
_CONDITION = re.compile(r"\s+(when|otherwise|on failure|if)\b.*$")


def front_section(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the front of an evolution from the state of its trainer; None if it has none.

    Each member has its measurements and its graph; `others` are all graphs that were measured
    during the search, as pairs of cost and quality.
    """
    if not {"batches", "report"} <= set(data):
        return None
    others = sorted({(result[1], result[0]) for batch in data["batches"] for _, result in batch})
    report = data["report"]
    section = {
        "kind": "front",
        "title": "The front: quality against cost",
        "others": [list(point) for point in others[:MOST_POINTS]],
        "members": [],
        "baselines": [],
        "measure": "cost",
        "about": "The search goes on: its last iteration measures the front anew.",
    }
    if report is None:
        return section
    held_out = report["held_out"]
    return section | {
        "about": f"{report['evaluations']} graphs were measured by {report['strategy']}. Scores "
        "of the search chose the front, so they are too high; quote the held-out ones, measured on "
        f"{held_out['problems']} problems of {held_out['split']}.",
        "measure": report["measure"],
        "members": [_member(member) for member in report["front"]],
        "baselines": [_member(member) for member in report["baselines"]],
    }


def _member(member: Mapping[str, Any]) -> dict[str, Any]:
    held_out, config = member.get("held_out"), member.get("config") or {}
    measured = member.get("fresh") or member.get("search") or {}
    reward = held_out["reward"] if held_out else {}
    cost = held_out["cost"]["mean"] if held_out else measured.get("cost")
    edges = config.get("edges", [])
    return {
        "name": member["name"],
        "chosen": bool(member.get("chosen")),
        "graph": member.get("graph", ""),
        "nodes": list(config.get("nodes", ())),
        "edges": [edge if isinstance(edge, str) else json.dumps(edge) for edge in edges],
        "links": links_of(edges),
        "outputs": list(config.get("outputs", ())),
        "settings": dict(member.get("settings") or {}),
        "cost": cost,
        "search": (member.get("search") or {}).get("quality"),
        "fresh": (member.get("fresh") or {}).get("quality"),
        "mean": reward.get("mean"),
        "low": reward.get("low"),
        "high": reward.get("high"),
    }


def links_of(edges: Any) -> list[list[str]]:
    """Return pairs of nodes from edges as text, such as "a, b -> c when data.ok"."""
    links = []
    for edge in edges:
        if isinstance(edge, Mapping):
            parts = [str(edge.get("source", "")), str(edge.get("target", ""))]
        else:
            parts = str(edge).split("->")
        names = [
            [name.strip().split(".")[0] for name in _CONDITION.sub("", part).split(",")]
            for part in parts
        ]
        links += [
            [first, second]
            for sources, targets in pairwise(names)
            for first in sources
            for second in targets
            if first and second
        ]
    return links


def beam_section(store: RunReader, iteration: int | None, problem: str) -> list[dict[str, Any]]:
    """Return the tree of one problem of a beam search, from `exports/beam`; empty without one.

    The tree is that of an iteration, counted from 1, by default of the newest, and of a problem, by
    default of the first.
    """
    folder = store.exports / "beam"
    numbered = {
        int(match[1]) + 1: path
        for path in sorted(folder.glob("tree-*.jsonl"))
        if (match := _TREE.fullmatch(path.name))
    }
    if not numbered:
        return []
    shown = iteration if iteration in numbered else max(numbered)
    rows = _read_tree(numbered[shown])
    problems = list(dict.fromkeys(str(row.get("problem")) for row in rows))
    problem = problem if problem in problems else next(iter(problems), "")
    nodes = [row for row in rows if row.get("problem") == problem]
    section = {
        "kind": "beam",
        "title": "The tree of a beam search",
        "about": "Each node continues the trajectory above it by a turn; its fate says whether it "
        "was kept and grown, pruned, left out as a duplicate, or ended as a finalist.",
        "iterations": sorted(numbered),
        "iteration": shown,
        "problems": problems,
        "problem": problem,
        "nodes": [_node(row) for row in nodes[:MOST_NODES]],
        "left_out": max(0, len(nodes) - MOST_NODES),
        "sentences": _sentences(store),
    }
    return [section]


def _read_tree(path: Path) -> list[dict[str, Any]]:
    if path.stat().st_size > MOST_BYTES:
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # a last line that is being written
            continue
        if isinstance(row, dict) and "path" in row:
            rows.append(row)
    return rows


def _node(row: Mapping[str, Any]) -> dict[str, Any]:
    agents, options = row.get("agents") or [], row.get("options") or []
    turns = [
        f"{agent}:{option}" if option is not None else str(agent)
        for agent, option in zip(agents, options, strict=False)
    ]
    return {
        "path": str(row["path"]),
        "turns": turns,
        "value": row.get("value"),
        "fate": str(row.get("fate", "")),
        "finished": bool(row.get("finished")),
        "calls": row.get("calls"),
    }


def _sentences(store: RunReader) -> list[str]:
    """Return the comparison with the baselines of equal spend, in the trainer's words."""
    checkpoint = store.latest().checkpoint
    for saved in checkpoint.components.values() if checkpoint is not None else ():
        data = saved.data
        if isinstance(data, Mapping) and {"pending", "round", "report"} <= set(data):
            return list((data["report"] or {}).get("sentences", ()))
    return []
