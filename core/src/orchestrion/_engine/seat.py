"""The place of one worker of a run, in the process that leads it.

It starts the worker, gives it teams and their states, and answers what it asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, NamedTuple

from orchestrion._engine.attempts import Call
from orchestrion._engine.budget import inside
from orchestrion._engine.calls import CallPath
from orchestrion._engine.peers import Peer
from orchestrion._engine.worker import Fields, Packed
from orchestrion._errors import RunError
from orchestrion._events import LOGGER
from orchestrion._executors import Executor, Link, LinkLost
from orchestrion._interfaces import Answer
from orchestrion._records import Saved
from orchestrion._secrets import register

TEAMS = 4
"""How many teams beside the first one a worker keeps open, e.g. under other overlays."""
PAUSE = 0.5
"""Seconds until a worker that was lost before it was ready is replaced; twice that each time."""
LONGEST_PAUSE = 60.0


class NotReadyError(Exception):
    """No worker is ready here, and there is a pause before the next is started."""


class WorkerTeam(NamedTuple):
    """A team with its states as they are when a rollout begins."""

    number: int
    spec: bytes
    states: Mapping[str, Saved]
    fields: Fields
    digest: bytes  # of states and fields


class WorkerSeat:
    """The place of one worker, whoever has it; `place` is how messages name the executor."""

    def __init__(self, executor: Executor, calls: CallPath, place: str) -> None:
        self._executor, self._calls, self._place = executor, calls, place
        self._peer: Peer | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._gate = asyncio.Lock()
        """Held while nothing may start beside others: teams change, or something runs alone."""
        self.load = 0
        """What runs here or waits to."""
        self.failed = 0
        """How many workers in a row were lost before they were ready."""
        self._lost_by = ""
        self._retry_at = 0.0
        self._running: dict[int, Context] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._beginning: asyncio.Task[None] | None = None
        self._number = 0
        self._teams: dict[int, bytes] = {}
        """Digests of the loaded states, by the numbers of open teams."""
        self._policies: set[bytes] = set()

    # ------------------------------------------------------------------ work

    def begin(self) -> None:
        """Start the worker now, so that it is there when it is needed."""
        self._beginning = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        async with self._gate:
            with suppress(Exception):  # it is started again, and heard, when it is needed
                await self._started()

    async def ask(
        self, name: str, *arguments: Any, team: WorkerTeam | None = None, alone: bool = False
    ) -> Any:
        """Return what this seat's worker answers, with a number for this work before the arguments.

        `team` is open then, with these states. `alone` says to do it beside nothing else.

        Raises:
            LinkLost: the worker is gone; nothing came back.
            NotReadyError: there is no worker at the moment.
        """
        self.load += 1
        holds_gate = False
        try:
            holds_gate = await self._gate.acquire()
            peer = await self._ready(team)
            if alone:
                await self._idle.wait()
            else:
                self._gate.release()
                holds_gate = False
            self._number = number = self._number + 1
            self._running[number] = copy_context()
            self._idle.clear()
            try:
                return await peer.ask(name, number, *map(self._once, arguments))
            finally:
                del self._running[number]
                if not self._running:
                    self._idle.set()
        finally:
            self.load -= 1
            if holds_gate:
                self._gate.release()

    def _once(self, argument: Any) -> Any:
        """Return an argument as it is sent: what is packed goes to each worker once."""
        if type(argument) is not Packed:
            return argument
        is_known = argument.digest in self._policies
        self._policies.add(argument.digest)
        return argument._replace(data=b"") if is_known else argument

    async def changed(self, team: WorkerTeam) -> dict[str, Saved]:
        """Return the states that changed in this worker while episodes ran, by path."""
        if self._peer is None or self._teams.get(team.number) != team.digest:
            return {}
        try:
            states: dict[str, Saved] = await self._peer.ask("changed", team.number)
        except LinkLost:
            return {}
        return states

    # ------------------------------------------------------------------ the worker

    async def close(self) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.wait([self._beginning])
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving

    async def _ready(self, team: WorkerTeam | None) -> Peer:
        """Return the worker, with the team open and its states loaded."""
        if self.waits > 0:
            raise NotReadyError(self._lost_by)
        try:
            peer = await self._started()
            if team is not None and self._teams.get(team.number) != team.digest:
                await self._idle.wait()
                await self._open(peer, team)
        except LinkLost as error:
            self._retry_at = monotonic() + min(PAUSE * 2**self.failed, LONGEST_PAUSE)
            self.failed += 1
            self._lost_by = str(error)
            raise NotReadyError(self._lost_by) from error
        self.failed = 0
        return peer

    @property
    def waits(self) -> float:
        """Return for how many seconds no worker is started here."""
        return self._retry_at and self._retry_at - monotonic()

    async def _started(self) -> Peer:
        if self._peer is not None and not self._peer.lost:
            return self._peer
        if self._serving is not None:
            await self._serving  # it is over
        link = await self._executor.start()
        self._teams, self._policies = {}, set()
        self._peer = peer = Peer(link, self._do, self._receive)
        self._serving = asyncio.create_task(_serve(peer, link))
        return peer

    async def _open(self, peer: Peer, team: WorkerTeam) -> None:
        """Give the team its states, and open it first where it is not open yet."""
        if team.number not in self._teams:
            if len(self._teams) > TEAMS:
                # The first one stays: others share its components that have no state.
                oldest = list(self._teams)[1]
                del self._teams[oldest]
                await peer.ask("close", oldest)
            await peer.ask("open", team.number, team.spec, LOGGER.getEffectiveLevel())
        for difference in await peer.ask("load", team.number, team.states, team.fields):
            raise RunError(
                f"{difference} in a worker of {self._place}: what trainers change must be in what "
                "save() returns, or in the policy of a `Job`"
            )
        self._teams[team.number] = team.digest

    # ------------------------------------------------------------------ what workers ask

    def _do(
        self, name: str, item: int, *arguments: Any
    ) -> tuple[Coroutine[Any, Any, Any], Context | None]:
        context = self._running.get(item)
        if context is None:
            return _over(), None
        methods: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "call": self._call,
            "state": self._calls.state,
            "find": self._calls.journal.find,
            "add": self._calls.journal.add,
        }
        return methods[name](*arguments), context.copy()

    async def _call(self, number: int, call: Call, nested: bool) -> Answer:
        """Make a call for a worker, which makes each attempt itself."""
        peer = self._peer
        assert peer is not None

        async def attempt() -> Answer:
            answer: Answer = await peer.ask("attempt", number)
            return answer

        inside.set(nested)
        call.do = attempt
        return await self._calls.run(call)

    def _receive(self, kind: str, *message: Any) -> None:
        if kind == "secret":
            register(*message)
        else:
            self._log(*message)

    def _log(self, item: int | None, name: str, level: int, text: str, fields: Any) -> None:
        """Log what a worker logged, as if it had happened here."""

        def log() -> None:
            logger = logging.getLogger(name)
            if logger.isEnabledFor(level):
                extra = {"forwarded": True, **({} if fields is None else {"fields": fields})}
                logger.log(level, "%s", text, extra=extra)

        context = self._running.get(item) if item is not None else None
        (context or copy_context()).copy().run(log)


async def _serve(peer: Peer, link: Link) -> None:
    try:
        await peer.serve()
    except LinkLost:
        pass
    finally:
        await link.close()


async def _over() -> None:
    raise RunError("the episode has ended")
