"""Show the progress and the results of runs as text."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TextIO

from orchestrion._cli.common import table_lines
from orchestrion._cli.streams import visible
from orchestrion._comparison import Comparison
from orchestrion._interfaces import Metrics
from orchestrion._progress import Progress, at_most
from orchestrion._records import TRAINING, Usage
from orchestrion._report import LEARNED, OWN_UNIT, Outcomes, Report, amounts, unit_of
from orchestrion._statistics import Estimate
from orchestrion._store import RunReader
from orchestrion._store.conduct import orders_by_category
from orchestrion._store.diagnosis import WARNING, Finding, diagnose
from orchestrion._store.spending import dollars_by_part

EVERY_ITERATION = tuple("episodes reward success cost turns missing limit failed_turns".split())
"""The names that `session.summarize` gives, in this order."""
NAMED = 20
"""Problems that a comparison lists by name."""
CATEGORIES, ORDERS, RARE = 12, 4, 0.05
"""Categories of which a report says who was called, in how many orders, and their least share."""
METRIC_WORDS = {
    "compactness": "edges per active agent",
    "episodes_to_90": "episodes until 90 % of the rise",
    "excluded": "episodes without a reward",
    "planned": "follows a plan, not values (1: yes)",
    "tree_weight": "weight of the trees (0 to 1)",
    "value_error": "error of predicted rewards",
}
"""Metrics whose names say little, in words."""
_QUIET_SECONDS = 5.0
"""Without a bar, an iteration is shown only if none was for so long."""


class Display(Progress):
    """Shows progress on standard error, with a bar on a terminal; a context manager.

    If it is verbose, every iteration has a line with everything the trainer reports.
    """

    def __init__(self, verbose: bool = False, terminal: bool | None = None) -> None:
        self._verbose = verbose
        self._out: TextIO = sys.stderr
        self._bar: Any = None
        self._task: Any = None
        self._terminal = self._out.isatty() if terminal is None else terminal
        self._name, self._total, self._done = "", 0, 0
        self._began = self._shown = time.monotonic()
        self._began_at = 0

    def __enter__(self) -> Display:
        if self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            console = Console(file=self._out)
            # On a narrow terminal the bar is left out first, then the end of the note.
            bar = [BarColumn(bar_width=min(24, console.width // 8))] if console.width >= 60 else []
            self._bar = Bar(
                TextColumn("{task.description}", table_column=Column(no_wrap=True)),
                *bar,
                MofNCompleteColumn(table_column=Column(no_wrap=True)),
                TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
                console=console,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        text = visible(text)
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._out, flush=True)

    def noted(self, path: str, name: str, text: str) -> None:
        self.say(f"{path}: {name} {text}")

    def stage(self, name: str, iterations: int, done: int) -> None:
        self._name, self._total, self._done = name, iterations, done
        self._began, self._began_at, self._shown = time.monotonic(), done, 0.0
        if done:
            rest = f"goes on after {done} of {iterations} iterations"
            self.say(f"{name}: {rest if done < iterations else f'all {done} iterations are done'}")
        if self._bar is not None:
            self._task = self._bar.add_task(name, total=iterations, completed=done, note="")

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        self._done = iteration + 1
        parts = self._parts(metrics, seconds)
        note = "  ".join(parts)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, note=self._fitting(parts))
        now = time.monotonic()
        last = self._done == self._total
        is_due = self._bar is None and (last or now - self._shown > _QUIET_SECONDS)
        if is_due or self._verbose:
            self._shown = now
            self.say(f"{self._name} {self._done}/{self._total}  {note}")
        if self._verbose:
            self.say("    " + "  ".join(f"{k} {v:.4g}" for k, v in sorted(metrics.items())))

    def _parts(self, metrics: Metrics, seconds: float) -> list[str]:
        """Return an iteration's results, the most important first, without costs."""
        spent = time.monotonic() - self._began
        seconds_left = (self._total - self._done) * spent / max(1, self._done - self._began_at)
        rate = metrics.get("episodes", 0.0) / seconds if seconds > 0 else 0.0
        unknown = metrics.get("missing", 0.0) >= metrics.get("episodes", 1.0)
        reward = "-" if unknown else f"{metrics.get('reward', 0.0):.4f}"
        return [
            f"reward {reward:>7}",
            f"solved {metrics.get('success', 0.0):6.1%}",
            f"ETA {_clock(seconds_left)}",
            f"{rate:5.0f} episodes/s",
        ]

    def _fitting(self, parts: Sequence[str]) -> str:
        """Return as many of the parts as the bar's line has room for."""
        width = self._bar.console.width
        bar = min(24, width // 8) + 1 if width >= 60 else 0
        room = width - len(self._name) - 1 - bar - 2 * len(str(self._total)) - 3
        note = ""
        for part in parts:
            longer = f"{note}  {part}" if note else part
            if len(longer) > room:
                break
            note = longer
        return note

    def evaluating(self, name: str, known: bool) -> None:
        self.say(f"evaluating {name}" + (" (done before)" if known else ""))

    def training(self, name: str, episodes: int, most: int | None) -> None:
        now = time.monotonic()
        if not episodes:
            self._began = self._shown = now
            limit = "" if most is None else f", on at most {most:,} episodes"
            self.say(f"training {name} first{limit}")
        elif now - self._shown > _QUIET_SECONDS:
            self._shown = now
            left = 0 if most is None else (most - episodes) * (now - self._began) / episodes
            eta = f", ETA at most {_clock(left)}" if left > 0 else ""
            self.say(f"training {name}: {episodes:,}{at_most(most)} episodes{eta}")


def report_lines(report: Report, width: int | None = None) -> list[str]:
    """Return the report in lines of at most `width` characters; default: the terminal's."""
    width = columns() if width is None else width
    tries = "" if report.seeds == 1 else f", {report.seeds} tries each"
    lines = [report.verdict.as_text(report)] if report.ahead else []
    lines += [f"{report.judged_on}: {report.problems} problems{tries}", ""]
    lines += _results(report, width)
    first = report.contenders[0].name
    for name, ahead in report.ahead.items():
        line = f"reward of {first} minus {name}: {interval(ahead, sign=True)}"
        if ahead.count and not ahead.excludes_zero:
            long = f"{line}  (the interval includes 0)"
            line = long if len(long) <= width else f"{line}  (includes 0)"
        lines.append(line)
    contenders = report.contenders
    if missing := ", ".join(f"{team.name} {team.missing}" for team in contenders if team.missing):
        lines.append(f"episodes without a reward, left out: {missing}")
    seeds = "; one training seed" if any(team.trained_on for team in contenders) else ""
    exact = ""
    if any(team.solved.mean in (0.0, 1.0) for team in contenders):
        once = ", each tried once (`evaluation.seeds`)" if report.seeds == 1 else ""
        exact = f"; exact where all or none are solved{once}"
    lines.append(f"intervals: 95 %, bootstrap over problems{exact}{seeds}")
    return wrapped(lines, width)


def _results(report: Report, width: int) -> list[str]:
    """Return tables with a row for each contender, each with as many columns as fit."""
    teams = report.contenders
    groups = (
        {
            "solved": [interval(team.solved, True) for team in teams],
            f"cost ({report.unit})": [interval(team.cost, cost=True) for team in teams],
            "reward": [interval(team.reward) for team in teams],
        },
        {
            "turns": [f"{team.turns.mean:.1f}" if team.turns.count else "-" for team in teams],
            "at limit": [f"{team.limit:.1%}" for team in teams],
            "failed": [f"{team.failed:.1%}" for team in teams],
            "trained on": [f"{n} episodes" if (n := team.trained_on) else "-" for team in teams],
        },
        {f"pass@{k}": [interval(team.passes[k], True) for team in teams] for k in teams[0].passes},
    )
    names = ["", *(team.name for team in teams)]
    lines: list[str] = []
    for group in groups:
        table: list[list[str]] = [names]
        for title, cells in group.items():
            table.append([title, *cells])
            if len(table) > 2 and max(map(len, _rows(table))) > width:
                lines += [*_rows(table[:-1]), ""]
                table = [names, table[-1]]
        lines += [*_rows(table), ""] if group else []
    return lines


def _rows(columns: Sequence[Sequence[str]]) -> list[str]:
    return table_lines(list(zip(*columns, strict=True)))


def problem_lines(outcomes: Mapping[str, Outcomes]) -> list[str]:
    """Return a table with a line for each problem: how each contender's tries ended."""
    names = list(outcomes)
    problems = dict.fromkeys(problem for rows in outcomes.values() for problem in rows)
    rows = [["problem", *(cell for name in names for cell in (name, "reward"))]]
    for problem in problems:
        cells = [_outcome(outcomes[name].get(problem)) for name in names]
        name = visible(problem).replace("\n", "\\n").replace("\t", "\\t")
        rows.append([name, *(cell for pair in cells for cell in pair)])
    return table_lines(rows)


def _outcome(row: Mapping[str, float | None] | None) -> tuple[str, str]:
    """Return how the tries of a problem ended, and the reward."""
    if row is None:
        return "", ""
    solved, reward = row["solved"] or 0.0, row["reward"]
    if solved in (0.0, 1.0):
        unsolved = "failed" if row["failed"] == 1 else "at limit" if row["limit"] == 1 else "-"
        text = "solved" if solved else unsolved
    else:
        text = f"{solved:.0%}"
    return text, "missing" if reward is None else f"{reward:.3f}"


def comparison_lines(comparison: Comparison) -> list[str]:
    """Return the lines that show a comparison."""
    first, second = comparison.names
    lines = [f"A: {first}", f"B: {second}", f"{comparison.problems} problems in both", ""]
    rows = [["", "A", "B", "A minus B"]]
    for name, (a, b, ahead) in comparison.means.items():
        percent, cost = name in ("solved", "limit", "failed"), name == "cost"
        label = {"cost": f"cost ({comparison.unit})", "limit": "at limit"}.get(name, name)
        figures = [f"{x:.1%}" if percent else figure(x, cost) for x in (a, b)]
        mark = "" if ahead.excludes_zero else "  (includes 0)"
        difference = interval(ahead, percent, cost, sign=True)
        rows.append([label, *figures, f"{difference}{mark}"])
    lines += [*table_lines(rows), ""]
    for letter, better in zip("AB", comparison.better, strict=True):
        more = f"{letter} solves more often" if comparison.several else f"only {letter} solves"
        rest = f", and {len(better) - NAMED:,} more (--json has all)" if len(better) > NAMED else ""
        lines.append(f"{more} ({len(better)}): {', '.join(better[:NAMED]) or '-'}{rest}")
    for letter, alone in zip("AB", comparison.alone, strict=True):
        if alone:
            lines.append(f"left out, judged in {letter} alone: {alone} problems")
    lines += comparison.notes
    lines.append("intervals: 95 %, bootstrap over paired problems")
    return wrapped(lines, columns())


def training_lines(store: RunReader) -> list[str]:
    """Return whom the team called, the trainers' last metrics, and the diagnosis."""
    lines = conduct_lines(store)
    for stage in sorted({iteration.stage for iteration in store.iterations()}):
        last = store.iterations(stage)[-1]
        metrics = [
            # Lines are not broken at these spaces.
            f"{METRIC_WORDS.get(name, name)} {value:.4g}".replace(" ", "\N{NO-BREAK SPACE}")
            for name, value in last.metrics.items()
            if name not in EVERY_ITERATION
        ]
        if metrics:
            lines += ["", f"stage {stage + 1}, last of {last.iteration + 1} iterations:"]
            lines += [f"  {line}" for line in _filled("  ".join(metrics))]
    return [*lines, *diagnosis_lines(diagnose(store))]


def conduct_lines(store: RunReader) -> list[str]:
    """Return whom the learned team called on problems of each category, most frequent first."""
    orders = orders_by_category(store)
    if not orders:
        return []
    rows = []
    for category, counts in islice(orders.items(), CATEGORIES):
        total, [first, *rest] = counts.total(), counts.most_common(ORDERS)
        named = [first, *(order for order in rest if order[1] >= RARE * total)]
        if others := total - sum(count for _, count in named):
            named.append(("in other ways", others))
        shares = [f"{count / total:.0%} {visible(order)}" for order, count in named]
        rows.append([*([visible(category)] if len(orders) > 1 else []), "; ".join(shares)])
    more = len(orders) - CATEGORIES
    last = [f"  and {more} more categories"] if more > 0 else []
    by = ", by category" if len(orders) > 1 else ""
    return ["", f"what {LEARNED} did{by}:", *(f"  {row}" for row in table_lines(rows)), *last]


def dollars_text(store: RunReader) -> str:
    """Return what a run spent US dollars on; "" if on nothing."""
    parts = dollars_by_part(store)
    text = ", ".join(f"{part} {figure(usd, True)}" for part, usd in parts.items())
    return f"{text} US dollars" if any(parts.values()) else ""


def diagnosis_lines(findings: Sequence[Finding]) -> list[str]:
    """Return what went wrong or could be better, and what to do; nothing if all is well."""
    lines = []
    for finding in findings:
        word = "warning" if finding.level == WARNING else "note"
        lines += _filled(f"{word}: {finding.text}")
        lines += [f"  {line}" for line in _filled(f"-> {finding.advice}", 76)]
    return ["", *lines] if lines else []


def _filled(text: str, width: int = 78) -> list[str]:
    """Return lines of at most `width` characters; names and values stay together."""
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def columns() -> int:
    """Return the width of the terminal; 80 where there is none."""
    return shutil.get_terminal_size().columns


def wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Return the lines, those that are too long broken between words."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )
    return [
        part for line in lines for part in ([line] if len(line) <= width else wrapper.wrap(line))
    ]


def interval(value: Estimate, percent: bool = False, cost: bool = False, sign: bool = False) -> str:
    """Return a mean with its interval: shares in percent, rewards and costs as numbers."""
    if not value.count:
        return "-"
    plus = "+" if sign else ""
    if percent:
        bounds = f"[{100 * value.low:{plus}.1f}, {100 * value.high:{plus}.1f}]"
        return f"{value.mean:{plus}.1%} {bounds}"
    largest = max(abs(value.mean), abs(value.low), abs(value.high))
    digits = _places(largest) if cost else 1 if largest >= 10 else 3
    mean, low, high = (f"{x:{plus}.{digits}f}" for x in (value.mean, value.low, value.high))
    return f"{mean} [{low}, {high}]"


def figure(value: float, cost: bool = False) -> str:
    """Return a number as `interval` writes it."""
    if math.isnan(value):
        return "-"
    return f"{value:.{_places(abs(value)) if cost else 3}f}"


def usage_text(usage: Usage) -> str:
    """Return a usage in words; US dollars to the cent, or with three digits if less than 1."""
    precise = f"{usage.usd:,.2f}" if usage.usd == 0 or usage.usd >= 1 else figure(usage.usd, True)
    dollars = "not known" if math.isnan(usage.usd) else precise
    return f"{usage.calls:,} calls, {usage.tokens:,} tokens, {dollars} US dollars"


def cost_text(usage: Usage) -> str:
    """Return a cost with its unit."""
    unit = unit_of([amounts(usage)])
    # Agents state what they cost in a unit of their own, which has no name.
    named = "" if unit == OWN_UNIT else f" {unit}"
    return f"cost {usage.cost:g}{named}"


def own_cost_rows(costs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return a name and a text for each of the `own_costs` of a run."""
    rows = []
    for source, sums in costs.items():
        name = "training" if source == TRAINING else f"evaluating {source}"
        parts = ", ".join(f"{agent} {cost:,.6g}" for agent, cost in sums["agents"].items())
        text = f"{sums['cost']:,.6g} ({OWN_UNIT})"
        rows.append((f"cost of {name}", f"{text}: {parts}" if parts else text))
    return rows


def _places(largest: float) -> int:
    """Return how many decimal places show three digits of a number."""
    if largest == 0 or not math.isfinite(largest):
        return 0
    return min(max(2 - math.floor(math.log10(largest)), 0), 12)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
