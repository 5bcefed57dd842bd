"""Report what was found: in words, as a table, as files, and by `orchestrion beam`.

A run leaves in `exports/beam/`:

`advantages-0003.csv`: one line for each finalist of iteration 3's searches.
`credits-0003.csv`: one line for each turn of these.
`tree-0003.jsonl`: one line for each trajectory of the searches, and what became of it.
`report.txt`, `report.json`: the comparison of the last iteration.

An iteration that is repeated writes the same bytes again.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrion import JSON, UsageError

if TYPE_CHECKING:
    from orchestrion_beam.groups import JudgedSearch

FEWEST_PROBLEMS = 5
"""With fewer problems nothing is claimed: resampling them says little."""
FEWEST_CALLS = 0.95
"""The report points out a baseline with less than this share of the search's calls."""


# ----------------------------------------------------------------------------------- in words


def sentences(report: Mapping[str, Any]) -> list[str]:
    """Return what the report shows, and what it does not show, as sentences."""
    beam, *rivals = report["contenders"]
    if beam["reward"]["mean"] is None:
        return ["Nothing can be said: no trajectory of the search has a reward."]
    picked = (
        "by its reward, so all had the verifier's help"
        if report["select"] == "reward"
        else f"by the value {report['value']['name']!r}"
    )
    return [
        f"On {_problems(report['problems'], 'held-out ')} beam search has a reward of "
        f"{_interval(beam['reward'])}, with {beam['calls']:.0f} calls a problem; one trajectory of "
        f"each contender is picked {picked}.",
        *(_about_rival(rival, beam) for rival in rivals),
        *_about_value(report["value"], rivals),
    ]


def _about_rival(rival: Mapping[str, Any], beam: Mapping[str, Any]) -> str:
    name, ahead = rival["name"], rival["ahead"]
    if ahead["mean"] is None:
        why = "its answers cannot be compared" if name == "self-consistency" else "no reward"
        return f"No comparison with {name}: {why}."
    if ahead["count"] < FEWEST_PROBLEMS:
        text = f"Too few problems to tell search and {name} apart"
    elif ahead["low"] > 0:
        text = f"Ahead of {name}"
    elif ahead["high"] < 0:
        text = f"Behind {name}"
    else:
        text = f"Not shown to differ from {name}"
    text += f": {_interval(ahead, sign='+')}"
    if rival["missing"]:
        text += f" on the {_problems(ahead['count'])} where it has a result"
    if rival["calls"] < FEWEST_CALLS * beam["calls"]:
        why = "it ends by itself" if rival["attempts"] == 1 else "its turns make fewer"
        text += f", but it used only {rival['calls']:.0f} calls: {why}"
    return f"{text}."


def _about_value(value: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]) -> list[str]:
    name, correlation = value["name"], value["correlation"]
    if correlation["mean"] is None:
        return [
            f"Whether the value {name!r} is better than noise cannot be told: on no held-out "
            "problem did independent trajectories end with different scores, or none was tried."
        ]
    if value["better_than_noise"] is None:
        return [
            f"Whether the value {name!r} is better than noise cannot be told from "
            f"{_problems(correlation['count'])}; its rank correlation with the final score there "
            f"is {correlation['mean']:+.3f}."
        ]
    verdict = (
        "orders unfinished trajectories better than noise"
        if value["better_than_noise"]
        else "is no better than noise"
    )
    texts = [
        f"The value {name!r} {verdict}: its rank correlation with the final score, within a "
        f"problem and on independent trajectories, is {_interval(correlation, sign='+')}, over "
        f"{_problems(correlation['count'])}."
    ]
    # A value may be better than noise and still too weak: what counts is what the calls bought.
    for rival, activity, alternative in (
        ("best-of-n", "Searching by it", "independent attempts"),
        ("greedy", "Keeping several trajectories", "`beam_width: 1` with more `samples`"),
    ):
        ahead = next((other["ahead"] for other in rivals if other["name"] == rival), None)
        if (
            ahead is None
            or ahead["mean"] is None
            or ahead["count"] < FEWEST_PROBLEMS
            or ahead["low"] > 0
        ):
            continue
        if ahead["mean"] > 0:
            texts.append(
                f"{activity} is not shown to be worth its calls: {alternative} may do as well."
            )
        else:
            texts.append(
                f"{activity} was not worth its calls here: {alternative} did as well or better."
            )
    return texts


def _problems(count: int, which: str = "") -> str:
    return f"{count} {which}problem{'s' if count != 1 else ''}"


def _interval(value: Mapping[str, Any], sign: str = "") -> str:
    form = f"{sign}.3f"
    return f"{value['mean']:{form}} [{value['low']:{form}}, {value['high']:{form}}]"


def as_text(report: Mapping[str, Any]) -> str:
    """Return the report as a table and sentences."""
    from orchestrion.cli import table

    rows = [("", "reward", "solved", "calls", "attempts", "beam ahead by")]
    for contender in report["contenders"]:
        has_reward = contender["reward"]["mean"] is not None
        ahead = contender["ahead"]
        rows.append(
            (
                contender["name"],
                _interval(contender["reward"]) if has_reward else "-",
                f"{contender['solved']:.3f}" if has_reward else "-",
                f"{contender['calls']:.1f}",
                f"{contender['attempts']:.1f}",
                _interval(ahead, sign="+") if ahead and ahead["mean"] is not None else "",
            )
        )
    return "\n".join([table(rows), "", *report["sentences"], ""])


# ----------------------------------------------------------------------------------- as files


def write_iteration(folder: Path, i: int, searches: Sequence[JudgedSearch]) -> None:
    """Write advantages, credits and trees of one iteration."""
    advantages: list[Sequence[Any]] = [
        ("problem", "episode", "path", "chosen", "value", "score", "reward", "advantage", "turns")
    ]
    credits: list[Sequence[Any]] = [("problem", "episode", "turn", "agent", "option", "credit")]
    tree = []
    for search, group, nodes, chosen in searches:
        problem = group.problem.id
        for n, (node, episode) in enumerate(zip(nodes, group.episodes, strict=True)):
            score = None if episode.scores is None else episode.scores.value
            where = [problem, episode.id]
            numbers = [node.value, score, group.rewards[n], group.advantages[n]]
            advantages.append(
                [*where, node.name, int(node is chosen), *numbers, len(episode.trajectory)]
            )
            credits += [
                [*where, turn.index, turn.agent, turn.option, credit]
                for turn, credit in zip(episode.turns, group.credits[n], strict=True)
            ]
        tree += [
            {
                "problem": problem,
                "path": node.name,
                "agents": [turn.agent for turn in node.turns],
                "options": [turn.option for turn in node.turns],
                "calls": node.calls,
                "value": node.value,
                "fate": node.fate or "grown",
                "finished": node.finished,
                "content": node.digest.hex(),
            }
            for node in search.nodes
        ]
    _write(folder, f"advantages-{i:04}.csv", _as_csv(advantages))
    _write(folder, f"credits-{i:04}.csv", _as_csv(credits))
    _write(folder, f"tree-{i:04}.jsonl", "".join(json.dumps(line) + "\n" for line in tree))


def write_report(folder: Path, report: JSON) -> None:
    """Write the report of the comparison."""
    _write(folder, "report.json", json.dumps(report, indent=1) + "\n")
    _write(folder, "report.txt", as_text(report))


def _write(folder: Path, name: str, text: str) -> None:
    from orchestrion.runs import make_folder, write_atomic

    write_atomic(make_folder(folder) / name, [text.encode(errors="replace")], "export")


def _as_csv(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# ---------------------------------------------------------------------------------- by command


@click.command("beam")
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def beam(run: str, as_json: bool) -> None:
    """Show the search of RUN beside its baselines, with as many calls each.

    `exports/beam/` in the run's folder has advantages, credits, and all trajectories.
    """
    report = report_of(run)
    click.echo(json.dumps(report, indent=1) + "\n" if as_json else as_text(report), nl=False)


def report_of(run: str | Path) -> JSON:
    """Return the report in the newest checkpoint of a run.

    Raises:
        UsageError: there is no such run, it has no trainer grpo-beam, or the comparison did not
            run yet.
    """
    from orchestrion.runs import newest_states

    directory, states = newest_states(run)
    ours = [
        state.data
        for state in states.values()
        if isinstance(state.data, dict) and {"pending", "round", "report"} <= set(state.data)
    ]
    if not ours:
        raise UsageError(
            f"{directory}: no trainer grpo-beam has saved anything in this run; name a run that "
            "it trained"
        )
    reports: list[JSON] = [data["report"] for data in ours if data["report"] is not None]
    if not reports:
        raise UsageError(
            f"{directory}: nothing is compared yet; the last iteration compares, unless "
            "`held_out` is 0"
        )
    return reports[-1]
