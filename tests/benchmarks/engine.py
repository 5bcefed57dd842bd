"""What the engine costs, beside floors measured in the same run.

    python dev.py python -m tests.benchmarks.engine            # all
    python dev.py python -m tests.benchmarks.engine turns      # one of: turns fan chains many

`turns`   CPU of a sequential no-op turn, with limits, budget, a call path, a turn hook and the
          episode encoded for the store; floors: an awaited function, an awaited task.
`fan`     64 agents of 50 ms at once; floor: 50 ms.
`chains`  four chains of four stages, one slow stage each; floor: the critical path.
`many`    10,000 episodes of 10 turns of 50 ms in one process; floor: 0.5 s; memory per episode.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Sequence

from attrs import frozen

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Key,
    Policy,
    Turn,
)
from orchestrion import Situation as Situation
from orchestrion._config.sections import Limits
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._session import EngineSession
from orchestrion._store.serial import encode
from orchestrion.config import Budget as Caps
from orchestrion.testing import engine_for
from tests.benchmarks.support import PROBLEM, Noop, Waiting, cpu_microseconds, noop, print_wall

START = Decision((Activation("a"),))


@frozen
class Always(Policy):
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        return [START] * len(situations)


class Counter:
    """A turn hook and an episode hook that encodes as the store does, without its disk."""

    def __init__(self) -> None:
        self.turns, self.bytes = 0, 0

    def turn_finished(self, episode: str, turn: Turn) -> None:
        self.turns += 1

    def episode_finished(self, episode: Episode) -> None:
        self.bytes += len(encode(episode))


def turns() -> None:
    count = 4000

    async def awaited() -> None:
        for _ in range(count):
            await noop()

    async def tasks() -> None:
        for _ in range(count):
            await asyncio.create_task(noop())

    async def episode() -> None:
        engine = engine_for(
            {"a": Noop()},
            Always(),
            limits=Limits(count, 10**9, 10**9),
            calls=CallPath(Budget(Caps(10**9, 10**9, 1e9, 1e9))),
            timeout=600.0,
        )
        engine.observers = Counter()
        await engine.run("e", PROBLEM, Key(1))

    floor, task, turn = (cpu_microseconds(work, count) for work in (awaited, tasks, episode))
    print(f"turns   awaited function {floor:6.2f} us   awaited task {task:6.2f} us")
    print(f"        no-op turn       {turn:6.2f} us   = {turn / task:.2f} x an awaited task")


@frozen
class Once(Policy):
    """Starts everybody, then stops."""

    start: tuple[Activation, ...]

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        return [
            Decision(stop=True) if len(s.trajectory) else Decision(self.start) for s in situations
        ]


def fan() -> None:
    everybody = {f"a{i}": Waiting(0.05) for i in range(64)}
    print_wall(engine_for(everybody, Once(tuple(map(Activation, everybody)))), "fan", 0.05)


@frozen
class Chains(Policy):
    """Independent chains: a stage starts as soon as the one before it is done."""

    width: int
    length: int

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        return [self._one(situation) for situation in situations]

    def _one(self, situation: Situation) -> Decision:
        done = {turn.agent for turn in situation.trajectory}
        busy = {one.agent for one in situation.running}
        if len(done) == self.width * self.length:
            return Decision(stop=True)
        start = tuple(
            Activation(f"{chain}.{stage}", index=chain * self.length + stage)
            for chain in range(self.width)
            for stage in range(self.length)
            if f"{chain}.{stage}" not in done | busy
            and (stage == 0 or f"{chain}.{stage - 1}" in done)
        )
        return Decision(start, wait="each")


def chains() -> None:
    agents = {
        f"{chain}.{stage}": Waiting(0.2 if chain == stage else 0.02)
        for chain in range(4)
        for stage in range(4)
    }
    print_wall(engine_for(agents, Chains(4, 4)), "chains", 0.26)


def many() -> None:
    for count in (1000, 10_000):

        async def rollout(count: int = count) -> tuple[float, float]:
            engine = engine_for({"a": Waiting(0.05)}, Always(), limits=Limits(10))
            session = EngineSession(engine, "s", Key(1), Key(2), concurrency=count)
            from orchestrion import Job

            before = memory()
            start = time.perf_counter()
            await session.rollout([Job(PROBLEM, Key(i)) for i in range(count)])
            return time.perf_counter() - start, memory() - before

        seconds, grown = asyncio.run(rollout())
        print(
            f"many    {count:6} episodes in {seconds:6.2f} s   = {seconds / 0.5:.2f} x 0.5 s   "
            f"{count * 10 / seconds:8.0f} turns/s   {grown / count * 1024:.1f} KiB each"
        )


def memory() -> float:
    """Peak resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["turns", "fan", "chains", "many"]
    for name in wanted:
        {"turns": turns, "fan": fan, "chains": chains, "many": many}[name]()
