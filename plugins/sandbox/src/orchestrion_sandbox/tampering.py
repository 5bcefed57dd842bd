"""Tamper-evident pytest: tests and program share a process, and must-fail twins have to fail.

For projects that cannot be taken apart. The program may do what it likes to the interpreter, to
pytest and to the report; what it cannot do is tell a test from its twin without knowing the right
answer. This is evidence, not proof: a test without a twin rests on the program's word.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from attrs import evolve

from orchestrion_sandbox.asking import printable
from orchestrion_sandbox.interface import Box, Limits, Program, Result
from orchestrion_sandbox.pytest_profile import pytest_profile
from orchestrion_sandbox.split import (
    PYTEST_LIMITS,
    CollectionFailed,
    collect,
    modules_of,
    outcome_of,
    paths_of,
)
from orchestrion_sandbox.twins import Twinned, twinned
from orchestrion_sandbox.verdict import CaseOutcome, Verdict

__all__ = ["judge_repository"]

_SETTINGS = frozenset(
    "conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini setup.cfg".split()
)
_STARTED = frozenset(("sitecustomize.py", "usercustomize.py"))
"""What an interpreter runs by itself."""


async def judge_repository(
    box: Box,
    tests: Mapping[str, str],
    files: Mapping[str, str],
    *,
    limits: Limits = PYTEST_LIMITS,
    draw: random.Random | None = None,
) -> Verdict:
    """Run a project's tests in one process with it, with must-fail twins among them.

    The author's tests are laid over the project: a file of the project at the same path, its
    conftest.py, settings of pytest and what an interpreter runs by itself are left out. It is
    accepted if exactly the real tests pass and exactly their twins fail.

    Args:
        box: an open sandbox; the tests run in one beside it, which has pytest.
        tests: the author's files by path; a conftest.py at the top is used, others are not.
        files: the project's files by path.
        limits: of the run.
        draw: for names, order and twins; None draws from the system.

    Returns:
        One outcome a real test, with its id as `name`; a test passes with all its twins failing.
        `unproven` has the tests without a twin.

    Raises:
        SandboxError: if the sandbox itself failed, or pytest is not installed.
    """
    draw = draw or random.SystemRandom()
    blank = Verdict((), "tamper-evident", backend=box.backend, level=box.level)
    try:
        plan = _Plan(tests, draw)
        async with box.slots:
            ids = await collect(box, plan.files, sorted(modules_of(files)), limits=limits)
    except (SyntaxError, CollectionFailed) as error:
        return evolve(blank, reason=printable(str(error)))
    real = {
        id: plan.original(id, "real")
        for id in sorted(ids, key=plan.place)
        if plan.kind(id) == "real"
    }
    if len(real) == len(ids):
        return evolve(blank, reason="no test has a twin: nothing would be evident")
    laid, forgeries = _laid_over(files, plan.files)
    word = secrets.token_hex(16)
    source = f"from orchestrion_sandbox.inside.suite import shared\nshared({word!r}, *{plan.run!r})"
    program = Program(source, {path: text.encode() for path, text in laid.items()})
    result = await box.beside(pytest_profile()).run(program, limits=limits)
    report, problems = _report(result, word)
    if report is None or sorted(report["collected"]) != sorted(ids):
        why = "; ".join(problems) or "other tests were collected"
        gone = CaseOutcome(False, "NotReached", printable(why))
        outcomes = tuple(evolve(gone, name=name) for name in real.values())
    else:
        outcomes = tuple(
            _outcome(id, name, plan.twins_of(id, ids), report["reports"], forgeries)
            for id, name in real.items()
        )
    return evolve(
        blank,
        outcomes=outcomes,
        forgeries=tuple(dict.fromkeys([*forgeries, *_forged(problems)])),
        unproven=tuple(sorted(plan.without)),
        cpu_seconds=result.cpu_seconds,
    )


class _Plan:
    """The tests with their twins, under random names, and how to read them."""

    def __init__(self, tests: Mapping[str, str], draw: random.Random) -> None:
        self.files: dict[str, str] = {}
        self._mixed: dict[str, tuple[str, Twinned]] = {}
        self.without: list[str] = []
        paths, plugins = paths_of(tests)
        for path, text in tests.items():
            if path not in paths:
                self.files[path] = text
                continue
            mixed = twinned(text, draw)
            if not mixed.real:
                self.files[path] = text
                continue
            new = str(PurePosixPath(path).with_name(f"test_{draw.getrandbits(48):012x}.py"))
            self.files[new] = mixed.source
            self._mixed[new] = (path, mixed)
            self.without += [f"{path}::{name}" for name in mixed.without]
        self.run = (sorted(self._mixed), plugins)

    def kind(self, id: str) -> str:
        """Whether a collected test is a "real" one or a "twin"."""
        path, _, name = _parts(id)
        return "twin" if name in self._mixed[path][1].twins else "real"

    def original(self, id: str, kind: str) -> str:
        """The id that the author knows."""
        path, row, name = _parts(id)
        old, mixed = self._mixed[path]
        return f"{old}::{(mixed.real if kind == 'real' else mixed.twins)[name]}{row}"

    def place(self, id: str) -> int:
        """Where the author has it; rows of one test stay in their order."""
        path, _, name = _parts(id)
        real = list(self._mixed[path][1].real)
        at = list(self._mixed).index(path)
        return at * 10**6 + (real.index(name) if name in real else len(real))

    def twins_of(self, id: str, ids: Sequence[str]) -> list[str]:
        """The same row of each twin; a twin has as many rows as its test, in the same order."""
        path, _, name = _parts(id)
        mixed = self._mixed[path][1]
        row = _rows(ids, path, name).index(id)
        twins = [twin for twin, of in mixed.twins.items() if of == mixed.real[name]]
        return [_rows(ids, path, twin)[row] for twin in twins]


def _rows(ids: Sequence[str], path: str, name: str) -> list[str]:
    return [id for id in ids if (_parts(id)[0], _parts(id)[2]) == (path, name)]


def _parts(id: str) -> tuple[str, str, str]:
    """A test's file, its row of a parametrization, and its name."""
    path, _, rest = id.partition("::")
    name, bracket, row = rest.partition("[")
    return path, bracket + row, name


def _outcome(
    id: str,
    name: str,
    twins: Sequence[str],
    reports: Sequence[Sequence[str]],
    forgeries: list[str],
) -> CaseOutcome:
    outcome = outcome_of(id, reports)
    for twin in twins:
        phases = {when: how for found, when, how, _ in reports if found == twin}
        wanted = {"setup": "passed", "call": "failed", "teardown": "passed"}
        if outcome.passed and phases.get("call") == "passed":
            forgeries.append("tests pass whatever they want")
        if outcome.passed and phases != wanted:
            outcome = CaseOutcome(False, "TwinPassed", "a test that wants another value passes")
    return evolve(outcome, name=name)


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


def _report(result: Result, word: str) -> tuple[dict[str, Any] | None, list[str]]:
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
        sound = all(len(row) == 4 and all(type(cell) is str for cell in row) for row in rows)
        sound = sound and all(type(id) is str for id in report["collected"])
    except Exception:  # whatever a forged report makes a parser raise
        sound = False
    return (report, []) if sound else (None, ["FORGED: a report that pytest cannot have made"])


def _forged(problems: Sequence[str]) -> list[str]:
    return [p.removeprefix("FORGED: ") for p in problems if p.startswith("FORGED: ")]
