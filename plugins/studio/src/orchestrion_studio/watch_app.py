"""The terminal page of a run. Textual is imported here only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markup import escape
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Footer, Static

from orchestrion import OrchestrionError
from orchestrion.runs import RunReader, stored_config, stored_report
from orchestrion_studio.braille import braille, sparkline
from orchestrion_studio.run import FIRST, facts_of, notes_of, smoothed
from orchestrion_studio.spending import spent_rows
from orchestrion_studio.wording import (
    count,
    difference,
    duration,
    figure,
    fixed,
    percent,
    plain_time,
    usd,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = 1.0
"""Seconds between two looks at the run."""
RECENT = 10
"""Number of latest iterations from which the shares of agents are computed."""
SMOOTH = 0.8
COLOURS = {"running": "green", "completed": "cyan", "failed": "red"}
"""Colour of each status; others are yellow."""


class WatchApp(App[None]):
    """Shows a run, and follows it; the run is opened read-only every so many `seconds`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; }
    #upper { height: 1fr; min-height: 10; }
    #curve { width: 2fr; height: 1fr; min-height: 6; padding: 1 1 0 1; }
    #agents { width: 1fr; padding: 1 1 0 1; }
    #lower { height: auto; max-height: 50%; }
    #results { width: 2fr; height: auto; padding: 0 1; }
    #notes { width: 1fr; height: auto; padding: 0 1; }
    .-narrow #page { overflow-y: auto; }
    .-narrow #upper, .-narrow #lower { layout: vertical; height: auto; max-height: 100%; }
    .-narrow #curve, .-narrow #agents, .-narrow #results, .-narrow #notes { width: 100%; }
    .-narrow #curve { height: 10; }
    .-narrow #agents { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Leave"),
        Binding("right,m", "metric(1)", "Next metric", key_display="→"),
        Binding("left", "metric(-1)", "Previous", key_display="←"),
        Binding("s", "smooth", "Smooth"),
    ]

    def __init__(self, directory: Path, seconds: float = SECONDS) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
        self.title = directory.name
        self._directory, self._seconds = directory, seconds
        self._seen: object = None
        self._shown: dict[str, Any] = {}
        self._metric, self._smooth = "reward", False

    def compose(self) -> ComposeResult:
        """Yield the parts of the page."""
        with VerticalScroll(id="page"):
            yield Static(id="head", markup=False)
            with Horizontal(id="upper"):
                yield Static(id="curve", markup=False)
                yield Static(id="agents", markup=False)
            with Horizontal(id="lower"):
                yield Static(id="results", markup=False)
                yield Static(id="notes", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Look at the run now, and then again and again."""
        self._tick()
        self.set_interval(self._seconds, self._tick)

    def on_resize(self) -> None:
        """Draw the curve in its new size."""
        self.call_after_refresh(self._draw)

    def _tick(self) -> None:
        """Look at the run in a thread, so that a slow disk never stops the keys."""
        self.run_worker(self._look, thread=True, exclusive=True, exit_on_error=False)

    def action_metric(self, step: int) -> None:
        """Show the next metric, or the previous one."""
        names = list(self._shown.get("curves", ()))
        if names:
            at = names.index(self._metric) if self._metric in names else 0
            self._metric = names[(at + step) % len(names)]
            self._draw()

    def action_smooth(self) -> None:
        """Switch between the values and their running mean."""
        self._smooth = not self._smooth
        self._draw()

    def _look(self) -> None:
        """Read the run, unless nothing has changed since the last look."""
        try:
            with RunReader(self._directory) as reader:
                done, paid, ended = reader.last_iteration(), reader.spend(), reader.status
                seen = str((done, paid, ended, reader.events(), reader.evaluation_names()))
                new = {} if seen == self._seen else _standing(reader)
        except OrchestrionError as error:
            seen, new = "", {"problem": str(error)}
        self._seen = seen
        if new:
            self._shown = {"problem": "", **(self._shown if "problem" in new else {}), **new}
            self.call_from_thread(self._draw)

    def _draw(self) -> None:
        shown = self._shown
        if "facts" not in shown:
            self.query_one("#head", Static).update(_plain(shown.get("problem", "")))
            return
        curve = self.query_one("#curve", Static)
        values = shown["curves"].get(self._metric, ())
        title = f"{_named(self._metric)} by iteration"
        if self._smooth:
            values, title = smoothed(values, SMOOTH), f"{title}, smoothed by {SMOOTH:.0%}"
        curve.update(_curve(title, values, curve.content_size.width, curve.content_size.height))
        self.query_one("#head", Static).update(_head(self.title or "", shown))
        self.query_one("#agents", Static).update(_agents(shown["agents"]))
        self.query_one("#results", Static).update(_results(shown))
        self.query_one("#notes", Static).update(_notes(shown["notes"]))


def _standing(reader: RunReader) -> dict[str, Any]:
    """Return what the page shows of a run."""
    config, iterations = stored_config(reader), reader.iterations()
    names = {name: None for row in iterations for name in row.metrics}
    usual = [name for name in FIRST if name in names]
    turns = Counter[str]()
    for iteration in iterations[-RECENT:]:
        turns.update(iteration.agents)
    return {
        "facts": facts_of(reader, iterations, config),
        "spent": spent_rows(reader, config["budget"], reader.spend()),
        "curves": {
            name: [row.metrics.get(name) for row in iterations]
            for name in [*usual, *sorted(names.keys() - FIRST.keys())]
        },
        "agents": {agent: number / turns.total() for agent, number in turns.items()},
        "report": stored_report(reader),
        "notes": notes_of(reader),
    }


def _head(name: str, shown: dict[str, Any]) -> Text:
    facts, name = shown["facts"], _plain(name)
    status = facts["status"]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(name, style="bold").append("  ")
    text.append(status, style=f"bold {COLOURS.get(status, 'yellow')}")
    text.append(f"  {_plain(facts['detail'])}")
    if status not in ("running", "completed"):
        text.append(f"\ngoes on with: orchestrion resume {name}")
    of = f" of {count(facts['planned'])}" if facts["planned"] else ""
    text.append(f"\n{_bar(facts['progress'])}{count(facts['iterations'])}{of} iterations")
    if facts["seconds_left"] is not None:
        text.append(f", about {duration(facts['seconds_left'])} of training left")
    text.append(f", worked {duration(facts['seconds'])}, {count(facts['episodes'])} episodes\n")
    parts = []
    for row in shown["spent"]:
        paid = row["name"] == "usd"
        write = usd if paid else fixed
        limit = "" if row["limit"] is None else f" of {write(row['limit'])}"
        parts.append(f"{write(row['spent'])}{limit}{'' if paid else ' ' + row['text']}")
    text.append(f"spent {', '.join(parts)}")
    if shown["problem"]:
        text.append(f"\n{_plain(shown['problem'])}", style="red")
    return text


def _bar(share: float | None) -> str:
    full = round(20 * (share or 0))
    return "" if share is None else f"{'█' * full}{'░' * (20 - full)} {share:4.0%}  "


def _curve(title: str, values: Sequence[float | None], width: int, height: int) -> Text:
    """Return a curve with the range of its values at the left."""
    text = Text(f"{title}", style="bold", no_wrap=True, overflow="ellipsis")
    numbers = [math.nan if value is None else value for value in values]
    known = [value for value in numbers if math.isfinite(value)]
    if not known:
        return text.append(": no value yet", style="not bold dim")
    top, bottom = figure(max(known), 4), figure(min(known), 4)
    margin = max(len(top), len(bottom))
    lines = braille(numbers, width - margin - 1, height - 2)
    text.append(f"; the last is {figure(numbers[-1], 4)}\n", style="not bold")
    for row, line in enumerate(lines):
        label = top if row == 0 else bottom if row == len(lines) - 1 else ""
        text.append(f"{label:>{margin}} ", style="not bold dim")
        text.append(f"{line}\n", style="not bold cyan")
    return text.append(f"{'':{margin}} 1 to {len(numbers)}", style="not bold dim")


def _agents(shares: dict[str, float]) -> Text:
    text = Text("turns by agent, last iterations\n", style="bold", no_wrap=True)
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        text.append(f"{_plain(name)[:16]:16} ", style="not bold")
        text.append(f"{share:6.1%} {'▇' * round(12 * share)}\n", style="not bold cyan")
    return text


def _results(shown: dict[str, Any]) -> RenderableType:
    """Return the evaluations, once there are any; before that all metrics in lines."""
    report = shown["report"]
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    if report is None:
        for title in ("metric", "last", "by iteration"):
            table.add_column(title)
        for name, values in list(shown["curves"].items())[:8]:
            numbers = [math.nan if value is None else value for value in values]
            table.add_row(escape(_named(name)), figure(values[-1], 4), sparkline(numbers, 24))
        return table
    table.title = f"{escape(_plain(report.judged_on))}, {report.problems} problems"
    for title in ("", "solved", "reward", f"{report.contenders[0].name} ahead by"):
        table.add_column(escape(_plain(title)))
    for team in report.contenders:
        gap = report.ahead.get(team.name)
        ahead = ""
        if gap:
            ahead = f"{difference(gap.mean)} [{difference(gap.low)}, {difference(gap.high)}]"
        cells = percent(team.solved.mean), fixed(team.reward.mean), ahead
        table.add_row(escape(_plain(team.name)), *cells)
    return table


def _notes(notes: Sequence[dict[str, Any]]) -> Text:
    text = Text("notes, the newest first\n", style="bold")
    for note in notes[:5]:
        text.append(f"{plain_time(note['at'])} ", style="not bold dim")
        text.append(f"{_plain(note['kind'])}: {_plain(note['text'])[:200]}\n", style="not bold")
    return text


def _named(metric: str) -> str:
    """Return what a metric is called where it is shown."""
    return "solved" if metric == "success" else _plain(metric)


def _plain(text: str) -> str:
    """Return a text without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "·" for c in text)
