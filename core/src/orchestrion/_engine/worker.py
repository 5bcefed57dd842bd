"""Run episodes in a process beside the one that leads the run; see `pool` for the other end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from attrs import define, evolve, field

from orchestrion._engine.attempts import Call
from orchestrion._engine.budget import Budget, inside
from orchestrion._engine.callpath import CallPath
from orchestrion._engine.episode import Engine, computed
from orchestrion._engine.opening import Opened, load_states, open_team, save_states
from orchestrion._engine.peers import Peer, RaisedError, UnsendableError, pack, unpack
from orchestrion._engine.recording import JournalWriter, Recorded
from orchestrion._errors import CallError, RunError
from orchestrion._events import LOGGER
from orchestrion._executors import Link, LinkLost
from orchestrion._guards import describe, in_one_line
from orchestrion._interfaces import Answer, Stateful
from orchestrion._interrupts import Interrupted, from_outside
from orchestrion._keys import Key
from orchestrion._records import NO_USAGE, Episode, Problem, Saved, Usage, replace
from orchestrion._secrets import watch_secrets
from orchestrion._session import fewer_collections
from orchestrion.config import Budget as BudgetCaps
from orchestrion.config import Config

NOWHERE = Problem("")
"""Stands for an episode's problem on its way back: the leading process has it."""


class TeamSpec(NamedTuple):
    """What a worker opens to run episodes of a team."""

    config: Config
    policy: str  # path
    agents: tuple[str, ...] | None
    directory: Path | None
    caps: BudgetCaps | None


class Outcome(NamedTuple):
    """What a worker returns for an episode."""

    episode: Episode
    failures: list[tuple[str, str]]  # who failed, and how
    stated: dict[str, Usage]  # without price and cap, by the result of `CallPath.book`


class Packed(NamedTuple):
    """A policy that a job brings along, pickled; without data where the worker has it already."""

    digest: bytes
    data: bytes


class _Item(NamedTuple):
    """The episode, or other work, that the code of this task belongs to."""

    number: int
    failures: list[tuple[str, str]]
    stated: dict[str, Usage]


_ITEM: ContextVar[_Item] = ContextVar("orchestrion_item")


Fields = dict[str, dict[str, Any]]


def fields_of(opened: Opened, paths: Iterable[str]) -> Fields:
    """Return the public attributes of these runtimes that are plain values, by path.

    What a trainer sets there and `save` leaves out would be missing in a worker.
    """
    return {
        path: {
            name: value
            for name, value in getattr(opened.runtimes[path], "__dict__", {}).items()
            if type(value) in (bool, int, float, str) and not name.startswith("_")
        }
        for path in paths
    }


def digest_of(saved: Saved) -> bytes:
    """Return a digest of a learned state; equal states have equal digests."""
    from hashlib import blake2b

    from orchestrion._store.serial import dumps

    total = blake2b(dumps(saved.data).encode(), digest_size=16)
    for name, array in saved.arrays.items():
        total.update(f"{name} {array.dtype} {array.shape} ".encode())
        total.update(array.data)
    return total.digest()


class Worker:
    """Answers what the leading process asks over a link, until that process is gone."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.peer = Peer(link, self._do)
        self._teams: dict[int, _OpenTeam] = {}
        self._policies: dict[bytes, Any] = {}
        self._calls = DistantPath(self.peer)
        self._thread = ThreadPoolExecutor(1, "orchestrion-compute")

    async def serve(self) -> None:
        """Answer until the leading process closes the link, or is gone."""
        with fewer_collections(), _alone(self.peer):
            try:
                await self.peer.serve()
            except LinkLost:
                pass
            finally:
                self._thread.shutdown(wait=False, cancel_futures=True)
                for team in self._teams.values():
                    await team.close()
                await self._link.close()

    def _do(self, name: str, *arguments: Any) -> tuple[Coroutine[Any, Any, Any], Context | None]:
        if name == "attempt":
            return self._calls.attempt(*arguments)
        work: Coroutine[Any, Any, Any] = getattr(self, f"_{name}")(*arguments)
        return work, None

    # ------------------------------------------------------------------ teams

    async def _open(self, number: int, data: bytes, log_level: int) -> None:
        """Open a team, from its pickled spec, under a number."""
        spec: TeamSpec = unpack(data)
        LOGGER.setLevel(log_level)
        self._calls.budget = Budget(spec.caps)
        base = next((_stateless(team.opened) for team in self._teams.values()), None)
        async with AsyncExitStack() as stack:
            opened = await open_team(
                spec.config, stack, spec.policy, spec.agents, spec.directory, base
            )
            engine = opened.engine(self._calls, spec.policy, spec.agents, cls=_WorkerEngine)
            self._teams[number] = _OpenTeam(opened, engine, stack.pop_all())

    async def _load(self, number: int, states: Mapping[str, Saved], fields: Fields) -> list[str]:
        """Give a team learned states; none of its episodes runs now.

        Returns the attributes that are not as in the leading process then.
        """
        team = self._teams[number]
        load_states(team.opened, states)
        here = fields_of(team.opened, fields)
        team.loaded = {path: digest_of(saved) for path, saved in save_states(team.opened).items()}
        return [
            f"{path}: {name} is {value!r:.50}, and {here[path].get(name)!r:.50} after load(save())"
            for path, values in fields.items()
            for name, value in values.items()
            if here[path].get(name) != value
        ]

    async def _close(self, number: int) -> None:
        """Close a team; none of its episodes runs now."""
        await self._teams.pop(number).close()

    async def _changed(self, number: int) -> dict[str, Saved]:
        """Return the states that changed since they were loaded, by path."""
        team = self._teams[number]
        changed = {
            path: saved
            for path, saved in save_states(team.opened).items()
            if team.loaded.get(path) != digest_of(saved)
        }
        team.loaded |= {path: digest_of(saved) for path, saved in changed.items()}
        return changed

    # ------------------------------------------------------------------ episodes

    def _run(
        self,
        item: int,
        number: int,
        policy: Packed | None,
        name: str,
        problem: Problem,
        key: bytes,
        training: bool,
        stage: str,
    ) -> Coroutine[Any, Any, Outcome]:
        """Return the work of an episode.

        It counts as active from now on, before the first of those that came with it starts, so that
        their decisions are taken in one batch.
        """
        engine = self._teams[number].engine
        engine.stage = stage
        engine.active += 1

        async def run() -> Outcome:
            engine.active -= 1
            report = _Item(item, [], {})
            _ITEM.set(report)
            if policy is not None and policy.data:
                self._policies[policy.digest] = unpack(policy.data)
            way = None if policy is None else self._policies[policy.digest]
            try:
                episode = await engine.run(name, problem, Key(key), way, training)
            except asyncio.CancelledError as error:
                if from_outside(error):
                    raise
                raise engine.cancelled_within(name) from None
            return Outcome(replace(episode, problem=NOWHERE), report.failures, report.stated)

        return run()

    async def _compute(self, item: int, packed: bytes) -> bytes:
        """Return what a function returns, called in a thread beside the episodes; both packed."""
        _ITEM.set(_Item(item, [], {}))

        def compute() -> bytes:
            function, arguments = unpack(packed)
            [result] = computed(function, [arguments])
            try:
                return pack(result)
            except Exception as error:
                text = f"its result cannot be sent to another process: {in_one_line(error)}"
                raise UnsendableError(text) from None

        call = partial(copy_context().run, compute)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


@define(eq=False)
class _OpenTeam:
    """A team that is open in this worker."""

    opened: Opened
    engine: Engine
    stack: AsyncExitStack
    loaded: dict[str, bytes] = field(factory=dict)  # digests of the states, by path

    async def close(self) -> None:
        with suppress(Exception):
            await self.stack.aclose()


class _WorkerEngine(Engine):
    """Notes failures with the episode they happened in."""

    def count_failure(self, who: str, message: str) -> None:
        _ITEM.get().failures.append((who, message))


def _stateless(base: Opened) -> Opened:
    """Return what another team may share with an open one: what has no state of its own."""
    runtimes = {
        p: runtime for p, runtime in base.runtimes.items() if not isinstance(runtime, Stateful)
    }
    components = {path: base.config.components[path] for path in runtimes}
    return Opened(evolve(base.config, components=components), runtimes)


# ---------------------------------------------------------------------------------- calls


class DistantPath(CallPath):
    """The call path of a worker: that of the leading process, which asks back for each attempt.

    Journal, budget, limits, caches and retries are there.
    """

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer
        self.journal = _DistantJournal(peer)
        self._number = 0
        self._open: dict[int, tuple[Callable[[], Awaitable[Answer]], Context]] = {}
        self._raised: dict[int, BaseException] = {}

    async def run(self, call: Call) -> Answer:
        self._number = number = self._number + 1
        self._open[number] = call.do, copy_context()
        item, sent = _ITEM.get().number, evolve(call, do=_kept_here)
        try:
            answer: Answer = await self._peer.ask("call", item, number, sent, inside.get())
            return answer
        except RaisedError as error:
            raised = self._raised.pop(number, None)
            if raised is None:  # an equal call of another worker
                raise RunError(str(error)) from None
            raise raised from None
        finally:
            del self._open[number]
            self._raised.pop(number, None)

    def attempt(self, number: int) -> tuple[Coroutine[Any, Any, Answer], Context | None]:
        """Return the work of one attempt at a call, and its context."""
        do, context = self._open.get(number, (None, None))
        return self._attempt(number, do), context and context.copy()

    async def _attempt(self, number: int, do: Callable[[], Awaitable[Answer]] | None) -> Answer:
        if do is None:
            raise RunError("the call was cancelled")
        inside.set(True)
        try:
            return await do()
        except BaseException as error:
            if isinstance(error, CallError) or from_outside(error):
                raise
            self._raised[number] = error
            raise RaisedError(describe(error)) from None

    async def state(self, usage: Usage, who: str, stage: str, result: str = "") -> None:
        item = _ITEM.get()
        if self.budget.counts(usage):
            await self._peer.ask("state", item.number, usage, who, stage)
        else:
            item.stated[result] = item.stated.get(result, NO_USAGE) + usage


async def _kept_here() -> Answer:
    """Stand for what makes an attempt, in the message to the leading process."""
    raise RunError("an attempt is made in the worker alone")


class _DistantJournal(JournalWriter):
    """The journal of the leading process, for what workers record themselves: orders, lateness."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(None)
        self._peer = peer

    async def find(self, key: str) -> Recorded | None:
        recorded: Recorded | None = await self._peer.ask("find", _ITEM.get().number, key)
        return recorded

    async def add(self, row: Recorded, wait: bool = True) -> None:
        """See `JournalWriter.add`; always waits."""
        await self._peer.ask("add", _ITEM.get().number, row)


# ---------------------------------------------------------------------------------- logs


class _Forwarding(logging.Handler):
    """Sends what is logged in this process to the leading one."""

    def __init__(self, peer: Peer, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self.peer = peer

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "forwarded"):  # a worker may be a task of the leading process
            return
        item = _ITEM.get(None)
        fields = getattr(record, "fields", None)
        try:
            text = record.getMessage()
            plain = msgspec.to_builtins(fields, enc_hook=str)
        except Exception:
            self.handleError(record)
            return
        self.peer.tell("log", item and item.number, record.name, record.levelno, text, plain)


@contextmanager
def _alone(peer: Peer) -> Iterator[None]:
    """Have this process work for the leading one alone, until it is over."""
    expected, level = Interrupted.expected, LOGGER.level
    # Nobody presses Ctrl-C here: a KeyboardInterrupt is an agent's.
    Interrupted.expected = True
    # What is a secret here may be in what the leading process writes.
    watch_secrets(lambda name, value: peer.tell("secret", name, value))
    warnings, events = _Forwarding(peer, logging.WARNING), _Forwarding(peer)
    logging.getLogger().addHandler(warnings)
    LOGGER.addHandler(events)
    try:
        yield
    finally:
        Interrupted.expected = expected
        watch_secrets(None)
        LOGGER.setLevel(level)
        logging.getLogger().removeHandler(warnings)
        LOGGER.removeHandler(events)
