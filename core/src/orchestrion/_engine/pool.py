"""The workers of a run, in the process that leads it; `worker` is the other end.

Journal, budget, limits, store and hooks stay in this process: a worker runs episodes, and asks here
for every call. A worker that is gone is replaced, and its episodes run again: what they were
answered is on record, and an attempt at a call that was under way counts as spent, as after a crash
of the whole run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from orchestrion._config.sections import EXECUTOR
from orchestrion._engine.budget import inside
from orchestrion._engine.calls import CallPath
from orchestrion._engine.episode import Engine, RunEpisode
from orchestrion._engine.opening import Opened, load_states, reached_from, save_states, team_paths
from orchestrion._engine.peers import Peer, pack
from orchestrion._engine.worker import Fields, Outcome, TeamSpec, digest_of, fields_of
from orchestrion._errors import RunError
from orchestrion._events import LOGGER, within
from orchestrion._executors import Executor, Link, LinkLost
from orchestrion._guards import place_of
from orchestrion._interfaces import Answer, OpenContext, Policy, Request, Stateful
from orchestrion._keys import Key
from orchestrion._records import Episode, Problem, Saved, Usage, replace
from orchestrion._secrets import register
from orchestrion.config import Baseline, Config

__all__ = ["Pool", "open_pool"]

LOSSES = 3
"""How many workers an episode may lose, the last one alone, before it is the episode's fault."""
STARTS = 3
"""How many workers in a row may be lost before they were ready."""
TEAMS = 4
"""How many teams beside the first one a worker keeps open, e.g. under other overlays."""


@asynccontextmanager
async def open_pool(
    config: Config | None, calls: CallPath, directory: Path | None, note: Any = None
) -> AsyncIterator[Pool | None]:
    """Open the executor of a config; None if it has none. Workers start when they are needed.

    Args:
        config: of the run; None for a run without an executor.
        calls: the run's call path.
        directory: the run's folder.
        note: called with a path, a name and a text, for what people should know.
    """
    executor: Any = None if config is None else config.run.executor
    if config is None or executor is None:
        yield None
        return
    async with AsyncExitStack() as stack:
        if hasattr(executor, "open"):
            context = OpenContext(
                EXECUTOR, Key(config.seed), directory=directory, environment=config.environment
            )
            executor = await stack.enter_async_context(executor.open(context))
        pool = Pool(executor, calls, directory, place_of(config, EXECUTOR), note)
        stack.push_async_callback(pool.close)
        yield pool


class Pool:
    """Runs episodes in the workers of an executor.

    Args:
        executor: opened.
        calls: the run's call path.
        directory: the run's folder.
        place: how messages name the executor.
        note: see `open_pool`.
    """

    def __init__(
        self,
        executor: Executor,
        calls: CallPath,
        directory: Path | None,
        place: str,
        note: Any = None,
    ) -> None:
        self.calls, self.place = calls, place
        self._directory, self._note = directory, note
        self._told: set[str] = set()
        self._seats = [_Seat(executor, calls, place) for _ in range(executor.workers)]
        self._numbers: dict[bytes, int] = {}
        """Of teams, by digests of their specs."""
        self._packed: WeakKeyDictionary[Opened, dict[Any, bytes]] = WeakKeyDictionary()
        """Specs, pickled."""

    async def close(self) -> None:
        """End the workers."""
        await asyncio.gather(*(seat.close() for seat in self._seats))

    def take(
        self, engine: Engine, opened: Opened, team: Baseline, trainer: str | None = None
    ) -> None:
        """Run the episodes of an engine in the workers from now on.

        Args:
            engine: of the team.
            opened: its components.
            team: what is trained or evaluated.
            trainer: path of the trainer that runs them, if one does.
        """
        name, reason = _why_here(opened, team, trainer)
        if reason:
            self._tell(name, f"{reason}: these episodes run in the process that leads the run")
            return
        engine.elsewhere = partial(self._rollout, engine, opened, team)

    @asynccontextmanager
    async def _rollout(
        self, engine: Engine, opened: Opened, contender: Baseline
    ) -> AsyncIterator[RunEpisode]:
        """Open a function that runs episodes as `Engine.run`, with the present states."""
        team = self._team(opened, contender.policy, contender.agents)
        stated: dict[str, list[Usage]] = {}
        policies: dict[int, tuple[Policy, _Packed | None]] = {}

        async def run(
            name: str,
            problem: Problem,
            key: Key,
            way: Policy | None = None,
            training: bool = False,
        ) -> Episode:
            packed = None
            if way is not None and way is not engine.team.policy:
                if id(way) not in policies:
                    policies[id(way)] = way, self._portable(way)
                packed = policies[id(way)][1]
                if packed is None:
                    return await engine.run(name, problem, key, way, training)
            arguments = name, problem, key.digest, training, engine.stage
            with within(episode=name):
                outcome = await self._run(team, packed, *arguments)
                episode = replace(outcome.episode, problem=problem.public())
                for who, message in outcome.failures:
                    engine.count_failure(who, message)
                _tell_turns(engine, episode)
            stated[name] = outcome.stated
            if engine.observers.episode_finished is not None:
                engine.observers.episode_finished(episode)
            return episode

        yield run
        # In the order of their names, not of arrival: sums of numbers depend on the order.
        for name in sorted(stated):
            for usage in stated[name]:
                self.calls.budget.charge(usage)
        await self._take_over(team, opened)

    def _team(self, opened: Opened, policy: str, agents: tuple[str, ...] | None) -> _Team:
        known = self._packed.setdefault(opened, {})
        if (policy, agents) not in known:
            caps = self.calls.budget.counts_stated
            spec = TeamSpec(opened.config, policy, agents, self._directory, caps)
            known[policy, agents] = pack(spec)
        packed = known[policy, agents]
        number = self._numbers.setdefault(_digest(packed), len(self._numbers))
        states = save_states(opened, team_paths(opened.config, policy, agents))
        fields = fields_of(opened, states)
        total = blake2b(repr(fields).encode(), digest_size=16)
        for path, saved in states.items():
            total.update(path.encode() + digest_of(saved))
        return _Team(number, packed, states, fields, total.digest())

    def _portable(self, way: Policy) -> _Packed | None:
        """Return a policy that a job brings along, pickled; None if it is to run here."""
        if getattr(way, "portable", False) is True:
            data = pack(way)
            return _Packed(_digest(data), data)
        kind = type(way).__name__
        text = (
            f"episodes that a trainer runs with a policy of its own ({kind}) run in the process "
            "that leads the run: that policy is not portable"
        )
        self._tell(kind, text)
        return None

    def _tell(self, name: str, text: str) -> None:
        """Tell people something, once."""
        if self._note is not None and name not in self._told:
            self._told.add(name)
            self._note(EXECUTOR, name, text)

    async def _run(self, team: _Team, packed: _Packed | None, *arguments: Any) -> Outcome:
        """Return the outcome of an episode, from whichever worker; try again if that is lost."""
        lost = 0
        while True:
            seat = min(self._seats, key=lambda seat: seat.load)
            try:
                return await seat.run(team, packed, arguments, alone=lost >= LOSSES - 1)
            except LinkLost as error:
                lost += 1
                name, problem = arguments[:2]
                if lost >= LOSSES:
                    raise RunError(
                        f"{self.place}: episode {name} (problem {problem.id}) lost {lost} workers, "
                        f"the last of which ran nothing else ({error})"
                    ) from None

    async def _take_over(self, team: _Team, opened: Opened) -> None:
        """Give components the state they got while episodes ran, such as a network's first weights.

        Raises:
            RunError: not all workers have the same.
        """
        found = await asyncio.gather(*(seat.changed(team) for seat in self._seats))
        states: dict[str, Saved] = {}
        for path, saved in (pair for changed in found for pair in changed.items()):
            if digest_of(states.setdefault(path, saved)) != digest_of(saved):
                raise RunError(
                    f"{place_of(opened.config, path)}: what it keeps of episodes differs from one "
                    f"worker of {self.place} to the next; state is for trainers to change, "
                    "or this component cannot be used with `run.executor`"
                )
        load_states(opened, states)


def _why_here(opened: Opened, team: Baseline, trainer: str | None) -> tuple[str, str]:
    """Return why the episodes of a team cannot run in workers, after whose fault it is; or ""."""
    config, runtimes = opened.config, opened.runtimes
    ours = sorted(team_paths(config, team.policy, team.agents))
    for path in ours:
        if getattr(runtimes[path], "together", False) is True:
            place = place_of(config, path)
            return path, f"answers of {place} depend on what is computed together with them"
    if trainer is not None and getattr(runtimes[trainer], "portable", False) is not True:
        wired = reached_from(config, [trainer])
        for path in ours:
            if path in wired and isinstance(runtimes[path], Stateful):
                place = place_of(config, trainer)
                return trainer, f"{place} may change {path} in ways that workers do not see"
    return "", ""


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _tell_turns(engine: Engine, episode: Episode) -> None:
    """Call the hook for each turn, in the order in which they joined the trajectory."""
    finished = engine.observers.turn_finished
    if finished is not None:
        for turn in reversed(list(episode.trajectory.backward())):
            if turn.status != "cancelled":
                finished(episode.id, turn)


class _Team(NamedTuple):
    """A team with its states as they are when a rollout begins."""

    number: int
    spec: bytes
    states: Mapping[str, Saved]
    fields: Fields
    digest: bytes  # of states and fields


class _Packed(NamedTuple):
    """A policy that a job brings along, pickled."""

    digest: bytes
    data: bytes


class _Seat:
    """The place of one worker, whoever has it at the moment.

    Args:
        executor: starts workers.
        calls: the run's call path.
        place: how messages name the executor.
    """

    def __init__(self, executor: Executor, calls: CallPath, place: str) -> None:
        self._executor, self._calls, self._place = executor, calls, place
        self._peer: Peer | None = None
        self._serving: asyncio.Task[Any] | None = None
        self._gate = asyncio.Lock()
        """Held while an episode may not start beside others: teams change, or one runs alone."""
        self.load = 0
        """Episodes that run here or wait to."""
        self._running: dict[int, Context] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._number = 0
        self._teams: dict[int, bytes] = {}
        """Digests of the loaded states, by the numbers of open teams."""
        self._policies: set[bytes] = set()

    # ------------------------------------------------------------------ episodes

    async def run(
        self, team: _Team, way: _Packed | None, arguments: tuple[Any, ...], alone: bool
    ) -> Outcome:
        """Return the outcome of an episode in this seat's worker.

        Raises:
            LinkLost: the worker is gone; nothing came back.
        """
        self.load += 1
        held = False
        try:
            held = await self._gate.acquire()
            peer = await self._ready(team, way)
            if alone:
                await self._idle.wait()
            else:
                self._gate.release()
                held = False
            return await self._outcome(peer, team, way, arguments)
        finally:
            self.load -= 1
            if held:
                self._gate.release()

    async def _outcome(
        self, peer: Peer, team: _Team, way: _Packed | None, arguments: tuple[Any, ...]
    ) -> Outcome:
        self._number = number = self._number + 1
        self._running[number] = copy_context()
        self._idle.clear()
        try:
            digest = None if way is None else way.digest
            outcome: Outcome = await peer.ask("run", number, team.number, digest, *arguments)
            return outcome
        finally:
            del self._running[number]
            if not self._running:
                self._idle.set()

    async def changed(self, team: _Team) -> dict[str, Saved]:
        """Return the states that changed in this worker while episodes ran, by path."""
        if self._peer is None or self._teams.get(team.number) != team.digest:
            return {}
        try:
            found: dict[str, Saved] = await self._peer.ask("changed", team.number)
        except LinkLost:
            return {}
        return found

    # ------------------------------------------------------------------ the worker

    async def close(self) -> None:
        """End the worker."""
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving

    async def _ready(self, team: _Team, way: _Packed | None) -> Peer:
        """Return the worker, with the team open, its states loaded and the policy known."""
        for left in reversed(range(STARTS)):
            try:
                peer = await self._started()
                if self._teams.get(team.number) != team.digest:
                    await self._idle.wait()
                    await self._open(peer, team)
                if way is not None and way.digest not in self._policies:
                    await peer.ask("policy", way.digest, way.data)
                    self._policies.add(way.digest)
                return peer
            except LinkLost as error:
                if not left:
                    raise RunError(
                        f"{self._place}: {STARTS} workers in a row ended before they were ready "
                        f"({error}); what they wrote on standard error says more"
                    ) from error
        raise AssertionError

    async def _started(self) -> Peer:
        if self._peer is not None and not self._peer.lost:
            return self._peer
        if self._serving is not None:
            await self._serving  # it is over
        link = await self._executor.start()
        self._teams, self._policies = {}, set()
        self._peer = peer = Peer(link, self._do, self._told)
        self._serving = asyncio.create_task(_serve(peer, link))
        return peer

    async def _open(self, peer: Peer, team: _Team) -> None:
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

    async def _call(
        self,
        number: int,
        scope: str,
        request: Request,
        reserve: Usage,
        who: str,
        stage: str,
        nested: bool,
    ) -> Answer:
        """Make a call for a worker, which makes each attempt itself."""
        peer = self._peer
        assert peer is not None

        async def attempt() -> Answer:
            answer: Answer = await peer.ask("attempt", number)
            return answer

        inside.set(nested)
        return await self._calls.run(scope, request, attempt, reserve, who, stage)

    def _told(self, kind: str, *message: Any) -> None:
        if kind == "secret":
            register(*message)
        else:
            self._log(*message)

    def _log(self, item: int | None, name: str, level: int, text: str, fields: Any) -> None:
        """Log what a worker logged, as if it had happened here."""

        def log() -> None:
            logger = logging.getLogger(name)
            if logger.isEnabledFor(level):
                logger.log(level, "%s", text, extra=None if fields is None else {"fields": fields})

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
