"""Verdicts that the judged program cannot sway.

`judge_calls` compares outside: the program gets one input at a time under a random number, its
answer is decoded into plain data and compared here, with wanted values that never went in.
`judge_statements` is for tests that are code: they run in one sandbox, the program in another,
and calls between them are relayed as plain data. `split.judge_pytest` does the same for files of
pytest. `repository.judge_repository`, for projects that cannot be taken apart like that, proves
nothing.

Whatever comes out of a sandbox is read under a catch-all: any surprise fails the case.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from attrs import evolve

from orchestrion_sandbox.asking import (
    MOST_SHOWN,
    Asked,
    Forged,
    Reply,
    aside,
    brought_down,
    for_the_other_side,
    printable,
    raised,
)
from orchestrion_sandbox.compare import Outside, same, shown
from orchestrion_sandbox.errors import ConversationEnded
from orchestrion_sandbox.inside.plain import encode
from orchestrion_sandbox.interface import Box, Limits, Program
from orchestrion_sandbox.verdict import Case, CaseOutcome, Method, Verdict, if_proven

__all__ = ["JUDGE_LIMITS", "RESTARTS", "judge_calls", "judge_statements", "late", "most_seconds"]

JUDGE_LIMITS = Limits(wall_seconds=15.0, cpu_seconds=3, output_bytes=1 << 20)
"""For one process of a judged program. CPU time tells an endless program, on a busy machine too;
the wall clock is for those that only wait."""

RESTARTS = 2  # of a program that one case brought down, so that the others are still judged


async def judge_calls(
    box: Box,
    source: str,
    entry_point: str,
    cases: Sequence[Case],
    *,
    limits: Limits = JUDGE_LIMITS,
    stateful: bool = False,
    seconds: float | None = None,
) -> Verdict:
    """Call a function of a program with each case's arguments and compare outside.

    Args:
        box: an open sandbox.
        source: the program.
        entry_point: the function, by its name in the program.
        cases: in the order they are asked.
        limits: of each process of the program; one that a case brought down is replaced twice.
        stateful: whether calls may depend on earlier ones. If not, one case is asked again at the
            end, which finds programs that are right only once.
        seconds: for the whole verdict, from when it has a place in the box; None is twice
            `limits.wall_seconds`.

    Raises:
        SandboxError: if the sandbox itself failed.
    """
    asked = list(enumerate(cases))
    if cases and not stateful:
        asked.append(secrets.choice(asked))

    def asking(case: Case) -> _Ask:
        async def ask(run: Asked, tester: Asked | None) -> CaseOutcome:
            request = {"call": entry_point, "args": encode(list(case.args))}
            reply = await _of(run, request | {"named": encode(dict(case.named))})
            return await aside(run.size, compared, reply, case)

        return ask

    judge = _Judge(box, "outside", Program(source), limits, most_seconds(limits, seconds))
    return await judge.verdict([(i, asking(case)) for i, case in asked], len(cases))


async def judge_statements(
    box: Box,
    source: str,
    entry_point: str | Sequence[str],
    statements: Sequence[str],
    *,
    prelude: str = "",
    limits: Limits = JUDGE_LIMITS,
    stateful: bool = False,
    seconds: float | None = None,
    accept_unproven: bool = False,
) -> Verdict:
    """Run tests that are code; one that raises nothing has passed.

    The statements and `prelude`, which the author of the task wrote, run in a sandbox of their
    own, in one namespace. Plain data crosses as it is, the items of an iterator one at a time;
    exceptions as the built-in ones they are or derive from, those that end loops as RuntimeError.
    Other objects stay with the program and have stand-ins: a statement that was given one proves
    nothing, since it may be another value at each look. What the program does to its arguments is
    not seen.

    Args:
        box: an open sandbox.
        source: the program.
        entry_point: the functions that the statements call, or the only one.
        statements: the tests, in their order.
        prelude: what they need, run once before them.
        limits: of each process of the program, and of the tests.
        stateful: whether statements may depend on earlier ones; see `judge_calls`.
        seconds: for the whole verdict; see `judge_calls`.
        accept_unproven: whether a statement may pass that rests on the program's word.

    Raises:
        SandboxError: if the sandbox itself failed.
    """

    def asking(statement: str) -> _Ask:
        async def ask(run: Asked, tester: Asked | None) -> CaseOutcome:
            assert tester is not None
            lost: list[Exception] = []

            async def relay(request: Reply) -> Reply:
                if lost:
                    return {"error": "Gone"}
                try:
                    reply = await _of(run, request)
                    return await aside(run.size, for_the_other_side, reply)
                except (Down, Forged) as error:
                    lost.append(error)
                    return {"error": "Gone"}  # so that the statement comes to its end

            try:
                reply = await tester.ask({"statement": statement}, relay)
            except ConversationEnded as error:
                if not lost:
                    raise await _down(tester, error) from None
            if lost:
                raise lost[0]
            unproven = frozenset(reply.get("unproven", ()))
            judge.unproven |= unproven
            outcome = raised(reply) or CaseOutcome(passed=True)
            return if_proven(outcome, unproven, accept_unproven)

        return ask

    names = [entry_point] if isinstance(entry_point, str) else list(entry_point)
    tests = (Program(prelude), {"role": "statements", "relayed": names})
    total = most_seconds(limits, seconds)
    judge = _Judge(box, "split", Program(source), limits, total, tests)
    asked = [(i, asking(statement)) for i, statement in enumerate(statements)]
    if asked and not stateful:
        asked.append(secrets.choice(asked))
    return await judge.verdict(asked, len(statements))


# ---------------------------------------------------------------- one program, many cases

_Ask = Callable[[Asked, "Asked | None"], Awaitable[CaseOutcome]]


def most_seconds(limits: Limits, seconds: float | None) -> float:
    """For a whole verdict: a program may be started again, not without end."""
    return 2 * limits.wall_seconds if seconds is None else seconds


def late(seconds: float, name: str = "") -> CaseOutcome:
    """The outcome of a case when the time for all of them is up."""
    text = f"the verdict took more than {seconds:g} seconds"
    return CaseOutcome(False, "OutOfTime", text, name=name)


class Down(Exception):
    """A case brought its process down; the outcome says how."""

    def __init__(self, outcome: CaseOutcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


async def _of(run: Asked, request: Reply) -> Reply:
    """What the program answers.

    Raises:
        Down: if it ends instead.
        Forged: if it answers anything else, or ends as if all were well.
    """
    try:
        return await run.ask(request)
    except ConversationEnded as error:
        raise Down(brought_down(await run.run.result(), error)) from None


async def _down(tester: Asked, error: Exception) -> Down:
    """The tests themselves ended, which is no forgery."""
    result = await tester.run.result()
    return Down(CaseOutcome(False, "Gone", f"the tests ended: {result.reason or error}"))


class _Judge:
    """Asks a program case by case, and starts it anew where a case brought it down."""

    def __init__(
        self,
        box: Box,
        method: Method,
        program: Program,
        limits: Limits,
        seconds: float,
        tests: tuple[Program, Mapping[str, Any]] | None = None,
    ) -> None:
        self.box, self.program, self.limits, self.tests = box, program, limits, tests
        self.blank = Verdict((), method, backend=box.backend, level=box.level)
        self.forgeries: list[str] = []
        self.unproven: frozenset[str] = frozenset()
        self.cpu_seconds = 0.0
        self.seconds, self.case = seconds, 0

    async def verdict(self, asked: Sequence[tuple[int, _Ask]], count: int) -> Verdict:
        outcomes: dict[int, CaseOutcome] = {}
        done, starts = 0, 0
        async with self.box.slots:
            try:
                async with asyncio.timeout(self.seconds):
                    while done < len(asked) and starts <= RESTARTS and not self.forgeries:
                        starts += 1
                        done += await self._from(asked[done:], outcomes)
            except TimeoutError:
                outcomes[self.case] = late(self.seconds)
        missing = CaseOutcome(passed=False, error="NotReached")
        return evolve(
            self.blank,
            outcomes=tuple(outcomes.get(i, missing) for i in range(count)),
            forgeries=tuple(self.forgeries),
            unproven=tuple(sorted(self.unproven)),
            cpu_seconds=self.cpu_seconds,
        )

    async def _from(
        self, asked: Sequence[tuple[int, _Ask]], outcomes: dict[int, CaseOutcome]
    ) -> int:
        """Ask until a case brings the program down; how many were asked."""
        done = 0
        async with AsyncExitStack() as stack:
            run, tester = await self._started(stack)
            try:
                for i, ask in asked:
                    done, self.case = done + 1, i
                    outcome = await ask(run, tester)
                    # A case that is asked again has to pass again.
                    if i not in outcomes or not outcome.passed:
                        outcomes[i] = outcome
                await run.end()
            except Forged as error:
                self.forgeries.append(str(error))
            except Down as down:
                outcomes[asked[done - 1][0]] = down.outcome
        self.cpu_seconds += (await run.run.result()).cpu_seconds
        return done

    async def _started(self, stack: AsyncExitStack) -> tuple[Asked, Asked | None]:
        converse = self.box.converse
        if self.tests is None:
            return Asked(await stack.enter_async_context(converse(self.program, self.limits))), None
        program, harness = self.tests
        tests = await stack.enter_async_context(converse(program, self.limits, harness))
        objects = {"objects": True, "first": 0}
        run = await stack.enter_async_context(converse(self.program, self.limits, objects))
        return Asked(run), Asked(tests)


_OUTSIDE = Outside()


def compared(reply: Reply, case: Case) -> CaseOutcome:
    """A reply held against what was wanted; any surprise in it fails the case."""
    failed = raised(reply)
    if failed is not None:
        return evolve(failed, passed=_wanted_error(failed.error, reply, case.raises))
    try:
        got = _OUTSIDE.decode(reply["value"])
        passed = not case.raises and same(got, case.wanted, case.equal, case.tolerance)
    except Exception as error:  # hostile data: too deep, too large, unhashable, ...
        return CaseOutcome(False, "Refused", f"its answer is no plain data: {type(error).__name__}")
    return CaseOutcome(passed, got=printable(shown(got, MOST_SHOWN)))


def _wanted_error(name: str, reply: Reply, wanted: str) -> bool:
    """Whether it raised what was wanted, or a built-in or own kind of it."""
    if not wanted or reply.get("unloaded"):
        return False
    kinds = reply.get("kinds")
    return name == wanted or (isinstance(kinds, list) and wanted in kinds)
