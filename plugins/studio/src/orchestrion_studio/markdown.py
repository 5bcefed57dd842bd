"""A run as Markdown, for a pull request: the first line says whether learning beat the rules."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrion.runs import Estimate, Report, RunReader, diagnose, stored_report
from orchestrion_studio.braille import sparkline
from orchestrion_studio.lessons import lessons_of
from orchestrion_studio.wording import count, difference, duration, figure, fixed, percent, usd

WIDTH = 40
MOST_LINES = 40
"""Lines of a difference that are printed."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~@&])")


def markdown_of(store: RunReader) -> str:
    """Return the results of a run, what it learned and what it cost, as Markdown."""
    report = stored_report(store)
    lines = [f"**{_verdict(report)}**", "", f"### {_plain(store.directory.name)}", ""]
    lines += [*_facts(store), ""]
    if report is not None:
        lines += [*_results(report), ""]
    lines += _notes(store)
    lines += _learned_lines(store)
    return "\n".join(lines).rstrip() + "\n"


def _verdict(report: Report | None) -> str:
    """Return whether learning beat the rules, in a sentence."""
    if report is None:
        return "Whether learning beat the rules is not known: the run was not evaluated."
    rivals, ahead = len(report.ahead), len(report.verdict.ahead_of)
    if not rivals:
        return "Whether learning beat the rules is not known: the config names no baseline."
    text = _plain(report.verdict.as_text(report))
    if ahead == rivals:
        which = "both baselines" if rivals == 2 else f"all {_baselines(rivals)}"
        return f"Learning beat {'the baseline' if rivals == 1 else which}: {text}."
    if ahead:
        return f"Learning beat {ahead} of {_baselines(rivals)}: {text}."
    which = "any of the " if rivals > 1 else "the "
    return f"Learning did not beat {which}{_baselines(rivals)}: {text}."


def _baselines(number: int) -> str:
    return "baseline" if number == 1 else f"{number} baselines"


def _facts(store: RunReader) -> list[str]:
    iterations, spend = store.iterations(), store.spend()
    episodes = sum(iteration.episodes for iteration in iterations)
    rewards = [math.nan if i.reward is None else i.reward for i in iterations]
    lines = [
        f"- {store.status}: {count(len(iterations))} iterations, {count(episodes)} training "
        f"episodes, {duration(store.seconds)} of work",
        *([f"- it ended with: {_plain(store.detail)}"] if store.detail else []),
        f"- spent: {count(spend.calls)} calls, {count(spend.tokens)} tokens, {usd(spend.usd)}",
    ]
    known = [reward for reward in rewards if math.isfinite(reward)]
    if len(known) > 1:
        curve = sparkline(rewards, WIDTH)
        lines.append(f"- reward while training: {fixed(known[0])} `{curve}` {fixed(known[-1])}")
    return lines


def _results(report: Report) -> list[str]:
    """Return the table of baselines."""
    first = report.contenders[0].name
    tries = "" if report.seeds == 1 else f", {report.seeds} tries each"
    heads = ["", "solved", "reward", f"cost ({report.unit})", f"{first} ahead by"]
    lines = [
        f"Held-out split {_plain(report.split)}: {count(report.problems)} problems{tries}.",
        "",
        _row([_plain(head) for head in heads]),
        _row(["---", "---:", "---:", "---:", "---:"]),
    ]
    for team in report.contenders:
        cells = [_plain(team.name), _share(team.solved), _number(team.reward), _number(team.cost)]
        lines.append(_row([*cells, _ahead(report.ahead.get(team.name))]))
    lines += ["", "95 % intervals, bootstrap over problems; one training seed."]
    missing = [f"{_plain(t.name)} {t.missing}" for t in report.contenders if t.missing]
    if missing:
        lines.append(f"Episodes without a reward, left out: {', '.join(missing)}.")
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _share(value: Estimate) -> str:
    if not value.count:
        return "-"
    return f"{percent(value.mean)} [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def _number(value: Estimate) -> str:
    if not value.count:
        return "-"
    ends = f" [{fixed(value.low)}, {fixed(value.high)}]" if value.low != value.high else ""
    return f"{fixed(value.mean)}{ends}"


def _ahead(value: Estimate | None) -> str:
    if value is None or not value.count:
        return ""
    if value.low == value.high == 0:
        return "no difference"
    text = f"{difference(value.mean)} [{difference(value.low)}, {difference(value.high)}]"
    return f"**{text}**" if value.excludes_zero else text


def _notes(store: RunReader) -> list[str]:
    findings = diagnose(store)
    lines = [
        f"- {'**warning**' if finding.level > 1 else 'note'}: {_plain(finding.text)} "
        f"({_plain(finding.advice)})"
        for finding in findings
    ]
    return [*lines, ""] if lines else []


def _learned_lines(store: RunReader) -> list[str]:
    """Return learned settings as differences, folded, and in words what else was learned."""
    sections = lessons_of(store)["sections"]
    lines = []
    for section in sections:
        if section["kind"] == "settings":
            for row in section["rows"]:
                lines += _setting(row)
        elif section["kind"] == "steps":
            for row in section["rows"]:
                name = f" for {_plain(row['category'])}" if row["category"] else ""
                steps = " → ".join(_plain(step) for step in row["steps"])
                lines += [f"- {_plain(section['title'])}{name}: {steps}"]
        elif section["kind"] == "habits":
            lines += [f"- habit of {_habit(row)}" for row in section["rows"]]
        elif section["kind"] == "front":
            lines += [
                f"- graph in use: {_plain(row['graph'])}, reward {figure(row['mean'])} at cost "
                f"{figure(row['cost'])}, held out"
                for row in section["members"]
                if row["chosen"]
            ]
    if not lines:
        return []
    return ["<details><summary>What was learned</summary>", "", *lines, "", "</details>"]


def _habit(row: Mapping[str, Any]) -> str:
    state = "in use" if row["status"] == "active" else f"{row['status']} ({row['reason']})"
    ends = f"[{difference(row['low'])}, {difference(row['high'])}]"
    effect = f"{difference(row['mean'])} {ends}"
    return f"{_plain(row['agent'])}, {_plain(state)}, {effect}: {_plain(row['text'])}"


def _setting(row: Mapping[str, Any]) -> list[str]:
    if row["bars"]:
        values = ", ".join(f"{_plain(bar['name'])} {figure(bar['value'])}" for bar in row["bars"])
        return [f"- {_plain(row['path'])}: {values}"]
    shown = [line for line in row["diff"].splitlines() if line[:1] in ("+", "-")]
    signs = [line.replace("```", "'''") for line in shown[:MOST_LINES]]
    if len(shown) > MOST_LINES:
        signs.append(f"# {len(shown) - MOST_LINES} more lines")
    return ["", f"{_plain(row['path'])}", "", "```diff", *signs, "```", ""]


def _plain(text: str) -> str:
    """Return a text on one line in which Markdown sees nothing but letters."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
