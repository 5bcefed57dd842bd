"""Running programs in the sandbox: a search with many candidates, and verdicts.

A search asks for *trials*: a program and cases, in order. Each case that is run has an *outcome*,
and the number of outcomes is the cost. One sandboxed process runs thousands of programs, one after
the other; wanted values stay here. A verdict is reached by the sandbox's judge, in processes that
no other program was in.

Results never depend on load or time: a program that loops is ended by a number of steps
(`harness.py`); CPU seconds, memory and the wall clock are there for what steps cannot count, far
above any honest run.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import json
import re
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from attrs import evolve, field, frozen
from orchestrion_sandbox import (
    Box,
    CaseOutcome,
    ConversationEnded,
    Profile,
    Program,
    Sandbox,
    choose,
    judge_calls,
    judge_statements,
    require,
)
from orchestrion_sandbox import Case as JudgeCase
from orchestrion_sandbox import Limits as SandboxLimits
from orchestrion_sandbox.inside.plain import decode, encode

from orchestrion import JSON, RunError
from orchestrion_repair import harness, probes
from orchestrion_repair.bug import TOLERANCE, Case, same

LEVEL = 2
"""The least a sandbox has to hold: candidates are functions of plain data, without files."""
MOST_KNOWN = 200_000
"""Trials whose outcomes are kept."""
MOST_USES = 5_000
"""Requests to one process of a search before it is replaced, so that it cannot grow for ever."""
_DAYS = 30 * 86_400
_ENDINGS = {getattr(signal, name, 0) for name in ("SIGKILL", "SIGXCPU", "SIGPROF")} - {0}
_INSIDE = {module.__name__: inspect.getsource(module) for module in (probes, harness)}
_PROFILE = Profile(harness.PRELOAD, (), _INSIDE)


@frozen
class RepairLimits:
    """How far one program may go.

    Args:
        steps: loop rounds and function calls in one case.
        cpu_seconds: of one case in a search (of all its cases, if the program has a process to
            itself), of one process in a verdict.
        memory_mb: address space of one process.
        reply_bytes: length of one encoded result.
        wall_seconds: for a program that blocks; nothing honest does.
    """

    steps: int = 200_000
    cpu_seconds: int = 2
    memory_mb: int = 512
    reply_bytes: int = 1_000_000
    wall_seconds: int = 20

    def sandboxed(self, **changes: Any) -> SandboxLimits:
        """Return the limits of one process, as the sandbox takes them."""
        limits = SandboxLimits(
            wall_seconds=self.wall_seconds,
            cpu_seconds=self.cpu_seconds,
            memory_mb=self.memory_mb,
            processes=1,
            output_bytes=self.reply_bytes,
            scratch_mb=1,
        )
        return evolve(limits, **changes)


def _as_json(cases: Iterable[Case | Mapping[str, JSON]]) -> tuple[Mapping[str, JSON], ...]:
    """With lists and dicts, also where a record keeps them as something that cannot change."""
    as_given = (case.to_json() if isinstance(case, Case) else case for case in cases)
    return tuple(harness.plain(case) for case in as_given)


@frozen
class ProgramTrial:
    """A program to run.

    Args:
        code: the whole module.
        entry_point: the function that cases call.
        cases: in the order they are run; kept as `Case.to_json` gives them.
        prelude: source that statements need, run after `code`.
        stop: end at the first case that fails.
        lines: report which lines each case runs.
        sites: what probes in `code` look at, see `alternatives.py`; reported with the lines.
    """

    code: str
    entry_point: str
    cases: tuple[Mapping[str, JSON], ...] = field(converter=_as_json)
    prelude: str = ""
    stop: bool = False
    lines: bool = False
    sites: tuple[Any, ...] = ()


@frozen
class Outcome:
    """What one case gave.

    Args:
        passed: whether it gave the wanted value, or its statement raised nothing.
        error: the name of the exception or limit that ended it; "" if it gave a value.
        text: the exception's message, cut.
        line: the program's innermost line when the exception was raised.
        got: the value as encoded JSON; "..." if long.
        want: what a statement that compares two values wanted, encoded in a list of one.
        lines: the lines that ran, if asked for.
        same: the alternatives that never differed, as `Probes.same` gives them.
        apart: whether the judgement was made outside the program's process.
    """

    passed: bool
    error: str = ""
    text: str = ""
    line: int | None = None
    got: JSON = None
    want: tuple[JSON, ...] = ()
    lines: tuple[int, ...] = ()
    same: str = ""
    apart: bool = True


# ---------------------------------------------------------------- search


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
        if result.status in ("timeout", "cpu", "memory") or _ENDINGS & {
            result.signal,
            result.exit_code,
        }:
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
    imported = {
        name.split()[0]
        for module, modules in _IMPORT.findall(code)
        for name in (module or modules).split(",")
        if name.strip()
    }
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
        """One that is idle, if programs may share it, or a new one."""
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


# ---------------------------------------------------------------- verdicts

_START = "start_anew"
"""What statements call to have the program started anew."""


async def verdict(box: Box, trial: ProgramTrial, limits: RepairLimits) -> tuple[Outcome, ...]:
    """One outcome a case, by the sandbox's judge.

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
    if split := [i for i in statements if i not in inside]:
        tests = [_statement(cases[i].statement, trial) for i in split]
        judged = await _judge_statements(box, trial, tests, limits)
        outcomes |= zip(split, judged, strict=True)
        refused = [i for i in split if outcomes[i].error == "Refused"]
        inside += await _unsendable(box, trial, refused, cases, limits)
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
    result = await judge_calls(box, source, method, cases, **_judge_limits(limits))
    return _outcomes_of(result.outcomes, bool(result.forgeries))


async def _judge_statements(
    box: Box, trial: ProgramTrial, statements: Sequence[str], limits: RepairLimits, source: str = ""
) -> list[Outcome]:
    entry = trial.entry_point
    own = f"{_subject(trial, limits)}\n{_START} = _subject.start\n{entry} = _subject.call"
    names = [entry, _START]
    result = await judge_statements(box, source or own, names, statements, **_judge_limits(limits))
    return _outcomes_of(result.outcomes, bool(result.forgeries))


def _judge_limits(limits: RepairLimits) -> dict[str, Any]:
    return {"limits": limits.sandboxed(), "seconds": 4.0 * limits.wall_seconds}


def _subject(trial: ProgramTrial, limits: RepairLimits) -> str:
    """Return the beginning of a program that is the trial's, started anew for each case."""
    arguments = (trial.code, trial.entry_point, trial.prelude, limits.steps)
    return f"from {harness.__name__} import Subject\n_subject = Subject{arguments!r}"


def _outcomes_of(outcomes: Iterable[CaseOutcome], forged: bool) -> list[Outcome]:
    return [
        Outcome(outcome.passed and not forged, outcome.error, outcome.text) for outcome in outcomes
    ]


def _statement(statement: str, trial: ProgramTrial) -> str:
    """Return a test that sees nothing of the tests before it, neither here nor in the program."""
    return f"{trial.prelude}\n{_START}()\n{statement}"


def _needs_program(statement: str, trial: ProgramTrial) -> bool:
    """Return whether a statement reads a name that it must have from the program."""
    bound = {trial.entry_point, *dir(builtins)}
    read = set()
    for node in ast.walk(ast.parse(f"{trial.prelude}\n{statement}")):
        match node:
            case ast.Name(name, ast.Load()):
                read.add(name)
            case ast.Name(name) | ast.arg(name):
                bound.add(name)
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.AsyncFunctionDef(name):
                bound.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                bound.add(name)
            case ast.alias(name, other):
                bound.add(other or name.split(".")[0])
    return not read <= bound


async def _unsendable(
    box: Box,
    trial: ProgramTrial,
    refused: Sequence[int],
    cases: Sequence[Case],
    limits: RepairLimits,
) -> list[int]:
    """Return the statements that pass objects of their own to the program, which cannot cross."""
    if not refused:
        return []
    source = f"def {_START}(): pass\ndef {trial.entry_point}(*args, **named): pass"
    tests = [_statement(cases[i].statement, trial) for i in refused]
    judged = await _judge_statements(box, trial, tests, limits, source)
    return [i for i, outcome in zip(refused, judged, strict=True) if outcome.error == "Refused"]


# ---------------------------------------------------------------- one runner for an event loop

_encoder = msgspec.json.Encoder()


class Runner:
    """The runner of an event loop, opened by the first program and in one sandbox for all.

    Whoever says which sandbox it has to be says so before that; without a word it is the best one
    that works here.
    """

    def __init__(self) -> None:
        self.users: set[object] = set()
        self._sandbox: Sandbox | None = None
        self._level = LEVEL
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._box: Box | None = None
        self._search: EditSearch | None = None
        self._known: OrderedDict[bytes, tuple[Outcome, ...]] = OrderedDict()

    def demand(self, sandbox: Sandbox | None, level: int) -> None:
        """Say where programs have to run, and what that has to hold at least.

        Raises:
            RunError: if another one was demanded before.
        """
        if sandbox is not None and self._sandbox not in (None, sandbox):
            raise RunError("two components ask for different sandboxes to repair programs in")
        self._sandbox = sandbox or self._sandbox
        self._level = max(level, self._level)

    async def where(self) -> tuple[str, int]:
        """Return the backend programs run in, and what it holds.

        Raises:
            SandboxError: if none that holds enough works here.
        """
        box, _ = await self._opened()
        return box.backend, box.level

    async def run(
        self, trials: Sequence[ProgramTrial], limits: RepairLimits = RepairLimits()
    ) -> list[tuple[Outcome, ...]]:
        """Return the outcomes of each trial, in order: one for every case that was run.

        Raises:
            RunError: if the sandbox failed twice on a trial.
        """
        names = [_name("run", trial, limits) for trial in trials]
        missing = {n: t for n, t in zip(names, trials, strict=True) if n not in self._known}
        results = {name: self._known[name] for name in names if name in self._known}
        if missing:
            _, search = await self._opened()
            outcomes = await search.outcomes(list(missing.values()), limits)
            results |= self._remember(dict(zip(missing, outcomes, strict=True)))
        return [results[name] for name in names]

    async def judge(
        self, trial: ProgramTrial, limits: RepairLimits = RepairLimits()
    ) -> tuple[Outcome, ...]:
        """Return a verdict on each case of a trial, by the sandbox's judge.

        Raises:
            SandboxError: if the sandbox itself failed.
        """
        name = _name("judge", trial, limits)
        if name not in self._known:
            box, _ = await self._opened()
            outcomes = await verdict(box, trial, limits)
            if any(
                outcome.error == "Gone" for outcome in outcomes
            ):  # perhaps the sandbox, not the program
                outcomes = await verdict(box, trial, limits)
            self._remember({name: outcomes})
            return outcomes
        return self._known[name]

    async def close(self) -> None:
        """End all processes."""
        if self._search is not None:
            await self._search.close()
        await self._stack.aclose()

    def _remember(
        self, fresh: Mapping[bytes, tuple[Outcome, ...]]
    ) -> Mapping[bytes, tuple[Outcome, ...]]:
        self._known.update(fresh)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return fresh

    async def _opened(self) -> tuple[Box, EditSearch]:
        async with self._opening:
            if self._box is None or self._search is None:
                sandbox = self._sandbox or choose("auto", level=self._level)
                box = await self._stack.enter_async_context(sandbox.open(_PROFILE))
                require(box, self._level, "repair")
                if not hasattr(box, "mode"):  # it starts each program in a new interpreter
                    raise RunError(
                        f"repair cannot run programs in the sandbox {box.backend!r}; "
                        "use namespaces or landlock"
                    )
                self._box, self._search = box, EditSearch(box)
            return self._box, self._search


def _name(kind: str, trial: ProgramTrial, limits: RepairLimits) -> bytes:
    content = _encoder.encode([kind, trial, limits])
    return blake2b(content, digest_size=16).digest()


_runners: WeakKeyDictionary[asyncio.AbstractEventLoop, Runner] = WeakKeyDictionary()


@asynccontextmanager
async def shared_runner(
    sandbox: Sandbox | None = None, level: int = LEVEL
) -> AsyncIterator[Runner]:
    """Yield the runner of this event loop: the task and all agents share it; the last to leave
    ends it.

    Raises:
        RunError: if two ask for different sandboxes.
    """
    loop = asyncio.get_running_loop()
    shared, me = _runners.setdefault(loop, Runner()), object()
    shared.users.add(me)
    try:
        shared.demand(sandbox, level)
        yield shared
    finally:
        shared.users.discard(me)
        if not shared.users:
            _runners.pop(loop, None)
            await shared.close()
