"""Commands: `judge` answers the questions of a run, `judge-report` rates its judges."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrion import JSON, UsageError
from orchestrion.cli import answer, emit, json_option, note, table

if TYPE_CHECKING:
    from orchestrion_judge.agreement import Interval
    from orchestrion_judge.human import Question, Questions
    from orchestrion_judge.report import JudgeReport


@click.command("judge")
@click.argument("target", metavar="RUN|FOLDER")
@click.option("--list", "only_list", is_flag=True, help="Show the open questions, and ask none.")
@json_option
def judge(target: str, only_list: bool, as_json: bool) -> None:
    """Answer the questions that the reward human left in RUN, or in its FOLDER.

    Type one line for each: a score, or nothing to skip it. The rest stays open at the end of input.
    """
    questions = _questions(target)
    waiting = questions.waiting()
    if as_json:
        emit({"folder": str(questions.folder), "waiting": [question.data for question in waiting]})
        return
    if only_list:
        for question in waiting:
            answer("\n".join([*question.lines, ""]))
    else:
        while waiting:
            answer("\n".join(waiting[0].lines))
            judgement = _answer(waiting[0])
            if judgement is None:
                break
            questions.answer(waiting.pop(0), judgement)
    note(f"{len(waiting)} questions wait in {questions.folder}")


def _questions(target: str) -> Questions:
    from orchestrion.runs import run_directory
    from orchestrion_judge.human import FOLDER, Questions

    if Path(target).is_dir() and not (Path(target) / "run.db").exists():
        return Questions(Path(target))
    directory = run_directory(target)
    if directory is None:
        raise UsageError(f"{target}: is a file; name a run, or a folder of questions")
    return Questions(directory / FOLDER)


def _answer(question: Question) -> dict[str, JSON] | None:
    """Read the answer; None at the end of input."""
    from orchestrion_judge.human import read_score

    while line := sys.stdin.readline():
        if not line.strip():
            return {"skipped": True}
        score = read_score(line, question.scale)
        if score is not None:
            return {"score": score}
        note(f"that is no {question.scale.in_words}")
    return None


@click.command("judge-report")
@click.argument("run", metavar="RUN")
@click.option("--source", help="Only training (train), or one evaluation by its name.")
@json_option
def judge_report(run: str, source: str | None, as_json: bool) -> None:
    """Show how reliable the judge of RUN is: missing rewards, bias, agreement with the verifier.

    Intervals are 95 %, over problems. `exports/judge.json` in the run's folder holds the same.
    """
    from orchestrion.runs import RunReader, run_directory
    from orchestrion_judge.report import report_of_run

    directory = run_directory(run)
    if directory is None:
        raise UsageError(f"{run}: is a file; name a run")
    with RunReader(directory) as store:
        reports = report_of_run(store, source)
    if as_json:
        emit({"run": str(directory), "judges": [report.as_json() for report in reports]})
        return
    if not reports:
        raise UsageError(f"{directory}: the run has no judgements")
    for report in reports:
        click.echo(_text(report))


def _text(report: JudgeReport) -> str:
    counts = [
        f"judged {report.judged}",
        f"not judged {report.unjudged}",
        f"missing {sum(report.missing.values())}",
        f"asked again {report.again}",
    ]
    rows = [
        ("agreement with the verifier (rank correlation)", report.agreement),
        ("solved above unsolved (AUC)", report.tells_success),
        ("with length (rank correlation)", report.length),
        ("with length, given the verifier's score", report.length_given_verifier),
        ("given order minus reverse", report.position),
        ("size of that difference", report.flips),
    ]
    lines = [f"{report.judge}: {', '.join(counts)}"]
    if report.mean is not None:
        lines.append(f"mean value {report.mean:.3f}")
    lines.append(table([(f"  {name}", _number(row)) for name, row in rows]))
    lines += [f"  {count} x missing: {why[:200]}" for why, count in report.missing.items()]
    return "\n".join([*lines, *report.findings])


def _number(measured: Interval) -> str:
    if not measured.count or measured.value != measured.value:
        return "-"
    if not measured.known:
        return f"{measured.value:.3f}"
    return f"{measured.value:.3f} [{measured.low:.3f}, {measured.high:.3f}] over {measured.over}"
