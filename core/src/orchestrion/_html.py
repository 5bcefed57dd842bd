"""Show runs, reports, episodes and graphs as HTML for notebooks, without scripts or links.

Texts of agents are not to be trusted: every text is escaped.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

from orchestrion._activations import Activations
from orchestrion._cli.display import usage_text
from orchestrion._records import Episode, Turn
from orchestrion._report import Report
from orchestrion._secrets import hidden
from orchestrion._statistics import Estimate
from orchestrion._store import RunReader
from orchestrion._stored import stored_report
from orchestrion._stored_run import Run

_SHOWN = 10_000
"""Characters of a text that are shown."""
_DEEP = 8
"""Levels of nested teams that are shown."""
_BOX = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;margin:0 0 .5em 1em"
_BARS = "▁▂▃▄▅▆▇█"


def escaped(text: str) -> str:
    """Return a text as HTML shows it, without secrets, cut where it is very long."""
    text = hidden(text)
    rest = len(text) - _SHOWN
    text = text[:_SHOWN] + (f"\n... {rest:,} more characters" if rest > 0 else "")
    text = "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return html.escape(text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; the cells are texts."""
    lines = [[f"<th>{escaped(name)}</th>" for name in head]] if head else []
    lines += [[f"<td><bdi>{escaped(cell)}</bdi></td>" for cell in row] for row in rows]
    return "<table><tr>" + "</tr><tr>".join(map("".join, lines)) + "</tr></table>"


def run_html(run: Run) -> str:
    """Return what a run is, how it stands, how its reward went, and its report."""
    with RunReader(run.path) as reader:
        iterations, report = reader.iterations(), stored_report(reader)
        facts = [
            ("status", f"{reader.status} {reader.detail}".strip()),
            ("folder", str(run.path)),
            ("iterations", f"{len(iterations)}, in {reader.seconds:.1f} s"),
            ("training episodes", str(sum(iteration.episodes for iteration in iterations))),
            ("training reward", _course([iteration.reward for iteration in iterations])),
            ("spent", usage_text(reader.spend())),
        ]
    return (
        f"<b>{escaped(run.path.name)}</b>{_table((), facts)}"
        f"{'' if report is None else report_html(report)}"
    )


def _course(values: Sequence[float | None]) -> str:
    """Return how values went on, in at most 60 characters and their range."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return "-"
    low, high, step = min(finite), max(finite), math.ceil(len(finite) / 60)
    heights = [(value - low) / ((high - low) or 1) for value in finite[::-1][::step][::-1]]
    bars = "".join(_BARS[round(height * (len(_BARS) - 1))] for height in heights)
    return f"{bars} from {low:.3g} to {high:.3g}"


def report_html(report: Report) -> str:
    """Return a report's verdict, and a table with a row for each contender."""
    ahead = f"{report.contenders[0].name} minus this one"
    head = ["", "solved", f"cost ({report.unit})", "reward", ahead, "trained on"]
    rows = [
        [
            team.name,
            *(_interval(value) for value in (team.solved, team.cost, team.reward)),
            _interval(report.ahead[team.name]) if team.name in report.ahead else "",
            f"{team.trained_on} episodes" if team.trained_on else "",
        ]
        for team in report.contenders
    ]
    tries = f", {report.seeds} tries each" if report.seeds > 1 else ""
    where = f"{report.judged_on}: {report.problems} problems{tries}"
    return (
        f"<p>{escaped(report.verdict.as_text(report))}</p>"
        f"{_table(head, rows)}"
        f"<small>{escaped(where)}; intervals: 95 %, bootstrap over problems; exact where all or "
        "none are solved</small>"
    )


def _interval(value: Estimate) -> str:
    if not value.count:
        return "-"
    return f"{value.mean:.4g} [{value.low:.4g}, {value.high:.4g}]"


def episode_html(episode: Episode) -> str:
    """Return an episode: problem, outcome, and what each turn said, to be unfolded."""
    scores, reward = episode.scores, episode.reward
    facts = [
        ("problem", f"{episode.problem.id} {episode.problem.category}".strip()),
        ("status", str(episode.status)),
        ("solved", "yes" if episode.success else "no"),
        ("score", "-" if scores is None else f"{scores.value:.4g}"),
        ("reward", "missing" if reward is None else f"{reward.total:.4g}"),
        ("usage", f"cost {episode.usage.cost:.4g}; {usage_text(episode.usage)}"),
        *([("error", episode.error)] if episode.error else []),
    ]
    text = f"<pre dir='auto' style='{_BOX}'>{escaped(episode.problem.text)}</pre>"
    turns = "".join(_turn(turn, _DEEP) for turn in episode.turns)
    return f"<b>episode {escaped(episode.id)}</b>{_table((), facts)}{text}{turns}"


def _turn(turn: Turn, levels: int) -> str:
    name = turn.agent if turn.option is None else f"{turn.agent}:{turn.option}"
    facts = f"{turn.status}, cost {turn.usage.cost:.4g}, {turn.usage.tokens:,} tokens"
    text = turn.error or turn.output.content
    inner = "".join(_turn(t, levels - 1) for t in turn.output.inner or ()) if levels else "..."
    return (
        f"<details{' open' if levels == _DEEP else ''}><summary>{turn.index + 1} "
        f"<b><bdi>{escaped(name)}</bdi></b> <small>{escaped(facts)}</small></summary>"
        f"<pre dir='auto' style='{_BOX}'>{escaped(text)}</pre>"
        f"<div style='margin-left:2em'>{inner}</div></details>"
    )


def graph_html(graph: Activations) -> str:
    """Return who acted after whom, the most frequent first, and figures on the whole."""
    edges = sorted(graph.edges.items(), key=lambda edge: (-edge[1], edge[0]))
    rows = [(first, then, str(times)) for (first, then), times in edges]
    lines = "".join(f"<div>{escaped(line)}</div>" for line in graph.summary())
    return f"{_table(('agent', 'then', 'times'), rows)}<small>{lines}</small>"
