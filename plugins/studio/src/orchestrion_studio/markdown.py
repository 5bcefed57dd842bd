"""A run as Markdown, for a pull request: the first line says whether learning beat the rules."""

from __future__ import annotations

import math
import re

from orchestrion.runs import Report, RunReader, diagnose, dollars_by_part, stored_report
from orchestrion_studio.braille import sparkline
from orchestrion_studio.lessons import lessons_of
from orchestrion_studio.page import environment
from orchestrion_studio.spending import own_cost

WIDTH = 40
MOST_LINES = 40
"""Lines of a difference that are printed."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~@&])")


def markdown_of(store: RunReader) -> str:
    """Return the results of a run, what it learned and what it cost, as Markdown."""
    report, iterations = stored_report(store), store.iterations()
    findings = diagnose(store)
    has_rules = all(finding.name != "no_baseline" for finding in findings)
    rewards = [math.nan if row.reward is None else row.reward for row in iterations]
    text = (
        environment()
        .get_template("report.md")
        .render(
            store=store,
            verdict=_verdict(report, has_rules),
            report=report,
            iterations=iterations,
            spend=(spend := store.spend()),
            cost=own_cost(spend),
            parts=dollars_by_part(store),
            rewards=[reward for reward in rewards if math.isfinite(reward)],
            curve=sparkline(rewards, WIDTH),
            findings=findings,
            sections=lessons_of(store)["sections"],
            plain=_plain,
            changes=_changes,
        )
    )
    return text.rstrip() + "\n"


def _verdict(report: Report | None, has_rules: bool = True) -> str:
    """Return whether learning beat the rules, in a sentence; first of all what beat learning.

    Without rules, it was compared with the same team before its first episode only.
    """
    if report is None:
        return "Whether learning beat the rules is not known: the run was not evaluated."
    repeated = report.repeated
    rivals = sum(name not in repeated for name in report.ahead)
    ahead = sum(name not in repeated for name in report.verdict.ahead_of)
    behind = sum(name not in repeated for name in report.verdict.behind)
    if not rivals:
        return "Whether learning beat the rules is not known: the config names no baseline."
    text = _plain(report.verdict.as_text(report))
    if ahead and report.solves_nothing:
        return f"Learning came to nothing: {text}."
    if behind:
        which = f"{behind} of {_baselines(rivals)}" if rivals > 1 else "the baseline"
        return f"Learning lost to {which}: {text}."
    if ahead == rivals and not has_rules:
        return (
            "Learning beat the same team before its first episode, and was compared with nothing "
            f"else (name rules in `evaluation.baselines`): {text}."
        )
    if ahead == rivals:
        which = "both baselines" if rivals == 2 else f"all {_baselines(rivals)}"
        return f"Learning beat {'the baseline' if rivals == 1 else which}: {text}."
    if ahead:
        return f"Learning beat {ahead} of {_baselines(rivals)}: {text}."
    which = "any of the " if rivals > 1 else "the "
    return f"Learning did not beat {which}{_baselines(rivals)}: {text}."


def _baselines(number: int) -> str:
    return "baseline" if number == 1 else f"{number} baselines"


def _changes(diff: str) -> str:
    """Return the lines of a difference that were taken out or came in."""
    shown = [line for line in diff.splitlines() if line[:1] in ("+", "-")]
    lines = [line.replace("```", "'''") for line in shown[:MOST_LINES]]
    if len(shown) > MOST_LINES:
        lines.append(f"# {len(shown) - MOST_LINES} more lines")
    return "".join(f"{line}\n" for line in lines)


def _plain(text: str) -> str:
    """Return a text on one line in which Markdown sees nothing but letters."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
