"""Verdicts that the judged program cannot sway.

`judge_calls` compares outside: the program gets one input at a time under a random number, its
reply is decoded into plain data and compared here, with wanted values that never enter the
sandbox. `judge_statements` is for tests that are code: they run in one sandbox, the program in
another, and calls between the two are relayed as plain data.

Whatever comes out of a sandbox is read under a catch-all: any surprise fails the case.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from attrs import evolve

from orchestrion_sandbox.compare import Outside, same, shown
from orchestrion_sandbox.dialogue import (
    MAX_TEXT,
    Dialogue,
    Forged,
    Reply,
    brought_down,
    in_thread_if_large,
    printable,
    raised,
    to_pass_on,
)
from orchestrion_sandbox.inside.plain import encode
from orchestrion_sandbox.interface import ConversationEnded, Limits, Program
from orchestrion_sandbox.supervising import Box
from orchestrion_sandbox.verdict import Case, CaseOutcome, Method, Verdict

JUDGE_LIMITS = Limits(wall_seconds=15.0, cpu_seconds=3, output_bytes=1 << 20)
"""Limits of one process of a judged program. The CPU time ends an endless program, even on a busy
machine; the wall clock ends a program that only waits."""

_RESTARTS = 2  # of a program that one case brought down, so that the others are still judged


async def judge_calls(
    box: Box,
    source: str,
    entry_point: str,
    cases: Sequence[Case],
    *,
    limits: Limits = JUDGE_LIMITS,
    seconds: float | None = None,
) -> Verdict:
    """Call a function of a program with each case's arguments and compare outside.

    One case is repeated at the end, which finds programs that are right only once.

    Args:
        box: an open sandbox.
        source: the program.
        entry_point: the function, by its name in the program.
        cases: in the order of their calls.
        limits: of each process of the program; after a case that brought it down it is started
            again, at most twice.
        seconds: for the whole verdict, from when it has a slot of the box; by default twice
            `limits.wall_seconds`.

    Raises:
        SandboxError: if the sandbox itself failed.
    """

    def check(case: Case) -> _Check:
        async def call(program: Dialogue, tests: Dialogue | None) -> CaseOutcome:
            request = {"call": entry_point, "args": encode(list(case.args))}
            reply = await _reply(program, request | {"named": encode(dict(case.named))})
            return await in_thread_if_large(program.size, compared, reply, case)

        return call

    judge = _Judge(box, "outside", Program(source), limits, seconds)
    return await judge.verdict([check(case) for case in cases])


async def judge_statements(
    box: Box,
    source: str,
    entry_point: str | Sequence[str],
    statements: Sequence[str],
    *,
    prelude: str = "",
    limits: Limits = JUDGE_LIMITS,
    seconds: float | None = None,
) -> Verdict:
    """Run tests that are code; a statement that raises nothing has passed.

    The statements and `prelude`, which the author of the task wrote, run in a sandbox of their
    own, in one namespace. Plain data crosses as it is, an iterator one item at a time, an
    exception as a class of its name below its built-in bases; those that end loops arrive as
    RuntimeError. Functions can be called from either side. A statement for which the program would
    have to give any other object is `Unproven`, which is no pass: the object could have another
    value each time it is read. What the program does to its arguments is not seen.

    Args:
        box: an open sandbox.
        source: the program.
        entry_point: the functions that the statements call, or the only one.
        statements: the tests, in their order.
        prelude: code that is run once before them.
        limits: of each process of the program, and of the tests.
        seconds: for the whole verdict; see `judge_calls`.

    Raises:
        SandboxError: if the sandbox itself failed.
    """

    def check(statement: str) -> _Check:
        async def execute(program: Dialogue, tests: Dialogue | None) -> CaseOutcome:
            assert tests is not None
            lost: list[Exception] = []

            async def relay(request: Reply) -> Reply:
                if lost:
                    return {"error": "Gone"}
                try:
                    reply = await _reply(program, request)
                    return await in_thread_if_large(program.size, to_pass_on, reply)
                except (_Down, Forged) as error:
                    lost.append(error)
                    return {"error": "Gone"}  # so that the statement comes to its end

            try:
                reply = await tests.ask({"statement": statement}, relay)
            except ConversationEnded as error:
                if not lost:  # the tests themselves ended, which is no forgery
                    reason = (await tests.run.result()).reason or error
                    outcome = CaseOutcome(False, "Gone", f"the tests ended: {reason}")
                    raise _Down(outcome) from None
            if lost:
                raise lost[0]
            if unproven := [printable(text) for text in reply.get("unproven", ())]:
                judge.unproven.update(unproven)
                return CaseOutcome(False, "Unproven", printable("; ".join(unproven)))
            return raised(reply) or CaseOutcome(passed=True)

        return execute

    names = [entry_point] if isinstance(entry_point, str) else list(entry_point)
    tests = (Program(prelude), {"role": "statements", "relayed": names})
    judge = _Judge(box, "split", Program(source), limits, seconds, tests)
    return await judge.verdict([check(statement) for statement in statements])


# ---------------------------------------------------------------- one program, many cases

_Check = Callable[[Dialogue, "Dialogue | None"], Awaitable[CaseOutcome]]


class _Down(Exception):
    """A case brought its process down; the outcome says how."""

    def __init__(self, outcome: CaseOutcome) -> None:
        super().__init__(outcome.error)
        self.outcome = outcome


async def _reply(program: Dialogue, request: Reply) -> Reply:
    """Return the program's reply.

    Raises:
        _Down: if it ends instead.
        Forged: if it answers anything else, or ends as if all were well.
    """
    try:
        return await program.ask(request)
    except ConversationEnded as error:
        raise _Down(brought_down(await program.run.result(), error)) from None


class _Judge:
    """Checks a program case by case, and starts it again after a case that brought it down."""

    def __init__(
        self,
        box: Box,
        method: Method,
        program: Program,
        limits: Limits,
        seconds: float | None,
        tests: tuple[Program, Mapping[str, Any]] | None = None,
    ) -> None:
        self.box, self.program, self.limits, self.tests = box, program, limits, tests
        self.blank = Verdict((), method, backend=box.backend, level=box.level)
        self.forgeries: list[str] = []
        self.unproven: set[str] = set()
        self.cpu_seconds = 0.0
        # A program may be started again, but not without end.
        self.seconds = 2 * limits.wall_seconds if seconds is None else seconds
        self.case = 0

    async def verdict(self, checks: Sequence[_Check]) -> Verdict:
        """Run all checks, and one of them again."""
        todo = list(enumerate(checks))
        if todo:
            todo.append(secrets.choice(todo))
        outcomes: dict[int, CaseOutcome] = {}
        done, starts = 0, 0
        async with self.box.slots:
            try:
                async with asyncio.timeout(self.seconds):
                    while done < len(todo) and starts <= _RESTARTS and not self.forgeries:
                        starts += 1
                        done += await self._until_down(todo[done:], outcomes)
            except TimeoutError:
                text = f"the verdict took more than {self.seconds:g} seconds"
                outcomes[self.case] = CaseOutcome(False, "OutOfTime", text)
        missing = CaseOutcome(passed=False, error="NotReached")
        return evolve(
            self.blank,
            outcomes=tuple(outcomes.get(i, missing) for i in range(len(checks))),
            forgeries=tuple(self.forgeries),
            unproven=tuple(sorted(self.unproven)),
            cpu_seconds=self.cpu_seconds,
        )

    async def _until_down(
        self, todo: Sequence[tuple[int, _Check]], outcomes: dict[int, CaseOutcome]
    ) -> int:
        """Run checks until one brings the program down; return how many were run."""
        done = 0
        async with AsyncExitStack() as stack:
            program, tests = await self._started(stack)
            try:
                for i, check in todo:
                    done, self.case = done + 1, i
                    outcome = await check(program, tests)
                    if i not in outcomes or not outcome.passed:  # the repeated one must pass again
                        outcomes[i] = outcome
                await program.end()
            except Forged as error:
                self.forgeries.append(str(error))
            except _Down as down:
                outcomes[self.case] = down.outcome
        self.cpu_seconds += (await program.run.result()).cpu_seconds
        return done

    async def _started(self, stack: AsyncExitStack) -> tuple[Dialogue, Dialogue | None]:
        async def start(program: Program, harness: Mapping[str, Any] | None = None) -> Dialogue:
            conversation = self.box.converse(program, self.limits, harness)
            return Dialogue(await stack.enter_async_context(conversation))

        if self.tests is None:
            return await start(self.program), None
        tests = await start(*self.tests)
        return await start(self.program, {"objects": True}), tests


_OUTSIDE = Outside()


def compared(reply: Reply, case: Case) -> CaseOutcome:
    """Return the outcome of a case from the reply; an unexpected reply fails the case."""
    failed = raised(reply)
    if failed is not None:
        return evolve(failed, passed=_is_wanted(failed.error, reply, case.raises))
    try:
        got = _OUTSIDE.decode(reply["value"])
        passed = not case.raises and same(got, case.wanted, case.equal, case.tolerance)
    except Exception as error:  # hostile data: too deep, too large, unhashable, ...
        return CaseOutcome(False, "Refused", f"its answer is no plain data: {type(error).__name__}")
    return CaseOutcome(passed, got=printable(shown(got, MAX_TEXT)))


def _is_wanted(name: str, reply: Reply, wanted: str) -> bool:
    """Return whether it raised the wanted exception or one derived from it."""
    if not wanted or reply.get("unloaded"):
        return False
    kinds = reply.get("kinds")
    return name == wanted or (isinstance(kinds, list) and wanted in kinds)
