"""A verdict on a trial, by the sandbox's judge, in processes that no other program was in."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from typing import Any

from attrs import evolve
from orchestrion_sandbox import Box, Verdict, judge_calls, judge_statements
from orchestrion_sandbox import Case as JudgeCase

from orchestrion_repair import harness
from orchestrion_repair.bug import TOLERANCE, Case
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits

_START = "start_anew"
"""What statements call to have the program started anew."""


async def verdict(box: Box, trial: ProgramTrial, limits: RepairLimits) -> tuple[Outcome, ...]:
    """Return one outcome a case, by the sandbox's judge.

    Calls are compared here. Statements run in a sandbox of their own; those that need more of the
    program than calls of its entry point run in its process, and are not judged `apart`. Which
    these are depends on the tests alone, never on the program.

    Raises:
        SandboxError: if the sandbox itself failed.
    """
    cases = [Case.from_json(data) for data in trial.cases]
    statements = [i for i, case in enumerate(cases) if case.statement]
    calls = [i for i, case in enumerate(cases) if not case.statement]
    inside = [i for i in statements if _needs_program(cases[i].statement, trial)]
    outcomes: dict[int, Outcome] = {}
    if apart := [i for i in statements if i not in inside]:
        outcomes |= await _judge_statements(box, trial, apart, limits)
        # Statements may pass objects of their own to the program, which cannot cross.
        if refused := [i for i in apart if outcomes[i].error == "Refused"]:
            source = f"def {_START}(): pass\ndef {trial.entry_point}(*args, **named): pass"
            alone = await _judge_statements(box, trial, refused, limits, source)
            inside += [i for i, outcome in alone.items() if outcome.error == "Refused"]
    if calls:
        judge_cases = [
            JudgeCase(tuple(cases[i].args), cases[i].want, equal="json", tolerance=TOLERANCE)
            for i in calls
        ]
        judged = await _judge_calls(box, trial, "call_anew", judge_cases, limits)
        outcomes |= zip(calls, judged, strict=True)
    if inside:
        judge_cases = [JudgeCase((cases[i].statement,), True) for i in inside]
        judged = await _judge_calls(box, trial, "passes_anew", judge_cases, limits)
        outcomes |= {
            i: evolve(outcome, apart=False) for i, outcome in zip(inside, judged, strict=True)
        }
    return tuple(outcomes[i] for i in range(len(cases)))


async def _judge_calls(
    box: Box, trial: ProgramTrial, method: str, cases: Sequence[JudgeCase], limits: RepairLimits
) -> list[Outcome]:
    source = f"{_subject(trial, limits)}\n{method} = _subject.{method}"
    return _outcomes(await judge_calls(box, source, method, cases, **_judge_limits(limits)))


async def _judge_statements(
    box: Box, trial: ProgramTrial, numbers: Sequence[int], limits: RepairLimits, source: str = ""
) -> dict[int, Outcome]:
    """Return what the statements of these numbers give, with another program if `source` has it.

    A statement sees nothing of those before it, neither here nor in the program.
    """
    entry = trial.entry_point
    own = f"{_subject(trial, limits)}\n{_START} = _subject.start\n{entry} = _subject.call"
    names = [entry, _START]
    tests = [f"{trial.prelude}\n{_START}()\n{trial.cases[i]['assert']}" for i in numbers]
    judged = judge_statements(box, source or own, names, tests, **_judge_limits(limits))
    return dict(zip(numbers, _outcomes(await judged), strict=True))


def _judge_limits(limits: RepairLimits) -> dict[str, Any]:
    return {"limits": limits.sandboxed(), "seconds": 4.0 * limits.wall_seconds}


def _subject(trial: ProgramTrial, limits: RepairLimits) -> str:
    """Return the beginning of a program that is the trial's, started anew for each case."""
    arguments = (trial.code, trial.entry_point, trial.prelude, limits.steps)
    return f"from {harness.__name__} import Subject\n_subject = Subject{arguments!r}"


def _outcomes(judged: Verdict) -> list[Outcome]:
    forged = bool(judged.forgeries)
    return [Outcome(case.passed and not forged, case.error, case.text) for case in judged.outcomes]


def _needs_program(statement: str, trial: ProgramTrial) -> bool:
    """Return whether a statement reads a name that it must have from the program."""
    bound = {trial.entry_point, *dir(builtins)}
    read = set()
    for node in ast.walk(ast.parse(f"{trial.prelude}\n{statement}")):
        match node:
            case ast.Name(name, ast.Load()):
                read.add(name)
            case (
                ast.Name(name) | ast.arg(name) | ast.FunctionDef(name) | ast.ClassDef(name)
                | ast.AsyncFunctionDef(name) | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
            ):  # fmt: skip
                bound.add(name)
            case ast.alias(name, other):
                bound.add(other or name.split(".")[0])
    return not read <= bound
