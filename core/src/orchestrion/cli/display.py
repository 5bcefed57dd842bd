"""How a run is shown: a bar with rates on a terminal, plain lines elsewhere; a table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from orchestrion.cli.streams import visible
from orchestrion.run import Progress

if TYPE_CHECKING:
    from orchestrion.interfaces import Metrics
    from orchestrion.report import Report
    from orchestrion.statistics import Estimate

__all__ = ["Display", "report_lines"]

_QUIET_SECONDS = 5.0


class Display(Progress):
    """Shows progress on standard error. Use as a context manager.

    Args:
        verbose: a line for every iteration, with everything the trainer reports.
        terminal: whether to draw a bar; by default, if standard error is a terminal.
    """

    def __init__(self, verbose: bool = False, terminal: bool | None = None) -> None:
        self._verbose = verbose
        self._out: TextIO = sys.stderr
        self._bar: Any = None
        self._task: Any = None
        self._terminal = self._out.isatty() if terminal is None else terminal
        self._name, self._total, self._done = "", 0, 0
        self._began = self._spoke = time.monotonic()
        self._began_at = 0

    def __enter__(self) -> Display:
        if self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(file=self._out),
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """A line."""
        text = visible(text)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._out, flush=True)

    def noted(self, path: str, name: str, text: str) -> None:
        """See `Progress.noted`."""
        self.say(f"{path}: {name} {text}")

    def stage(self, name: str, iterations: int, done: int) -> None:
        """See `Progress.stage`."""
        self._name, self._total, self._done = name, iterations, done
        self._began, self._began_at, self._spoke = time.monotonic(), done, 0.0
        if done:
            self.say(f"{name}: goes on after {done} of {iterations} iterations")
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=iterations, completed=done, note="")

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        """See `Progress.iteration`."""
        self._done = iteration + 1
        note = self._note(metrics, seconds)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, note=note)
        now = time.monotonic()
        last = self._done == self._total
        plain = self._bar is None and (last or now - self._spoke > _QUIET_SECONDS)
        if plain or self._verbose:
            self._spoke = now
            self.say(f"{self._name} {self._done}/{self._total}  {note}")
        if self._verbose:
            self.say("    " + "  ".join(f"{k} {_number(v)}" for k, v in sorted(metrics.items())))

    def _note(self, metrics: Metrics, seconds: float) -> str:
        spent = time.monotonic() - self._began
        left = (self._total - self._done) * spent / max(1, self._done - self._began_at)
        rate = metrics.get("episodes", 0.0) / seconds if seconds > 0 else 0.0
        unknown = metrics.get("missing", 0.0) >= metrics.get("episodes", 1.0)
        reward = "-" if unknown else f"{metrics.get('reward', 0.0):.4f}"
        return (
            f"reward {reward:>7}  solved {metrics.get('success', 0.0):6.1%}"
            f"  cost {_number(metrics.get('cost', 0.0)):>7}  {rate:5.0f} episodes/s"
            f"  ETA {_clock(left)}"
        )

    def evaluating(self, name: str, known: bool) -> None:
        """See `Progress.evaluating`."""
        self.say(f"evaluating {name}" + (" (done before)" if known else ""))


def report_lines(report: Report) -> list[str]:
    """The report as a table for people."""
    tries = "" if report.seeds == 1 else f", {report.seeds} tries each"
    head = f"held-out split '{report.split}': {report.problems} problems{tries}"
    rows = [["", "solved", "cost", "reward", "turns", "trained on"]]
    for one in report.contenders:
        rows.append(
            [
                one.name,
                _interval(one.solved, percent=True),
                _interval(one.cost),
                _interval(one.reward),
                f"{one.turns.mean:.1f}" if one.turns.count else "-",
                f"{one.trained_on} episodes" if one.trained_on else "-",
            ]
        )
    lines = [head, "", *_aligned(rows), ""]
    first = report.contenders[0].name
    for name, ahead in report.ahead.items():
        mark = "" if ahead.excludes_zero or not ahead.count else "  (the interval includes 0)"
        lines.append(f"reward of {first} minus {name}: {_interval(ahead, sign=True)}{mark}")
    if any(one.missing for one in report.contenders):
        missing = ", ".join(f"{one.name} {one.missing}" for one in report.contenders if one.missing)
        lines.append(f"episodes without a reward, left out: {missing}")
    lines.append("intervals: 95 %, bootstrap over problems; one training seed")
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _interval(value: Estimate, percent: bool = False, sign: bool = False) -> str:
    if not value.count:
        return "-"
    if percent:
        return f"{value.mean:.1%} [{100 * value.low:.1f}, {100 * value.high:.1f}]"
    plus = "+" if sign else ""
    digits = 1 if max(abs(value.low), abs(value.high)) >= 10 else 3
    return (
        f"{value.mean:{plus}.{digits}f} [{value.low:{plus}.{digits}f}, "
        f"{value.high:{plus}.{digits}f}]"
    )


def _number(value: float) -> str:
    return f"{value:.4g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
