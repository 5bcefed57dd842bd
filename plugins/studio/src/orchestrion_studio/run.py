"""The page of a run: what it learned, how sure that is, what it spent, and who worked."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion import did_you_mean
from orchestrion.runs import Iteration, RunReader, stored_config
from orchestrion_studio.catalogue import catalogue_of
from orchestrion_studio.contents import clipped, unified_diff
from orchestrion_studio.drawing import COLOURS, plot_of, series_of
from orchestrion_studio.evaluation import assessment_of, plain_report
from orchestrion_studio.page import Data, NotFoundError, Page, Query
from orchestrion_studio.panels import panels_of
from orchestrion_studio.runs import progress_of
from orchestrion_studio.spending import spending_of
from orchestrion_studio.topology import topology_of

FIRST = {
    "reward": ("Reward", "reward, mean of an episode"),
    "success": ("Solved", "share of episodes"),
    "cost": ("Cost", "cost of an episode"),
    "entropy": ("Entropy", "entropy of decisions"),
}
"""Metrics that every run shows at once, with the names of their plots and axes."""
SHARES = ("success",)
"""Metrics that are written as per cent."""
WHILE_TRAINING = {"validation": ("validation", 2), "held_out": ("held out", 3)}
"""Prefixes of metrics on problems that training does not see, as some trainers report them, with
their names and colours."""
COUNTED = ("episodes", "missing")
"""Metrics without a curve: the page states them in words."""
SMOOTH = 0.8
"""Default weight of earlier values in a smoothed curve."""
EVENTS = 200
KEPT = 10
"""Evaluations made after training that are shown."""
LONGEST = 2000
"""Characters of a note, and of a line of a config's difference, that are shown."""
SERIES = 12
"""Limit of agents with a curve each; the others share one."""


def run_data(query: Query, reader: RunReader) -> Data:
    """Return what the page of a run shows."""
    iterations, config = reader.iterations(), stored_config(reader)
    smooth = query.number("smooth", round(100 * SMOOTH), 0, 99) / 100
    known = assessment_of(reader, wait=bool(query.text("wait")))
    report = known.report if known else None
    names = _metric_names(iterations)
    steady = _steady(iterations, names)
    more = [name for name in names if name not in steady] if query.text("more") else []
    facts = facts_of(reader, iterations, config)
    colours = colours_of(config)
    return {
        "run": query.run,
        "facts": facts
        | {"rewards": smoothed([iteration.reward for iteration in iterations], smooth)},
        "smooth": smooth,
        "curves_first": [_plot(name, iterations, smooth, report) for name in _charts_of(iterations)]
        if facts["draws"]
        else [],
        "curves_more": [_plot(name, iterations, smooth, report) for name in more],
        "more": len(names),
        "steady": steady if query.text("more") else {},
        "report": report,
        "report_pending": known is None,
        "kept": _evaluations_kept(reader),
        "findings": known.findings if known else [],
        "spending": spending_of(reader, config["budget"], iterations),
        "agents": _agents(iterations, smooth, facts["draws"], colours),
        "topology": topology_of(reader, iterations, colours),
        "failures": _failures(iterations),
        "notes": notes_of(reader),
        "config": clipped(reader.config_text, 100_000),
        "diff": _diff(query, reader),
        "panels": panels_of(reader),
    }


def facts_of(reader: RunReader, iterations: Sequence[Iteration], config: Mapping[str, Any]) -> Data:
    """Return how a run stands."""
    last = [iteration.seconds for iteration in iterations[-10:]]
    pace = sum(last) / len(last) if last else None
    episodes = sum(iteration.episodes for iteration in iterations)
    newest = iterations[-1] if iterations else None
    return {
        "status": reader.status,
        "detail": reader.detail,
        "created": reader.created,
        "finished": reader.finished,
        "seconds": max(reader.seconds, sum(row.seconds for row in iterations)),
        **progress_of(reader.status, len(iterations), _planned(reader, config), pace),
        "episodes": episodes,
        "trains": bool(episodes) or bool(config.get("trainer") and not iterations),
        "draws": len(iterations) > 1 or bool(iterations and reader.status == "running"),
        "learned_in": (reader.manifest or {}).get("learned_in"),
        "retention": reader.retention,
        "reward": newest.reward if newest else None,
        "solved": newest.successes / newest.episodes if newest and newest.episodes else None,
    }


def _planned(reader: RunReader, config: Mapping[str, Any]) -> int | None:
    """Return the iterations of all stages: those that were begun said how many they have."""
    known, most = reader.planned, config.get("run", {}).get("iterations")
    trainer = config.get("trainer") or []
    stages = trainer if isinstance(trainer, list) else [trainer]
    numbers = [
        known.get(stage, min((n for n in (settings.get("iterations"), most) if n), default=None))
        for stage, settings in enumerate(stages)
    ]
    return None if None in numbers else sum(n for n in numbers if n is not None) or None


# ------------------------------------------------------------------ curves


def _charts_of(iterations: Sequence[Iteration]) -> list[str]:
    """Return the metrics among the first ones that a run has."""
    if not iterations:
        return []
    metrics = iterations[-1].metrics
    return [name for name in FIRST if name in ("reward", "success") or name in metrics]


def _metric_names(iterations: Sequence[Iteration]) -> list[str]:
    """Return all other metrics; shares of agents have a plot of their own."""
    names = {name for iteration in iterations for name in iteration.metrics}
    return sorted(name for name in names if name not in (*FIRST, *COUNTED) and "/" not in name)


def _steady(iterations: Sequence[Iteration], names: Sequence[str]) -> dict[str, float | None]:
    """Return the metrics that are the same in every iteration: a curve would say no more."""
    if len(iterations) < 2:
        return {}
    first = iterations[0].metrics
    return {
        name: first.get(name)
        for name in names
        if all(iteration.metrics.get(name) == first.get(name) for iteration in iterations)
    }


def _plot(
    name: str, iterations: Sequence[Iteration], smooth: float, report: Data | None
) -> dict[str, Any]:
    title, axis = FIRST.get(name, (name.replace("_", " "), name.replace("_", " ")))
    if name == "cost" and report:
        axis = f"cost of an episode, {report['unit']}"
    numbers = list(range(1, len(iterations) + 1))
    raw = [_value(iteration, name) for iteration in iterations]
    series = [series_of("each iteration", numbers, raw, style="faint" if smooth else "line")]
    if smooth:
        series.append(series_of(f"smoothed by {smooth:.0%}", numbers, smoothed(raw, smooth)))
    for prefix, (label, colour) in WHILE_TRAINING.items():
        values = [iteration.metrics.get(f"{prefix}_{name}") for iteration in iterations]
        if any(value is not None for value in values):
            series.append(series_of(label, numbers, values, style="points", colour=colour))
    held_out = {"reward": "reward", "success": "solved", "cost": "cost"}.get(name)
    own = report["contenders"][0] if report and held_out else None
    if own and own[held_out]["mean"] is not None:
        value = own[held_out]
        label, last = f"held-out ({report['split'] if report else ''})", [numbers[-1]]
        ends = {"low": [value["low"]], "high": [value["high"]]}
        series.append(series_of(label, last, [value["mean"]], **ends, style="points", colour=1))
    return plot_of(title, "iteration", axis, series, id=name, shares=name in SHARES)


def _value(iteration: Iteration, name: str) -> float | None:
    if name == "reward":  # as the store has it: without episodes whose reward is missing
        return iteration.reward
    if name == "success":
        return iteration.successes / iteration.episodes if iteration.episodes else None
    return iteration.metrics.get(name)


def smoothed(values: Sequence[float | None], weight: float) -> list[float | None]:
    """Return exponential moving means, without the pull of the first value; gaps stay gaps."""
    means: list[float | None] = []
    total = share = 0.0
    for value in values:
        if value is None or not math.isfinite(value):
            means.append(None)
            continue
        total, share = total * weight + value * (1 - weight), share * weight + (1 - weight)
        means.append(total / share)
    return means


# ------------------------------------------------------------------ agents


def colours_of(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of each agent's colour: the same on all pages of a run."""
    return {name: number % COLOURS for number, name in enumerate(config.get("agents") or {})}


def _agents(
    iterations: Sequence[Iteration], smooth: float, draws: bool, colours: Mapping[str, int]
) -> Data:
    """Return how the turns are shared among agents, in all and over the iterations."""
    totals = Counter[str]()
    for iteration in iterations:
        totals.update(iteration.agents)
    order = [agent for agent, _ in totals.most_common()]
    shown, others = order[:SERIES], order[SERIES:]
    if len(others) == 1:
        shown, others = order, []
    numbers = list(range(1, len(iterations) + 1))
    sums = [sum(iteration.agents.values()) for iteration in iterations]

    def shares(names: Sequence[str]) -> list[float | None]:
        raw = [
            sum(iteration.agents.get(name, 0) for name in names) / total if total else None
            for iteration, total in zip(iterations, sums, strict=True)
        ]
        return smoothed(raw, smooth)

    series = [
        series_of(agent, numbers, shares([agent]), colour=colours.get(agent)) for agent in shown
    ]
    if others:
        series.append(
            series_of(f"{len(others)} others", numbers, shares(others), colour=COLOURS - 1)
        )
    title = f"Use of agents, smoothed by {smooth:.0%}" if smooth else "Use of agents"
    plot = plot_of(title, "iteration", "share of turns", series, id="agents", shares=True)
    rows = [
        {"name": name, "count": turns, "share": turns / totals.total()}
        for name, turns in totals.most_common()
    ]
    return {"plot": plot if totals and draws else None, "rows": rows}


# ------------------------------------------------------------------ evaluated later


def _evaluations_kept(reader: RunReader) -> list[Data]:
    """Return what `orchestrion eval` kept of the run, the newest first."""
    newest = list(reader.kept_evaluations().items())[::-1][:KEPT]
    return [{"file": name, **_evaluated(document)} for name, document in newest]


def _evaluated(document: Mapping[str, Any]) -> Data:
    try:
        changes = [clipped(str(each), LONGEST) for each in document["overrides"]]
        return {"error": "", "changes": changes, "report": plain_report(document["report"])}
    except (KeyError, TypeError, AttributeError) as error:
        return {"error": document.get("error", f"it has no {error}")}


# ------------------------------------------------------------------ what went wrong, notes, config


def _failures(iterations: Sequence[Iteration]) -> list[Data]:
    """Return how training episodes ended, by status."""
    counts = Counter[str]()
    for iteration in iterations:
        counts.update(iteration.statuses)
    total = counts.total()
    solved = sum(iteration.successes for iteration in iterations)
    rows = [("completed and solved", solved)]
    rows += [("completed, not solved", counts.pop("completed", 0) - solved)]
    rows += counts.most_common()
    turns = sum(it.metrics.get("failed_turns", 0.0) for it in iterations)
    shown = [{"name": kind, "count": n, "share": n / total} for kind, n in rows if total and n]
    if math.isfinite(turns) and turns:
        shown.append({"name": "failed turns, in any of these", "count": turns, "share": None})
    return shown


def notes_of(reader: RunReader) -> list[Data]:
    """Return what was noted about a run, the newest first."""
    events = reader.events()[-EVENTS:][::-1]
    opened: Mapping[str, Mapping[str, str]] = (reader.manifest or {}).get("opened", {})
    return [
        *({"at": event.at, "kind": event.kind, "text": _plain(event.data)} for event in events),
        *(
            {"at": None, "kind": path, "text": f"{name} {text}"}
            for path, notes in opened.items()
            for name, text in notes.items()
        ),
    ]


def _plain(data: Any) -> str:
    return clipped(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False), LONGEST)


def _diff(query: Query, reader: RunReader) -> Data:
    """Return the lines in which the config of another run differs, if one is named."""
    names = [name for name in catalogue_of(query.folder).look() if name != query.run]
    other, text = query.text("diff"), ""
    if other and other not in names:
        raise NotFoundError(f"there is no other run {other!r:.80}{did_you_mean(other, names)}")
    if other:
        with query.open(other) as second:
            pair = [each.config_text.splitlines() for each in (second, reader)]
            text = unified_diff(*([clipped(line, LONGEST) for line in lines] for lines in pair))
    return {"other": other, "text": text, "names": names[:500]}


PAGES = [
    Page(
        "/run/{run}",
        "run.html",
        run_data,
        "A run: curves, evaluation against baselines, spend, agents, notes and config",
        {
            "smooth": "per cent of a smoothed value that comes from those before it; 0 for none",
            "more": "1 for the curves of all other metrics",
            "wait": "1 to wait for the report, where it is not computed yet",
            "diff": "another run, whose config is compared",
        },
    )
]
