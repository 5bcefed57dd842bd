"""Running candidate programs: one small interface, and the pool of processes behind it.

A runner is asked for *trials*: a program and cases, in order. It gives an *outcome* for every case
it ran, and the number of outcomes is the cost. Results never depend on load or time: a program
that loops is ended by a number of steps; CPU seconds, memory and the wall clock are there for what
steps cannot count, far above any honest run.

`ProcessRunner` keeps candidates apart from the wanted values (see `child.py`) and, by a sandbox,
from the machine.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

import msgspec
from attrs import asdict, field, frozen
from orchestrion_sandbox import Box, Mode, Sandbox, choose, require

from orchestrion import JSON, RunError
from orchestrion_repair.bug import Case

__all__ = [
    "LEVEL",
    "Limits",
    "Outcome",
    "ProcessRunner",
    "Runner",
    "SharedRunner",
    "Trial",
    "shared_runner",
]

WALL: Mode = "namespaces"
LEVEL = 2
"""The least a sandbox has to hold: candidates are functions of plain data, without files."""


@frozen
class Limits:
    """How far one program may go.

    Args:
        steps: loop rounds and function calls in one case.
        cpu_seconds: of one process (it runs all cases of a trial, or one if isolated).
        memory_mb: address space of one process.
        reply_bytes: length of one encoded result.
        wall_seconds: for a program that blocks; nothing honest does.
    """

    steps: int = 200_000
    cpu_seconds: int = 2
    memory_mb: int = 512
    reply_bytes: int = 1_000_000
    wall_seconds: int = 20


def _as_json(cases: Iterable[Case | Mapping[str, JSON]]) -> tuple[Mapping[str, JSON], ...]:
    return tuple(one.to_json() if isinstance(one, Case) else one for one in cases)


@frozen
class Trial:
    """A program to run.

    Args:
        code: the whole module.
        entry_point: the function that cases call.
        cases: in the order they are run; kept as `Case.to_json` gives them.
        prelude: source that statements need, run after `code`.
        stop: end at the first case that fails.
        lines: report which lines each case runs.
        isolated: in a process that no other program was in, for a verdict.
        split: run statements apart from the program where possible, for a verdict.
    """

    code: str
    entry_point: str
    cases: tuple[Mapping[str, JSON], ...] = field(converter=_as_json)
    prelude: str = ""
    stop: bool = False
    lines: bool = False
    isolated: bool = False
    split: bool = False


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
        apart: whether the judgement was made outside the program's process.
    """

    passed: bool
    error: str = ""
    text: str = ""
    line: int | None = None
    got: JSON = None
    want: tuple[JSON, ...] = ()
    lines: tuple[int, ...] = ()
    apart: bool = True


class Runner(Protocol):
    """Runs programs under limits."""

    async def run(
        self, trials: Sequence[Trial], limits: Limits = Limits()
    ) -> list[tuple[Outcome, ...]]:
        """The outcomes of each trial, in order: one for every case that was run."""
        ...


class ProcessRunner:
    """A pool of warm processes; at most one a processor.

    Each worker takes one batch at a time; a worker that dies is replaced and its batch tried once
    more, then reported as an error: that is a fault of the machine, never of a candidate.

    Args:
        workers: how many processes at most.
        wall: what candidates run behind: the mode of a sandbox, or "fresh" for no wall.
    """

    def __init__(self, workers: int | None = None, wall: Mode | Literal["fresh"] = WALL) -> None:
        self._size = max(1, min(workers or _processors(), _processors()))
        self._wall = wall
        self._idle: list[asyncio.subprocess.Process] = []
        self._slots = asyncio.Semaphore(self._size)

    async def run(
        self, trials: Sequence[Trial], limits: Limits = Limits()
    ) -> list[tuple[Outcome, ...]]:
        """Run a batch on one worker, as soon as one is free."""
        if not trials:
            return []
        job = {"limits": asdict(limits), "trials": [_trial_json(trial) for trial in trials]}
        message = msgspec.json.encode(job)
        async with self._slots:
            answer = await self._ask(message)
            if answer is None:
                answer = await self._ask(message)
        if answer is None:
            raise RunError("a process of the runner ended twice in the same batch")
        return [tuple(_outcome(data) for data in report) for report in msgspec.json.decode(answer)]

    async def close(self) -> None:
        """End all workers."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _end(process)

    async def _ask(self, message: bytes) -> bytes | None:
        process = self._idle.pop() if self._idle else await self._spawn()
        done = False
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(len(message).to_bytes(8, sys.byteorder) + message)
            await process.stdin.drain()
            head = await process.stdout.readexactly(8)
            answer = await process.stdout.readexactly(int.from_bytes(head, sys.byteorder))
            done = True
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        finally:
            # A cancelled batch leaves its worker in mid-sentence: that worker is not used again.
            if done:
                self._idle.append(process)
            else:
                await _end(process, kill=True)
        return answer

    async def _spawn(self) -> asyncio.subprocess.Process:
        keep = {k: os.environ[k] for k in ("PATH", "PYTHONPATH", "SYSTEMROOT") if k in os.environ}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "orchestrion_repair.worker", self._wall),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # No secrets of the user's environment; one order of sets everywhere.
            env={**keep, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        )


async def _end(process: asyncio.subprocess.Process, kill: bool = False) -> None:
    if process.returncode is None and kill:
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _trial_json(trial: Trial) -> dict[str, JSON]:
    return {
        "code": trial.code,
        "entry": trial.entry_point,
        "prelude": trial.prelude,
        "cases": trial.cases,
        "stop": trial.stop,
        "lines": trial.lines,
        "isolated": trial.isolated,
        "split": trial.split,
    }


def _outcome(data: Mapping[str, Any]) -> Outcome:
    return Outcome(
        passed=data["passed"],
        error=data.get("error", ""),
        text=data.get("text", ""),
        line=data.get("line"),
        got=data.get("got"),
        want=tuple(data.get("want", ())),
        lines=tuple(data["lines"]),
        apart=data["apart"],
    )


# ---------------------------------------------------------------- results by content


@frozen(eq=False)
class CachedRunner:
    """A runner that remembers: a program and its cases give the same outcomes every time."""

    runner: Runner
    most: int = 200_000
    _known: OrderedDict[bytes, tuple[Outcome, ...]] = field(factory=OrderedDict, init=False)

    async def run(
        self, trials: Sequence[Trial], limits: Limits = Limits()
    ) -> list[tuple[Outcome, ...]]:
        """Run what is not known yet."""
        names = [_name(trial, limits) for trial in trials]
        missing = {n: t for n, t in zip(names, trials, strict=True) if n not in self._known}
        reports = await self.runner.run(list(missing.values()), limits)
        fresh = dict(zip(missing, reports, strict=True))
        results = [fresh[name] if name in fresh else self._known[name] for name in names]
        self._known.update(fresh)
        while len(self._known) > self.most:
            self._known.popitem(last=False)
        return results


_encoder = msgspec.json.Encoder()


def _name(trial: Trial, limits: Limits) -> bytes:
    content = _encoder.encode([_trial_json(trial), asdict(limits)])
    return blake2b(content, digest_size=16).digest()


# ---------------------------------------------------------------- one pool for a process


class SharedRunner:
    """The pool of an event loop, opened by the first program and behind one wall for all.

    Whoever says which sandbox it has to be says so before that; without a word it is the best one
    that works here.
    """

    def __init__(self) -> None:
        self.users: set[object] = set()
        self._sandbox: Sandbox | None = None
        self._level = LEVEL
        self._opening = asyncio.Lock()
        self._known: CachedRunner | None = None
        self._pool: ProcessRunner | None = None
        self.backend, self.level = "", 0

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
        """The backend programs run in, and what it holds.

        Raises:
            SandboxError: if none that holds enough works here.
        """
        await self._open()
        return self.backend, self.level

    async def run(
        self, trials: Sequence[Trial], limits: Limits = Limits()
    ) -> list[tuple[Outcome, ...]]:
        """Run what is not known yet."""
        return await (self._known or await self._open()).run(trials, limits)

    async def close(self) -> None:
        """End all processes."""
        if self._pool is not None:
            await self._pool.close()

    async def _open(self) -> CachedRunner:
        async with self._opening:
            if self._known is None:
                self._pool = ProcessRunner(wall=await self._wall())
                self._known = CachedRunner(self._pool)
            return self._known

    async def _wall(self) -> Mode:
        """Which wall it is: opened once to see that it stands, then by each worker for itself."""
        async with (self._sandbox or choose("auto", level=self._level)).open() as box:
            require(box, self._level, "repair")
            self.backend, self.level = box.backend, box.level
            return _mode(box)


def _mode(box: Box) -> Mode:
    mode: Mode | None = getattr(box, "mode", None)
    if mode is None:
        raise RunError(f"repair cannot run programs in the sandbox {box.backend!r}")
    return mode


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedRunner] = WeakKeyDictionary()


@asynccontextmanager
async def shared_runner(
    sandbox: Sandbox | None = None, level: int = LEVEL
) -> AsyncIterator[SharedRunner]:
    """The pool of this event loop: the task and all agents share it; the last to leave ends it.

    Raises:
        RunError: if two ask for different sandboxes.
    """
    loop = asyncio.get_running_loop()
    shared, me = _pools.setdefault(loop, SharedRunner()), object()
    shared.users.add(me)
    try:
        shared.demand(sandbox, level)
        yield shared
    finally:
        shared.users.discard(me)
        if not shared.users:
            _pools.pop(loop, None)
            await shared.close()
