"""Many candidates in long-lived sandboxed processes, one program after the other.

Wanted values stay in this process. Results never depend on load or time: a program that loops is
ended by a number of steps (`harness.py`); CPU seconds, memory and the wall clock are there for what
steps cannot count, far above any honest run.
"""

from __future__ import annotations

import ast
import json
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from orchestrion_sandbox import Box, ConversationEnded, Program
from orchestrion_sandbox.inside.plain import decode, encode

from orchestrion import JSON, RunError
from orchestrion_repair import harness
from orchestrion_repair.bug import Case, same
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits

MOST_USES = 5_000
"""Requests to one process of a search before it is replaced, so that it cannot grow for ever."""
_DAYS = 30 * 86_400
_ENDINGS = {getattr(signal, name, 0) for name in ("SIGKILL", "SIGXCPU", "SIGPROF")} - {0}


class _Process:
    """A conversation with a process that runs programs, one after the other."""

    def __init__(self, limits: RepairLimits, alone: bool) -> None:
        self.limits, self.alone = limits, alone
        self.uses = 0
        self._stack = AsyncExitStack()
        self._run: Any = None

    async def open(self, box: Box) -> _Process:
        # Of a shared process each program has a clock of its own, and nobody bounds the whole.
        more = {} if self.alone else {"cpu_seconds": _DAYS}
        limits = self.limits.sandboxed(wall_seconds=_DAYS, **more)
        conversation = box.converse(Program(""), limits, {"answers": f"{harness.__name__}:answer"})
        self._run = await self._stack.enter_async_context(conversation)
        return self

    async def ask(self, request: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the reply; one with an `error` and `gone` if the process ended."""
        self.uses += 1
        line = json.dumps({"id": self.uses, **request}).encode()
        try:
            reply = json.loads(await self._run.ask(line, self.limits.wall_seconds))
        except ConversationEnded:
            return {"error": await self._ended(), "gone": True}
        except Exception:  # hostile bytes may raise anything; all of it is a failure
            return {"error": "BadReply", "gone": True}
        if not isinstance(reply, dict) or reply.get("id") != self.uses:
            return {"error": "BadReply", "gone": True}
        if reply.get("error") == "MemoryError":  # what it left behind could change what comes next
            reply["gone"] = True
        return reply

    async def _ended(self) -> str:
        """Return the name of what ended the process.

        Raises:
            _SandboxFailed: it was not the program's doing.
        """
        result = await self._run.result()
        if result.status == "sandbox_failed":
            raise _SandboxFailed(result.reason)
        # Behind some walls the signal that ended a process is its exit code.
        killed = _ENDINGS & {result.signal, result.exit_code}
        if killed or result.status in ("timeout", "cpu", "memory"):
            return "OutOfTime"
        return "BadReply" if result.status in ("flood", "protocol") else "Crash"

    async def close(self) -> None:
        await self._stack.aclose()


class _SandboxFailed(Exception):
    """A fault of the machine, which says nothing about a program."""


_SHARED_MODULES = frozenset(
    "__future__ bisect collections copy dataclasses datetime enum fractions functools heapq "
    "itertools json math operator re statistics string typing".split()
)
_IMPORT = re.compile(r"^\s*(?:from\s+(\w+)|import\s+([\w, ]+))", re.MULTILINE)
_STATE = re.compile(r"\b(?:globals|open|setattr|delattr|__\w+)\b|\.sys\b")


def may_share(code: str) -> bool:
    """Return whether a program can leave nothing behind for the next one in its process.

    True for those that import only modules without state and name nothing that could change
    them. Others have a process each, which costs milliseconds and is never wrong.
    """
    lists = [module or modules for module, modules in _IMPORT.findall(code)]
    imported = {name.split()[0] for names in lists for name in names.split(",") if name.strip()}
    if not imported <= _SHARED_MODULES or _STATE.search(code.replace("__init__", "")):
        return False
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # `math.floor = ...` would hold for every later program; `self.x = ...` is its own affair.
    return not any(
        isinstance(node, ast.Attribute)
        and not isinstance(node.ctx, ast.Load)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for node in ast.walk(tree)
    )


class EditSearch:
    """Runs trials in the processes of a box, at most one a processor at a time."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._idle: list[_Process] = []

    async def outcomes(
        self, trials: Sequence[ProgramTrial], limits: RepairLimits
    ) -> list[tuple[Outcome, ...]]:
        """Return the outcomes of some trials, one after the other.

        Raises:
            RunError: if the sandbox failed twice on a trial.
        """
        reports = []
        async with self._box.slots:
            for trial in trials:
                try:
                    reports.append(await self._outcomes(trial, limits))
                except _SandboxFailed:
                    try:
                        reports.append(await self._outcomes(trial, limits))
                    except _SandboxFailed as error:
                        raise RunError(f"the sandbox failed twice: {error}") from None
        return reports

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for process in idle:
            await process.close()

    async def _outcomes(self, trial: ProgramTrial, limits: RepairLimits) -> tuple[Outcome, ...]:
        alone = not may_share(trial.code + trial.prelude)
        program = {
            "code": trial.code,
            "entry_point": trial.entry_point,
            "prelude": trial.prelude,
            "steps": limits.steps,
            "lines": trial.lines,
            "sites": trial.sites,
            "cpu_seconds": None if alone else float(limits.cpu_seconds),
        }
        outcomes: list[Outcome] = []
        process: _Process | None = None
        try:
            for data in trial.cases:
                case = Case.from_json(data)
                request: dict[str, JSON] = {"statement": case.statement}
                if not case.statement:
                    request = {"call": encode(list(case.args))}
                if process is None:
                    process = await self._process(limits, alone)
                    request["program"] = program
                reply = await process.ask(request)
                outcomes.append(_outcome(reply, case))
                if reply.get("gone"):
                    await process.close()
                    process = None
                if trial.stop and not outcomes[-1].passed:
                    break
            if process is not None and not alone and process.uses < MOST_USES:
                self._idle.append(process)
                process = None
        finally:
            if process is not None:
                await process.close()
        return tuple(outcomes)

    async def _process(self, limits: RepairLimits, alone: bool) -> _Process:
        """Return a process that is idle, if programs may share it, or a new one."""
        for process in [] if alone else list(self._idle):
            self._idle.remove(process)
            if process.limits == limits:
                return process
            await process.close()
        return await _Process(limits, alone).open(self._box)


def _outcome(reply: Mapping[str, Any], case: Case) -> Outcome:
    """Return what a reply says, in bounds: it may be hostile."""
    lines = reply.get("lines")
    numbers = lines[:10_000] if isinstance(lines, list) else []
    covered = tuple(number for number in numbers if isinstance(number, int))
    bits = reply.get("same")
    same = bits if isinstance(bits, str) and re.fullmatch(r"[0-9a-f]{1,10000}", bits) else ""
    apart = not case.statement
    if "value" in reply:
        passed = True if case.statement else _passes(reply["value"], case.want)
        return Outcome(passed, got=_short(reply["value"]), lines=covered, same=same, apart=apart)
    error, text, line = reply.get("error"), reply.get("text", ""), reply.get("line")
    return Outcome(
        passed=False,
        error=error if isinstance(error, str) and re.fullmatch(r"\w{1,60}", error) else "Error",
        text=text[:200].encode(errors="replace").decode() if isinstance(text, str) else "",
        line=line if isinstance(line, int) else None,
        got=_short(reply["got"]) if "got" in reply else None,
        want=(_short(reply.get("want")),) if "got" in reply else (),
        lines=covered,
        same=same,
        apart=apart,
    )


def _passes(value: JSON, want: JSON) -> bool:
    """Return whether a value is the wanted one; whatever it raises while looking is a no."""
    try:
        return same(decode(value), want)
    except Exception:
        return False


def _short(value: JSON) -> JSON:
    """Return a value for display and features; "..." if it is long, or cannot stand in a record."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()  # fails for half of a surrogate pair
        long = len(text) > 2_000 or re.search(r"\d{19}", text)
    except (ValueError, RecursionError):
        return "..."
    return "..." if long else value
