"""What a run learned, read from its newest checkpoint, its metrics and its exports.

Plugins are not imported: what they save is recognised by its form. What is saved in another form is
named with its size, and never guessed at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrion.config import value_at
from orchestrion.runs import orders_by_category, stored_config
from orchestrion_studio.contents import clipped, unified_diff
from orchestrion_studio.page import Data, Page, Query
from orchestrion_studio.searches import beam_section, front_section

if TYPE_CHECKING:
    from orchestrion import Saved
    from orchestrion.runs import RunReader

Section = dict[str, Any]
"""A part of the page: `kind` names its form, `title` and `about` say what it is."""

MOST_LINES = 400
"""Lines of a difference that are shown."""
MOST_CHARACTERS = 20_000
"""Characters of a text that is compared."""
LONGEST = 400
"""Characters of a line that are shown."""
MOST_ROWS = 200
ORDERS = 3
"""Orders of calls that are shown of a category."""


def lessons_of(store: RunReader, *, iteration: int | None = None, problem: str = "") -> Section:
    """Return what a run learned: `sections`, `missing` (not recorded), and its source.

    `iteration` and `problem` name the search tree to show: by default the newest, and the first.
    """
    restored = store.latest()
    checkpoint = restored.checkpoint
    config = stored_config(store)
    sections: list[Section] = []
    if checkpoint is not None:
        sections += _settings(config, checkpoint.overlay)
        for path, saved in sorted(checkpoint.components.items()):
            if not path.startswith("evaluation."):  # of baselines: as they are before they learn
                sections += _state(path, saved.data, value_at(config, path))
    for name, stored in store.load_evaluations().items():
        if stored.get("state") is not None:
            configured = value_at(config, f"evaluation.baselines.{name}.policy")
            sections += _state(f"baseline {name}", stored["state"]["data"], configured)
    sections += beam_section(store, iteration, problem)
    sections += _by_agent(store, checkpoint.roster if checkpoint is not None else ())
    if checkpoint is not None:
        shown = {section["path"] for section in sections if "path" in section}
        sections += _numbers_saved(checkpoint.components, shown)
    missing = _missing(store, checkpoint is not None, sections)
    sections[:0] = _conduct(store)
    return {
        "checkpoint": None if restored.path is None else restored.path.name,
        "stage": None if checkpoint is None else checkpoint.stage + 1,
        "iteration": None if checkpoint is None else checkpoint.iteration + 1,
        "sections": [
            {"id": f"{section['kind']}-{number}", "path": "", "about": "", **section}
            for number, section in enumerate(sections)
        ],
        "missing": missing,
    }


def _section(kind: str, title: str, about: str, rows: Sequence[Any]) -> Section:
    return {"kind": kind, "title": title, "about": about, "rows": rows[:MOST_ROWS]}


def _conduct(store: RunReader) -> list[Section]:
    """Return whom the learned team called on held-out problems, by category, as reports do."""
    rows = [
        {
            "category": category,
            "orders": [
                {"order": clipped(order, LONGEST), "share": count / counts.total()}
                for order, count in counts.most_common(ORDERS)
            ],
        }
        for category, counts in orders_by_category(store).items()
    ]
    about = "Whom it called on the held-out problems, the most frequent orders first."
    return [_section("conduct", "What the learned team did", about, rows)] if rows else []


# ------------------------------------------------------------------ learned settings


def _settings(config: Mapping[str, Any], overlay: Mapping[str, Any]) -> list[Section]:
    """Return the settings that training changed: as configured, and as learned."""
    rows = []
    for path, after in sorted(overlay.items()):
        before = value_at(config, path)
        bars = _numbers(after)
        rows.append(
            {
                "path": path,
                "is_set": before is not None,
                "diff": "" if bars else changed_lines(before, after),
                "bars": bars,
                "before": _numbers(before) if bars else [],
            }
        )
    if not rows:
        return []
    about = "As configured, and as in the newest checkpoint: what was taken out and what came in."
    return [_section("settings", "Learned settings", about, rows)]


def _numbers(value: Any) -> list[dict[str, Any]]:
    """Return the numbers of a mapping, or of one in another, by name; empty if it holds others."""
    rows = []
    for name, item in value.items() if isinstance(value, Mapping) else ():
        inner = item.items() if isinstance(item, Mapping) else [("", item)]
        for second, number in inner:
            if isinstance(number, bool) or not isinstance(number, int | float):
                return []
            label = f"{name}: {second}" if second else str(name)
            rows.append({"name": label, "value": number})
    return rows[:MOST_ROWS]


def changed_lines(before: Any, after: Any) -> str:
    """Return the difference of two values line by line."""
    lines = unified_diff(_lines(before), _lines(after)).splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"({len(lines) - MOST_LINES:,} more lines)"]
    hunks = [line for line in lines if line.startswith("@@")]
    return "\n".join(line for line in lines if line not in hunks[: len(hunks) == 1])


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        text = "\n".join(value)
    else:
        text = json.dumps(value, indent=1, ensure_ascii=False)
    if len(text) > LONGEST and not any(c.isspace() for c in text):  # encoded numbers, not prose
        return [clipped(text, 40)]
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}\n({len(text) - MOST_CHARACTERS:,} more characters)"
    return [clipped(line, LONGEST) for line in text.splitlines()]


# ------------------------------------------------------------------ what components saved


def _state(path: str, data: Any, configured: Any) -> Iterator[Section]:
    """Yield what is known of the state of one component, or of a baseline that was trained."""
    data = data if isinstance(data, Mapping) else {}
    learned = data.get("learned")
    known = [
        _habits(learned.get("habits") if isinstance(learned, Mapping) else None),
        _texts(data),
        front_section(data),
        _steps(data, configured),
        _order(data),
        _plan(data),
        _values(data),
    ]
    for section in known:
        if section is not None:
            of = f" of the {path}" if path.startswith("baseline ") else ""
            yield {**section, "title": f"{section['title']}{of}", "path": path}


def _numbers_saved(components: Mapping[str, Saved], shown: set[str]) -> list[Section]:
    """Return how many numbers the components saved of which nothing else is shown."""
    rows = [
        {
            "path": path,
            "arrays": len(saved.arrays),
            "numbers": sum(math.prod(array.shape) for array in saved.arrays.values()),
            "bytes": sum(len(array.data) for array in saved.arrays.values()),
        }
        for path, saved in sorted(components.items())
        if saved.arrays and path not in shown
    ]
    about = "Weights of networks, and what trainers keep beside them."
    return [_section("weights", "Numbers", about, rows)] if rows else []


def _habits(habits: Any) -> Section | None:
    """Return the library of habits: role -> category -> habits."""
    if not isinstance(habits, Mapping):
        return None
    rows = [
        {
            "agent": role,
            "category": category,
            "version": habit.get("version"),
            "text": clipped(str(habit.get("text", "")), MOST_CHARACTERS),
            "status": habit.get("status", ""),
            "reason": clipped(str(habit.get("reason", "")), LONGEST),
            "round": habit.get("round"),
            "mean": habit.get("effect"),
            "low": (habit.get("interval") or [None, None])[0],
            "high": (habit.get("interval") or [None, None])[1],
            "trial": habit.get("tested_on") or {},
            "again": habit.get("tested_again") or {},
        }
        for role, categories in habits.items()
        for category, versions in categories.items()
        for habit in versions
    ]
    rows.sort(key=lambda row: (row["agent"], row["category"], row["version"] or 0))
    for row in rows:
        only = "" if row["category"] == "any" else f", {row['category']}"
        row["name"] = f"{row['agent']}{only} v{row['version']}"
    about = (
        "Every habit that was proposed, in the order of versions, and the trial that decided: the "
        "difference in reward between episodes with and without it."
    )
    return _section("habits", "Habits", about, rows)


def _texts(data: Mapping[str, Any]) -> Section | None:
    """Return evolved instructions: candidates with parents, what changed, and their trials."""
    pool = data.get("pool")
    if not isinstance(pool, list) or not pool or not all("texts" in row for row in pool):
        return None
    trials = dict(data.get("judged", []))
    rows = []
    for number, candidate in enumerate(pool[:MOST_ROWS]):
        known = [score for score in candidate["scores"] if score is not None]
        parents = list(candidate.get("parents", ()))
        before = pool[parents[0]]["texts"] if parents else {}
        rows.append(
            {
                "version": number,
                "parents": parents,
                "agent": candidate.get("changed", ""),
                "mean": math.fsum(known) / len(known) if known else None,
                "instances": len(known),
                "adopted": number == data.get("adopted"),
                "trial": trials.get(number),
                "diffs": [
                    {"agent": agent, "diff": changed_lines(before.get(agent), text)}
                    for agent, text in candidate["texts"].items()
                    if text != before.get(agent)
                ],
            }
        )
    about = (
        "Each version rewrites a text of its parent. It joined the pool because it did better on a "
        "few problems; the trial against the texts in use decided which is adopted."
    )
    return _section("texts", "Instructions", about, rows)


def _steps(data: Mapping[str, Any], configured: Any) -> Section | None:
    """Return a learned sequence of agents, or one for each category."""
    steps = data.get("steps")
    if isinstance(configured, Mapping) and configured.get("steps") == steps:
        return None  # nothing learned it
    if isinstance(steps, list) and all(isinstance(step, str) for step in steps):
        rows = [{"category": "", "steps": steps}] if steps else []
    elif isinstance(steps, Mapping) and all(isinstance(row, list) for row in steps.values()):
        rows = [{"category": name, "steps": list(row)} for name, row in steps.items()]
    else:
        return None
    about = "Who acts, in this order, whatever the agents answer."
    return _section("steps", "A learned sequence", about, rows) if rows else None


def _order(data: Mapping[str, Any]) -> Section | None:
    """Return how often each choice helped and what it cost, by times called before."""
    helped, cost = data.get("helped"), data.get("cost")
    if not isinstance(helped, Mapping) or not isinstance(cost, Mapping):
        return None
    rows = [
        {"name": name, "helped": list(shares), "cost": list(cost.get(name, ()))}
        for name, shares in helped.items()
    ]
    if not rows:
        return None
    patience = data.get("patience")
    about = "How often a call helped, and what it cost: the first time, the second, and so on"
    about += f"; it stops after {patience} turns." if isinstance(patience, int) else "."
    return _section("order", "A learned order", about, rows)


def _plan(data: Mapping[str, Any]) -> Section | None:
    """Return the words of replies that a plan reacts to."""
    learned = data.get("learned")
    words = learned.get("words") if isinstance(learned, Mapping) else None
    if not isinstance(words, Mapping):
        return None
    # One step, as words have no order.
    rows = [{"category": agent, "steps": [", ".join(kept)]} for agent, kept in words.items()]
    about = (
        "What the policy does next depends on whether an agent's reply has these words. Those with "
        "+ or - are the heaviest of a score of many words: + speaks for a good outcome."
    )
    return _section("steps", "Words that decide", about, rows) if rows else None


def _values(data: Mapping[str, Any]) -> Section | None:
    """Return which model of values a policy uses, and which trainer was picked."""
    model, picked = data.get("model"), data.get("picked")
    if isinstance(picked, str) and picked:
        return _section("model", "The trainer that was picked", f"`{picked}`", [])
    if not isinstance(model, str) or not isinstance(data.get("choices"), list):
        return None
    about = (
        f"The policy takes the choice whose value the model `{model}` predicts to be highest. A "
        "value depends on the situation, so that no choice has one figure; these are the choices."
    )
    rows = [str(choice) for choice in data["choices"]]
    return _section("model", "What the policy chooses among", about, rows)


# ------------------------------------------------------------------ metrics by agent


def _by_agent(store: RunReader, roster: Sequence[str]) -> list[Section]:
    """Return metrics that are named AGENT/METRIC: a row for each agent, a column for each metric.

    Metrics of models and of other parts that are named so have tables of their own.
    """
    iterations = store.iterations()
    if not iterations:
        return []
    stage = [row for row in iterations if row.stage == iterations[-1].stage]
    groups: dict[str, dict[str, list[float | None]]] = {}
    for name in dict.fromkeys(name for row in stage for name in row.metrics):
        owner, slash, metric = name.partition("/")
        if slash and owner != "share":  # shares of agents are drawn on the page of the run
            groups.setdefault(owner, {})[metric] = [row.metrics.get(name) for row in stage]
    sections = []
    for title, names in (
        ("Diagnostics by agent", [name for name in groups if name in roster]),
        ("Diagnostics by model or part", [name for name in groups if name not in roster]),
    ):
        columns = list(dict.fromkeys(metric for name in names for metric in groups[name]))
        rows = [
            {"agent": name, "cells": [_cell(groups[name].get(metric, ())) for metric in columns]}
            for name in names
        ]
        about = f"Of stage {stage[-1].stage + 1}: the last of {len(stage)} iterations, and the "
        about += "curve over all of them."
        if rows:
            sections.append({**_section("agents", title, about, rows), "columns": columns})
    return sections


def _cell(values: Sequence[float | None]) -> dict[str, Any]:
    step = max(1, len(values) // 100)
    return {"last": values[-1] if values else None, "curve": list(values[::step])}


# ------------------------------------------------------------------ what is not there


def _missing(store: RunReader, has_checkpoint: bool, sections: Sequence[Section]) -> list[str]:
    """Return what a reader might look for, and the run does not record."""
    kinds = {section["kind"] for section in sections}
    texts = []
    if not has_checkpoint:
        texts.append("There is no checkpoint yet: nothing that was learned is recorded.")
    elif not sections:
        texts.append("The newest checkpoint holds no learned setting and no state of a component.")
    if "settings" in kinds:
        texts.append(
            "Settings between the configured ones and those of the newest checkpoint are not "
            f"recorded, save in the {store.keep} newest checkpoints."
        )
    if "habits" in kinds or "texts" in kinds:
        texts.append("Of a trial its result is recorded; its episodes only if they are kept.")
    if store.retention == "none":
        texts.append("Episodes are not kept (`run.retention: none`).")
    return texts


# ------------------------------------------------------------------ the page


def learned_data(query: Query, reader: RunReader) -> Data:
    """Return what training changed, and what is not recorded of it."""
    iteration = query.number("iteration", 0) or None
    lessons = lessons_of(reader, iteration=iteration, problem=query.text("problem"))
    return {"run": query.run, **lessons}


PAGES = [
    Page(
        "/learned/{run}",
        "learned.html",
        learned_data,
        "What was learned: settings, habits, instructions, fronts, trees, rules, diagnostics",
        {
            "iteration": "whose search tree is shown, counted from 1; the newest by default",
            "problem": "whose search tree is shown; the first by default",
        },
    )
]
