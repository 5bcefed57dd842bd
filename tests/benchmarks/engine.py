"""What the engine costs, beside floors measured in the same run.

    python dev.py python tests/benchmarks/engine.py            # all
    python dev.py python tests/benchmarks/engine.py turns      # one of: turns fan chains many

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
from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen

from orchestrion import (
    Activation,
    Agent,
    Calls,
    Decision,
    Episode,
    Key,
    Output,
    Policy,
    Problem,
    Turn,
    View,
)
from orchestrion import Situation as Situation
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.episode import Engine, EpisodeLimits
from orchestrion._session import EngineSession
from orchestrion._store.serial import encode
from orchestrion.testing import engine_for

PROBLEM = Problem("p", "a problem")
SAID = Output("said")
START = Decision((Activation("a"),))
REPEATS = 5


class Noop(Agent):
    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return SAID


class Waiting(Agent):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        await asyncio.sleep(self.seconds)
        return SAID


@frozen
class Always(Policy):
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> list[Decision]:
        return [START] * len(situations)


class Caps:
    calls, tokens, usd, minutes = 10**9, 10**9, 1e9, 1e9


class Counter:
    """A turn hook and an episode hook that encodes as the store does, without its disk."""

    def __init__(self) -> None:
        self.turns, self.bytes = 0, 0

    def turn_finished(self, episode: str, turn: Turn) -> None:
        self.turns += 1

    def episode_finished(self, episode: Episode) -> None:
        self.bytes += len(encode(episode))


async def noop() -> int:
    return 1


def cpu(work: Callable[[], Awaitable[object]], count: int) -> float:
    """CPU microseconds per unit of work; the best of some repeats."""

    async def once() -> float:
        start = time.process_time()
        await work()
        return time.process_time() - start

    return min(asyncio.run(once()) for _ in range(REPEATS)) / count * 1e6


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
            limits=EpisodeLimits(count, 10**9, 10**9),
            calls=CallPath(Budget(Caps())),
            timeout=600.0,
        )
        engine.observers = Counter()
        await engine.run("e", PROBLEM, Key(1))
        engine.close()

    floor, task, turn = cpu(awaited, count), cpu(tasks, count), cpu(episode, count)
    print(f"turns   awaited function {floor:6.2f} us   awaited task {task:6.2f} us")
    print(f"        no-op turn       {turn:6.2f} us   = {turn / task:.2f} x an awaited task")


def wall(engine: Engine, name: str, ideal: float) -> None:
    async def once() -> float:
        start = time.perf_counter()
        await engine.run("e", PROBLEM, Key(1))
        return time.perf_counter() - start

    seconds = min(asyncio.run(once()) for _ in range(REPEATS))
    print(
        f"{name:7} {seconds * 1e3:7.1f} ms   = {seconds / ideal:.3f} x the ideal {ideal * 1e3:g} ms"
    )
    engine.close()


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
    wall(engine_for(everybody, Once(tuple(map(Activation, everybody)))), "fan", 0.05)


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
    wall(engine_for(agents, Chains(4, 4)), "chains", 0.26)


def many() -> None:
    for count in (1000, 10_000):

        async def rollout(count: int = count) -> tuple[float, float]:
            engine = engine_for({"a": Waiting(0.05)}, Always(), limits=EpisodeLimits(10))
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
