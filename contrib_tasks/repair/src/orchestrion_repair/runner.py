"""The runner of an event loop: trials of a search and verdicts, in one sandbox, each run once."""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import blake2b
from weakref import WeakKeyDictionary

import msgspec
from orchestrion_sandbox import Box, Profile, Sandbox, choose, require

from orchestrion import RunError
from orchestrion_repair import harness, probes
from orchestrion_repair.edit_search import EditSearch
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits
from orchestrion_repair.verdict import verdict

LEVEL = 2
"""The least a sandbox has to hold: candidates are functions of plain data, without files."""
MOST_KNOWN = 200_000
"""Trials whose outcomes are kept."""
_INSIDE = {module.__name__: inspect.getsource(module) for module in (probes, harness)}
_PROFILE = Profile(harness.PRELOAD, (), _INSIDE)
_LIMITS = RepairLimits()


class Runner:
    """The runner of an event loop, opened by the first program and in one sandbox for all.

    That is the demanded one, or else the best that works here.
    """

    def __init__(self) -> None:
        self.users = 0
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
        self, trials: Sequence[ProgramTrial], limits: RepairLimits = _LIMITS
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
        self, trial: ProgramTrial, limits: RepairLimits = _LIMITS
    ) -> tuple[Outcome, ...]:
        """Return a verdict on each case of a trial, by the sandbox's judge.

        Raises:
            SandboxError: if the sandbox itself failed.
        """
        name = _name("judge", trial, limits)
        if name not in self._known:
            box, _ = await self._opened()
            outcomes = await verdict(box, trial, limits)
            gone = any(outcome.error == "Gone" for outcome in outcomes)
            if gone:  # perhaps the sandbox, not the program
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
    content = msgspec.json.encode([kind, trial, limits])
    return blake2b(content, digest_size=16).digest()


_runners: WeakKeyDictionary[asyncio.AbstractEventLoop, Runner] = WeakKeyDictionary()


@asynccontextmanager
async def shared_runner(
    sandbox: Sandbox | None = None, level: int = LEVEL
) -> AsyncIterator[Runner]:
    """Yield the runner that the task and all agents of this event loop share; the last ends it.

    Raises:
        RunError: if two ask for different sandboxes.
    """
    loop = asyncio.get_running_loop()
    shared = _runners.setdefault(loop, Runner())
    shared.users += 1
    try:
        shared.demand(sandbox, level)
        yield shared
    finally:
        shared.users -= 1
        if not shared.users:
            _runners.pop(loop, None)
            await shared.close()
