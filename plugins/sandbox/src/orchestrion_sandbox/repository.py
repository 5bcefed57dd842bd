"""pytest in one process with the project it tests, which proves nothing.

For projects that cannot be taken apart. The program can read the tests and change the interpreter,
pytest and the report, so that every outcome is the program's word. What makes no sense but as an
attempt to sway the judge is told all the same; an attempt that is made well is not seen.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from orchestrion_sandbox.asking import printable
from orchestrion_sandbox.interface import Box, Limits, Program, Result
from orchestrion_sandbox.split import (
    PYTEST_LIMITS,
    CollectionFailed,
    collect,
    modules_of,
    outcome_of,
    paths_of,
)
from orchestrion_sandbox.suite_profile import pytest_profile
from orchestrion_sandbox.verdict import CaseOutcome, Verdict, if_proven

__all__ = ["UNPROVEN", "judge_repository"]

UNPROVEN = "the tests ran in the program's own process"
_SETTINGS = frozenset(
    "conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini setup.cfg".split()
)
_ROWS = 8
_STARTED = frozenset(("sitecustomize.py", "usercustomize.py"))
"""What an interpreter runs by itself."""


async def judge_repository(
    box: Box,
    tests: Mapping[str, str],
    files: Mapping[str, str],
    *,
    limits: Limits = PYTEST_LIMITS,
    accept_unproven: bool = False,
) -> Verdict:
    """Run a project's tests in one process with it. The program can forge the result.

    The author's tests are laid over the project: a file of the project at the same path, its
    conftest.py, settings of pytest and what an interpreter runs by itself are left out.

    Args:
        box: an open sandbox; the tests run in one beside it, which has pytest.
        tests: the author's files by path; a conftest.py at the top is used, others are not.
        files: the project's files by path.
        limits: of the run.
        accept_unproven: whether a test may pass on the program's word; else none does. Accept it
            for programs that you trust not to cheat.

    Returns:
        One outcome a test, with its id as `name`; `unproven` says why none is proven.

    Raises:
        SandboxError: if the sandbox itself failed, or pytest is not installed.
    """
    blank = Verdict((), "shared", unproven=(UNPROVEN,), backend=box.backend, level=box.level)
    try:
        async with box.slots:
            ids = await collect(box, tests, sorted(modules_of(files)), limits=limits)
    except CollectionFailed as error:
        return evolve(blank, reason=printable(str(error)))
    laid, forgeries = _laid_over(files, tests)
    word = secrets.token_hex(16)
    run = f"shared({word!r}, *{paths_of(tests)!r})"
    source = f"from orchestrion_sandbox.inside.suite import shared\n{run}"
    program = Program(source, {path: text.encode() for path, text in laid.items()})
    result = await box.beside(pytest_profile()).run(program, limits=limits)
    report, problems = _report(result, word, len(ids))
    if report is None or sorted(report["collected"]) != sorted(ids):
        why = "; ".join(problems) or "other tests were collected"
        gone = CaseOutcome(False, "NotReached", printable(why))
        outcomes = [evolve(gone, name=name) for name in ids]
    else:
        outcomes = [outcome_of(name, report["reports"]) for name in ids]
    return evolve(
        blank,
        outcomes=tuple(if_proven(one, blank.unproven, accept_unproven) for one in outcomes),
        forgeries=tuple(dict.fromkeys([*forgeries, *_forged(problems)])),
        cpu_seconds=result.cpu_seconds,
    )


def _laid_over(
    files: Mapping[str, str], tests: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The project's own files without what steers the runner, and the tests over them."""
    kept, forgeries = {}, []
    for path, text in files.items():
        name = path.rpartition("/")[2]
        if name in _STARTED or name.endswith(".pth"):
            forgeries.append(f"it brings a file that an interpreter runs by itself: {name}")
        elif name not in _SETTINGS:
            kept[path] = text
    return kept | dict(tests), forgeries


def _report(result: Result, word: str, tests: int) -> tuple[dict[str, Any] | None, list[str]]:
    """The one report, read after all processes have died."""
    if result.status != "ok" or result.truncated:
        return None, [result.reason or f"the run ended with {result.status}"]
    lines = [line for line in result.stdout.split(b"\n") if line.startswith(word.encode())]
    if len(lines) != 1:
        return None, ["FORGED: it left without a report" if not lines else "FORGED: two reports"]
    try:
        report = json.loads(lines[0][len(word) :])
        if report["exit"] is None or report["errors"]:
            return None, [str(error) for error in report["errors"]] or ["pytest did not end"]
        rows = report["reports"]
        # A test has a row for each of its phases; more would only cost time to read.
        sound = len(rows) <= _ROWS * (tests + 1) and len(report["collected"]) <= tests
        sound = sound and all(
            len(row) == 4 and all(type(cell) is str for cell in row) for row in rows
        )
        sound = sound and all(type(id) is str for id in report["collected"])
    except Exception:  # whatever a forged report makes a parser raise
        sound = False
    return (report, []) if sound else (None, ["FORGED: a report that pytest cannot have made"])


def _forged(problems: Sequence[str]) -> list[str]:
    return [p.removeprefix("FORGED: ") for p in problems if p.startswith("FORGED: ")]
