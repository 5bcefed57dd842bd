"""Split pytest: the tests run in one sandbox, the program in another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from attrs import evolve

from orchestrion_sandbox.asking import (
    Asked,
    Forged,
    Reply,
    aside,
    brought_down,
    for_the_other_side,
    printable,
)
from orchestrion_sandbox.errors import ConversationEnded
from orchestrion_sandbox.interface import Box, Limits, Program
from orchestrion_sandbox.judge import RESTARTS, late, most_seconds
from orchestrion_sandbox.suite_profile import pytest_profile
from orchestrion_sandbox.verdict import CaseOutcome, Verdict, if_proven

__all__ = ["PYTEST_LIMITS", "CollectionFailed", "collect", "judge_pytest", "outcome_of"]

PYTEST_LIMITS = Limits(wall_seconds=40.0, cpu_seconds=10, output_bytes=1 << 20)
"""For one process of tests, and one of a program."""

_OBJECTS = 1_000_000  # what the numbers of objects go up by when a program is started anew


class CollectionFailed(Exception):
    """The tests cannot be collected without the program."""


async def judge_pytest(
    box: Box,
    tests: Mapping[str, str],
    files: Mapping[str, str],
    *,
    module: str = "solution",
    wanted: Sequence[str] | None = None,
    limits: Limits = PYTEST_LIMITS,
    stateful: bool = False,
    seconds: float | None = None,
    accept_unproven: bool = False,
) -> Verdict:
    """Run pytest files against a program that lives in another sandbox.

    What the tests import of the program are stand-ins. Plain data crosses as it is, the items of an
    iterator one at a time; exceptions as the built-in ones they are or derive from, those that end
    loops as RuntimeError. Other objects stay with the program. Those of a class that the tests
    import by its name, which begins with a capital letter, can be called, gone through and asked
    for attributes, but not compared with plain data; comparing two of them proves nothing, and
    neither does a test that is given an object of any other class. What the program prints, and
    what it does to its arguments, is not seen by the tests.

    Args:
        box: an open sandbox. The tests run in one beside it, which has pytest.
        tests: the author's files by path; a conftest.py at the top is used.
        files: the program's modules by path; a file of the tests goes before one of the program.
        module: what the program has to have.
        wanted: ids of the tests, each of which has to pass; None collects them first, which takes
            another run, see `collect`.
        limits: of the tests, and of each process of the program.
        stateful: whether tests may depend on earlier ones; see `judge_calls`.
        seconds: for the whole verdict, collecting included; see `judge_calls`.
        accept_unproven: whether a test may pass that rests on the program's word.

    Returns:
        One outcome a wanted test, with its id as `name`. Without any, or if they could not be
        collected, a verdict that has not passed, and the reason.

    Raises:
        SandboxError: if the sandbox itself failed, or pytest is not installed.
    """
    blank = Verdict((), "split", backend=box.backend, level=box.level)
    modules = sorted({module, *modules_of(files)})
    total = most_seconds(limits, seconds)
    try:
        async with box.slots, asyncio.timeout(total):
            if wanted is None:
                wanted = await collect(box, tests, modules, limits=limits)
            judge = _Split(box, files, limits)
            report = await judge.report(tests, modules, "run" if stateful else "again")
    except CollectionFailed as error:
        return evolve(blank, reason=str(error))
    except TimeoutError:
        outcomes = tuple(late(total, name) for name in wanted or ())
        return evolve(blank, outcomes=outcomes, reason=late(total).text)
    if sorted(report["collected"]) != sorted(wanted):
        report |= {"exit": None, "errors": [*report["errors"], "other tests were collected"]}
    unproven: Mapping[str, Sequence[str]] = report.get("unproven", {})
    return evolve(
        blank,
        outcomes=tuple(
            if_proven(_outcome(name, report), unproven.get(name, ()), accept_unproven)
            for name in wanted
        ),
        forgeries=tuple(judge.forgeries),
        unproven=tuple(sorted({printable(mark) for marks in unproven.values() for mark in marks})),
        reason="" if wanted else "there are no tests",
        cpu_seconds=judge.cpu_seconds,
    )


async def collect(
    box: Box,
    tests: Mapping[str, str],
    modules: Sequence[str],
    *,
    limits: Limits = PYTEST_LIMITS,
) -> tuple[str, ...]:
    """The ids of the tests, collected without the program: what they import of it is blank.

    Raises:
        CollectionFailed: if that is not possible, or there are none.
    """
    async with box.beside(pytest_profile()).converse(*_suite(tests, modules, limits)) as run:
        try:
            report = await Asked(run).ask({"do": "collect"})
        except ConversationEnded as error:
            result = await run.result()
            raise CollectionFailed(f"collecting the tests: {result.reason or error}") from None
    if report["errors"] or report["exit"] != 0:
        errors = "; ".join(report["errors"]) or "there are no tests"
        raise CollectionFailed(f"the tests cannot be collected without the program: {errors}")
    return tuple(report["collected"])


def _suite(
    tests: Mapping[str, str], modules: Sequence[str], limits: Limits
) -> tuple[Program, Limits, dict[str, Any]]:
    files = {path: text.encode() for path, text in tests.items()}
    paths, plugins = paths_of(tests)
    settings = {"modules": list(modules), "paths": paths, "plugins": plugins}
    return Program("", files), limits, {"role": "pytest", **settings}


def paths_of(tests: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The files of tests, and the files that are plugins."""
    names = {path: path.rpartition("/")[2] for path in tests}
    paths = [
        path
        for path, name in names.items()
        if name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))
    ]
    return sorted(paths), [path for path in tests if path == "conftest.py"]


def modules_of(files: Mapping[str, str]) -> set[str]:
    found = set()
    for path in files:
        if path.endswith(".py"):
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            if all(part.isidentifier() for part in name.split(".")):
                found.add(name)
    return found


class _Split:
    """Answers what the tests ask of the program, and starts it anew where they brought it down."""

    def __init__(self, box: Box, files: Mapping[str, str], limits: Limits) -> None:
        self.box, self.limits = box, limits
        self.program = Program("", {path: text.encode() for path, text in files.items()})
        self.forgeries: list[str] = []
        self.cpu_seconds = 0.0
        self._run: Asked | None = None
        self._stack = AsyncExitStack()
        self._starts = 0

    async def report(
        self, tests: Mapping[str, str], modules: Sequence[str], do: str
    ) -> dict[str, Any]:
        """What pytest's own hook wrote down."""
        report: dict[str, Any] = {"collected": [], "reports": [], "errors": [], "exit": None}
        beside = self.box.beside(pytest_profile())
        async with self._stack, beside.converse(*_suite(tests, modules, self.limits)) as run:
            try:
                report |= await Asked(run).ask({"do": do}, self._relay)
            except ConversationEnded as error:
                result = await run.result()
                report["errors"].append(f"the tests ended: {result.reason or error}")
            await self._end()
        return report

    async def _relay(self, request: Reply) -> Reply:
        if self.forgeries or (self._run is None and self._starts > RESTARTS):
            return {"error": "Gone", "text": "the program is gone"}
        if self._run is None:
            self._run = await self._start()
        try:
            reply = await self._run.ask(request)
            return await aside(self._run.size, for_the_other_side, reply)
        except Forged as error:
            self.forgeries.append(str(error))
            return {"error": "Gone", "text": "the program is gone"}
        except ConversationEnded as error:
            return await self._gone(self._run, error)

    async def _start(self) -> Asked:
        more = {"objects": True, "first": self._starts * _OBJECTS}
        self._starts += 1
        converse = self.box.converse(self.program, self.limits, more)
        return Asked(await self._stack.enter_async_context(converse))

    async def _gone(self, run: Asked, error: Exception) -> Reply:
        result = await run.run.result()
        self.cpu_seconds += result.cpu_seconds
        self._run = None
        try:
            outcome = brought_down(result, error)
        except Forged as forged:
            self.forgeries.append(str(forged))
            return {"error": "Gone", "text": str(forged)}
        return {"error": outcome.error, "text": outcome.text}

    async def _end(self) -> None:
        if self._run is None:
            return
        try:
            if not self.forgeries:
                await self._run.end()
        except Forged as error:
            self.forgeries.append(str(error))
        self.cpu_seconds += (await self._run.run.result()).cpu_seconds


def _outcome(name: str, report: Mapping[str, Any]) -> CaseOutcome:
    if report["exit"] is None or report["errors"]:
        why = "; ".join(map(str, report["errors"])) or "pytest did not come to its end"
        return CaseOutcome(False, "NotReached", printable(why), name=name)
    return outcome_of(name, report["reports"])


def outcome_of(name: str, reports: Sequence[Sequence[str]]) -> CaseOutcome:
    """How a test went: each time it ran, each of its phases has to have passed."""
    mine = [(when, outcome, text) for found, when, outcome, text in reports if found == name]
    wrong = [(outcome, text) for _, outcome, text in mine if outcome != "passed"]
    if wrong:
        outcome, text = wrong[0]
        error, _, rest = text.partition(":")
        if outcome != "failed" or not error.isidentifier():
            error, rest = outcome.capitalize(), text
        return CaseOutcome(False, error[:200], printable(rest.strip()), name=name)
    if not {"setup", "call", "teardown"} <= {when for when, _, _ in mine}:
        return CaseOutcome(False, "NotReached", name=name)
    return CaseOutcome(True, name=name)
