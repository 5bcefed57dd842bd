"""The workers of a run, in the process that leads it; `worker` is the other end.

Journal, budget, limits, store and hooks stay in this process: a worker runs episodes, and asks here
for every call. A worker that is gone is replaced, and its episodes run again: what they were
answered is on record, and an attempt at a call that was under way counts as spent, as after a crash
of the whole run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary
from zlib import crc32

from orchestrion._config.components import reached
from orchestrion._config.sections import EXECUTOR
from orchestrion._engine.calls import CallPath, RunEpisode
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened, load_states, save_states, team_paths
from orchestrion._engine.peers import UnsendableError, pack, unpack
from orchestrion._engine.seat import NotReadyError, WorkerSeat, WorkerTeam
from orchestrion._engine.worker import Outcome, Packed, TeamSpec, digest_of, fields_of
from orchestrion._errors import RunError
from orchestrion._events import within
from orchestrion._executors import Executor, LinkLost
from orchestrion._guards import describe, in_one_line, place_of
from orchestrion._interfaces import OpenContext, Policy, Stateful
from orchestrion._keys import Key
from orchestrion._records import Episode, Problem, Saved, Usage, replace
from orchestrion.config import Baseline, Config

T = TypeVar("T")

LOSSES = 3
"""How many workers an episode may lose, the last one alone, before it is the episode's fault."""
STARTS = 4
"""How many workers in a row may be lost at every place before they were ready."""
SLACK = 2
"""How much more than the least loaded worker one may have to do that knows the problem."""


@asynccontextmanager
async def open_pool(
    config: Config | None, calls: CallPath, directory: Path | None, note: Any = None
) -> AsyncIterator[Pool | None]:
    """Open the executor of a config, whose workers start; None if there is none.

    `note` is called with a path, a name and a text, for what people should know.
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
        pool.begin()
        stack.push_async_callback(pool.close)
        yield pool


class Pool:
    """Runs episodes in the workers of an opened executor; `place` is how messages name it."""

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
        self._seats = [WorkerSeat(executor, calls, place) for _ in range(executor.workers)]
        self._numbers: dict[bytes, int] = {}
        """Of teams, by their pickled specs."""
        self._specs: WeakKeyDictionary[Opened, dict[Any, bytes]] = WeakKeyDictionary()
        """Pickled."""

    def begin(self) -> None:
        for seat in self._seats:
            seat.begin()

    async def close(self) -> None:
        await asyncio.gather(*(seat.close() for seat in self._seats))

    def take(
        self, engine: Engine, opened: Opened, team: Baseline, trainer: str | None = None
    ) -> None:
        """Run the episodes of an engine in the workers from now on.

        `team` is what is trained or evaluated; `trainer` the path of the trainer that runs them, if
        one does.
        """
        engine.spread = self._spread
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
        stated: dict[str, dict[str, Usage]] = {}
        policies: dict[int, tuple[Policy, Packed | None]] = {}

        async def run(
            name: str, problem: Problem, key: Key, way: Policy | None = None, training: bool = False
        ) -> Episode:
            packed = None
            if way is not None and way is not engine.team.policy:
                if id(way) not in policies:
                    policies[id(way)] = way, self._portable(way)
                packed = policies[id(way)][1]
                if packed is None:
                    return await engine.run(name, problem, key, way, training)
            arguments = name, problem, key.digest, training, engine.stage

            def episode_in(seat: WorkerSeat, alone: bool) -> Awaitable[Outcome]:
                return seat.ask("run", team.number, packed, *arguments, team=team, alone=alone)

            with within(episode=name):
                what = f"episode {name} (problem {problem.id})"
                outcome = await self._somewhere(what, problem.id, episode_in)
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
            for result, usage in stated[name].items():
                self.calls.book(usage, result)
        await self._take_over(team, opened)

    def _team(self, opened: Opened, policy: str, agents: tuple[str, ...] | None) -> WorkerTeam:
        specs = self._specs.setdefault(opened, {})
        if (policy, agents) not in specs:
            caps = self.calls.budget.caps
            team = TeamSpec(opened.config, policy, agents, self._directory, caps)
            specs[policy, agents] = pack(team)
        spec = specs[policy, agents]
        number = self._numbers.setdefault(spec, len(self._numbers))
        states = save_states(opened, team_paths(opened.config, policy, agents))
        fields = fields_of(opened, states)
        total = blake2b(repr(fields).encode(), digest_size=16)
        for path, saved in states.items():
            total.update(path.encode() + digest_of(saved))
        return WorkerTeam(number, spec, states, fields, total.digest())

    def _portable(self, way: Policy) -> Packed | None:
        """Return a policy that a job brings along, pickled; None if it is to run here."""
        if getattr(way, "portable", False) is True:
            data = pack(way)
            return Packed(blake2b(data, digest_size=16).digest(), data)
        kind = type(way).__name__
        text = (
            f"episodes that a trainer runs with a policy of its own ({kind}) run in the process "
            "that leads the run: that policy is not portable"
        )
        self._tell(kind, text)
        return None

    def _tell(self, name: str, text: str) -> None:
        if self._note is not None and name not in self._told:
            self._told.add(name)
            self._note(EXECUTOR, name, text)

    async def _spread(
        self, function: Callable[..., T], items: Sequence[tuple[Any, ...]]
    ) -> list[T]:
        what = f"an item of {getattr(function, '__qualname__', function)}"

        async def item_in(item: tuple[Any, ...], seat: WorkerSeat, alone: bool) -> T:
            # Packed apart: what cannot be read again is this item's fault, not the worker's.
            try:
                packed = pack((function, item))
            except Exception as error:
                text = f"what it needs cannot be sent to another process: {in_one_line(error)}"
                raise UnsendableError(text) from None
            answer = await seat.ask("compute", packed, alone=alone)
            try:
                result: T = unpack(answer)
            except Exception as error:
                raise UnsendableError(f"its result cannot be read: {describe(error)}") from None
            return result

        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._somewhere(what, _near(item, n), partial(item_in, item)))
                for n, item in enumerate(items)
            ]
        return [task.result() for task in tasks]

    async def _somewhere(
        self, what: str, near: str, work: Callable[[WorkerSeat, bool], Awaitable[T]]
    ) -> T:
        """Return what a worker gives, whichever it is; try again if it is lost.

        `what` names the work in messages; `near` names what workers keep of such work, so that it
        goes where some was done; `work` asks a worker, alone if need be.
        """
        lost = 0
        while True:
            seat = await self._seat(near)
            try:
                return await work(seat, lost >= LOSSES - 1)
            except NotReadyError as error:
                if all(seat.failed >= STARTS for seat in self._seats):
                    raise RunError(
                        f"{self.place}: no worker is left; at each place {STARTS} in a row ended "
                        f"before they were ready ({error}); what they wrote on standard error says "
                        "more"
                    ) from error
            except UnsendableError as error:
                raise RunError(f"{self.place}: {what}: {error}") from None
            except LinkLost as error:
                lost += 1
                if lost >= LOSSES:
                    raise RunError(
                        f"{self.place}: {what} lost {lost} workers, the last of which ran nothing "
                        f"else ({error})"
                    ) from None

    async def _seat(self, near: str) -> WorkerSeat:
        """Return the place for some work; wait until there is a worker or one may be started."""
        if (pause := min(seat.waits for seat in self._seats)) > 0:
            await asyncio.sleep(pause)
        seats = [seat for seat in self._seats if seat.waits <= 0] or self._seats
        usual = self._seats[crc32(near.encode(errors="replace")) % len(self._seats)]
        least = min(seats, key=lambda seat: seat.load)
        return usual if usual in seats and usual.load <= least.load + SLACK else least

    async def _take_over(self, team: WorkerTeam, opened: Opened) -> None:
        """Give components the state they got while episodes ran, such as a network's first weights.

        Raises:
            RunError: not all workers have the same.
        """
        changes = await asyncio.gather(*(seat.changed(team) for seat in self._seats))
        states: dict[str, Saved] = {}
        for path, saved in (pair for changed in changes for pair in changed.items()):
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
    team_parts = sorted(team_paths(config, team.policy, team.agents))
    for path in team_parts:
        if getattr(runtimes[path], "together", False) is True:
            place = place_of(config, path)
            return path, f"answers of {place} depend on what is computed together with them"
    if trainer is not None and getattr(runtimes[trainer], "portable", False) is not True:
        wired = reached(config.components, [trainer])
        for path in team_parts:
            if path in wired and isinstance(runtimes[path], Stateful):
                place = place_of(config, trainer)
                return trainer, f"{place} may change {path} in ways that workers do not see"
    return "", ""


def _near(item: tuple[Any, ...], number: int) -> str:
    """Return what work goes by, see `Pool._somewhere`: its problem if it has one."""
    return item[0].id if item and isinstance(item[0], Problem) else str(number)


def _tell_turns(engine: Engine, episode: Episode) -> None:
    """Call the hook for each turn, in the order in which they joined the trajectory."""
    finished = engine.observers.turn_finished
    if finished is not None:
        for turn in reversed(list(episode.trajectory.backward())):
            if turn.status != "cancelled":
                finished(episode.id, turn)
