"""The terminal page of a run. Textual is imported here only."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.markup import escape
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import Footer, Static

from orchestrion import OrchestrionError
from orchestrion.runs import RunReader
from orchestrion_studio.braille import braille, smoothed, sparkline
from orchestrion_studio.standing import Standing, clock, standing_of

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Follower", "WatchApp"]

SECONDS = 1.0
"""Between two looks at the run."""
COLOURS = {
    "running": "green",
    "completed": "cyan",
    "failed": "red",
    "budget": "yellow",
    "cancelled": "yellow",
    "interrupted": "yellow",
}


class Follower:
    """Reads a run again and again; the run is opened read-only each time.

    Args:
        directory: the run's folder.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen: object = None

    def look(self) -> Standing | None:
        """Return how the run stands; None if nothing changed since the last look.

        Raises:
            StoreError: the run is gone, or damaged.
        """
        with RunReader(self.directory) as store:
            mark = store.last_iteration(), store.status, store.spend(), len(store.events())
            evaluated = list(store.load_evaluations())
            if (mark, evaluated) == self._seen:
                return None
            standing = standing_of(store)
        self._seen = mark, evaluated
        return standing


class Curve(Widget):
    """Draws one metric over the iterations."""

    DEFAULT_CSS = "Curve { height: 1fr; min-height: 6; }"

    metric = ""
    values: tuple[float, ...] = ()
    smooth = False

    def show(self, metric: str, values: tuple[float, ...], smooth: bool) -> None:
        """Draw these values from now on."""
        self.metric, self.values, self.smooth = metric, values, smooth
        self.refresh()

    def render(self) -> RenderableType:
        """Return the curve with the range of its values at the left."""
        known = [value for value in self.values if math.isfinite(value)]
        if not known:
            name = f"{_named(self.metric)}: no value" if self.metric else "no iteration"
            return Text(f"{name} yet", style="dim")
        window = max(2, len(self.values) // 10)
        values = smoothed(self.values, window) if self.smooth else list(self.values)
        drawn = [value for value in values if math.isfinite(value)]
        top, bottom = f"{max(drawn):.4g}", f"{min(drawn):.4g}"
        margin = max(len(top), len(bottom)) + 1
        height = max(1, self.size.height - 2)
        lines = braille(values, max(1, self.size.width - margin), height)
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(_named(self.metric), style="bold")
        mean = f" (each the mean of {window})" if self.smooth else ""
        text.append(f" by iteration{mean}; the last is {values[-1]:.4g}\n")
        for row, line in enumerate(lines):
            label = top if row == 0 else bottom if row == len(lines) - 1 else ""
            text.append(f"{label:>{margin - 1}} ", style="dim").append(f"{line}\n", style="cyan")
        ends = f"{'1':<{max(1, self.size.width - margin - len(str(len(values))))}}{len(values)}"
        return text.append(f"{'':{margin}}{ends}", style="dim")


class WatchApp(App[None]):
    """Shows a run, and follows it.

    Args:
        directory: the run's folder.
        seconds: between two looks at it.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; }
    #upper { height: 1fr; min-height: 10; }
    #curve { width: 2fr; padding: 1 1 0 1; }
    #agents { width: 1fr; padding: 1 1 0 1; }
    #lower { height: auto; max-height: 50%; }
    #results { width: 2fr; height: auto; padding: 0 1; }
    #events { width: 1fr; height: auto; padding: 0 1; }
    .-narrow #page { overflow-y: auto; }
    .-narrow #upper, .-narrow #lower { layout: vertical; height: auto; max-height: 100%; }
    .-narrow #curve, .-narrow #agents, .-narrow #results, .-narrow #events { width: 100%; }
    .-narrow #curve { height: 10; }
    .-narrow #agents { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Leave"),
        Binding("right,m", "metric(1)", "Next metric", key_display="→"),
        Binding("left", "metric(-1)", "Previous", key_display="←"),
        Binding("s", "smooth", "Smooth"),
        Binding("p", "pause", "Pause"),
        Binding("r", "look", "Refresh"),
    ]

    def __init__(self, directory: Path, seconds: float = SECONDS) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
        self.title = directory.name
        self.standing: Standing | None = None
        self._follower, self._seconds = Follower(directory), seconds
        self._metric, self._smooth, self._paused = "", False, False
        self._problem = ""

    def compose(self) -> ComposeResult:
        """Yield the parts of the page."""
        with VerticalScroll(id="page"):
            yield Static(id="head", markup=False)
            with Horizontal(id="upper"):
                yield Curve(id="curve")
                yield Static(id="agents", markup=False)
            with Horizontal(id="lower"):
                yield Static(id="results", markup=False)
                yield Static(id="events", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Look at the run now, and then again and again."""
        self.action_look()
        self.set_interval(self._seconds, self._tick)

    def _tick(self) -> None:
        if not self._paused:
            self.action_look()

    # --------------------------------------------------------------------------- keys

    def action_look(self) -> None:
        """Look at the run in a thread, so that a slow disk never stops the keys."""
        self.run_worker(self._look, thread=True, exclusive=True, exit_on_error=False)

    def action_metric(self, step: int) -> None:
        """Show the next metric, or the previous one."""
        if self.standing is None or not self.standing.curves:
            return
        names = list(self.standing.curves)
        at = names.index(self._metric) if self._metric in names else 0
        self._metric = names[(at + step) % len(names)]
        self._draw()

    def action_smooth(self) -> None:
        """Switch between the values and their running mean."""
        self._smooth = not self._smooth
        self._draw()

    def action_pause(self) -> None:
        """Stop following, or go on."""
        self._paused = not self._paused
        self._draw()

    # --------------------------------------------------------------------------- what is shown

    def _look(self) -> None:
        try:
            standing, problem = self._follower.look(), ""
        except OrchestrionError as error:
            standing, problem = None, str(error)
        self.call_from_thread(self._take, standing, problem)

    def _take(self, standing: Standing | None, problem: str) -> None:
        if standing is None and problem == self._problem:
            return
        self.standing, self._problem = standing or self.standing, problem
        self._draw()

    def _draw(self) -> None:
        standing = self.standing
        if standing is None:
            self.query_one("#head", Static).update(Text(_plain(self._problem), style="red"))
            return
        self._metric = self._metric or next(iter(standing.curves), "")
        values = tuple(standing.curves.get(self._metric, ()))
        self.query_one("#head", Static).update(self._head(standing))
        self.query_one(Curve).show(self._metric, values, self._smooth)
        self.query_one("#agents", Static).update(_agents(standing))
        self.query_one("#results", Static).update(_results(standing))
        self.query_one("#events", Static).update(_events(standing))

    def _head(self, standing: Standing) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(_plain(standing.name), style="bold").append("  ")
        text.append(standing.status, style=f"bold {COLOURS.get(standing.status, 'white')}")
        if self._paused:
            text.append("  paused: p goes on", style="yellow")
        if standing.detail:
            text.append(f"  {_plain(standing.detail)}")
        if standing.status in ("failed", "interrupted", "budget", "cancelled"):
            text.append(f"\ngoes on with: orchestrion resume {_plain(standing.name)}")
        progress = standing.progress
        of = "" if progress.total is None else f" of {progress.total:,}"
        text.append(f"\n{_bar(progress.share)}{progress.done:,}{of} iterations")
        if progress.seconds_left is not None:
            text.append(f", about {clock(progress.seconds_left)} of training left")
        text.append(f", worked {clock(standing.seconds)}\n")
        solved = f" ({standing.solved / standing.episodes:.1%} solved)" if standing.episodes else ""
        spend = standing.spend
        text.append(f"{standing.episodes:,} training episodes{solved}; ")
        text.append(
            f"spent {spend.calls:,} calls, {spend.tokens:,} tokens, {spend.usd:.2f} dollars"
        )
        if standing.budget:
            limits = ", ".join(f"{name} {value:g}" for name, value in standing.budget.items())
            text.append(f"; budget: {limits}")
        if self._problem:
            text.append(f"\n{_plain(self._problem)}", style="red")
        return text


def _bar(share: float | None) -> str:
    if share is None:
        return ""
    full = round(20 * share)
    return f"{'█' * full}{'░' * (20 - full)} {share:4.0%}  "


def _agents(standing: Standing) -> RenderableType:
    text = Text(
        "turns by agent, last iterations\n", style="bold", no_wrap=True, overflow="ellipsis"
    )
    if not standing.agents:
        text.append("none yet", style="not bold dim")
    width = max((len(_plain(name)) for name in standing.agents), default=0)
    for name, share in standing.agents.items():
        text.append(f"{_plain(name)[:16]:{min(16, width)}} ", style="not bold")
        text.append(f"{share:6.1%} {'▇' * round(12 * share)}\n", style="not bold cyan")
    return text


def _results(standing: Standing) -> RenderableType:
    """Return the evaluations, once there are any; before that all metrics in lines."""
    report = standing.report
    if report is None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("metric")
        table.add_column("last", justify="right")
        table.add_column("by iteration")
        for name, values in list(standing.curves.items())[:8]:
            table.add_row(escape(_named(name)), f"{values[-1]:.4g}", sparkline(values, 24))
        return table
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.title = f"held-out split {escape(_plain(report.split))}, {report.problems} problems"
    for title in ("", "solved", "reward", f"{report.contenders[0].name} ahead by"):
        table.add_column(escape(_plain(title)))
    for team in report.contenders:
        ahead = report.ahead.get(team.name)
        table.add_row(
            escape(_plain(team.name)),
            f"{team.solved.mean:.1%}",
            "-" if not team.reward.count else f"{team.reward.mean:.3f}",
            f"{ahead.mean:+.3f} [{ahead.low:+.3f}, {ahead.high:+.3f}]" if ahead else "",
        )
    return table


def _events(standing: Standing) -> RenderableType:
    text = Text("last events\n", style="bold")
    for when, what in standing.events[-5:]:
        text.append(f"{when} ", style="not bold dim").append(f"{_plain(what)}\n", style="not bold")
    if not standing.events:
        text.append("none", style="not bold dim")
    return text


def _named(metric: str) -> str:
    """Return what a metric is called where it is shown."""
    return "solved" if metric == "success" else _plain(metric)


def _plain(text: str) -> str:
    """Return a text without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "·" for c in text)
