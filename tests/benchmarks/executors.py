"""What two worker processes save on work that computes, and what an episode costs on its way.

    python dev.py python -m tests.benchmarks.executors              # item, repair, evolution
    python dev.py python -m tests.benchmarks.executors item ray     # only these, on this executor
    python dev.py python -m tests.benchmarks.executors cluster      # on three nodes that get lost
    python dev.py python -m tests.benchmarks.executors batches      # of local models

It prints, for a run in one process and with two workers: wall-clock seconds, processor seconds of
the leading process and of its workers, and whether metrics, episodes and checkpoint are the same.
Wall-clock times mean something on a machine that does nothing else; processor seconds do on any.
From these comes what two cores can gain: the critical path is at most all of the leading process
and the busier worker after each other, and at least half of everything.
`item` is what an episode of one turn that does nothing costs beside the same in this process.
`batches` is why teams with local models stay in one process: what a batch gains, and what two
workers with half of it each could gain beside.
`cluster` trains small examples on a Ray cluster of three nodes on this machine, loses a node, a
worker and the leading process, and compares everything with a run in one process.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from orchestrion_executors import processes

from orchestrion import Job, Key
from orchestrion._engine.calls import CallPath
from orchestrion._engine.pool import open_pool
from orchestrion._learned import OWN_TEAM, LearnedComponents
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data, load
from orchestrion.runs import train
from tests.benchmarks.support import EXAMPLES
from tests.end_to_end.support import result
from tests.plugins.executors import cluster

ITEMS = 2000
REPEATS = 3
Rollout = Callable[[int], Awaitable[tuple[float, float]]]
STAGE = "orchestrion.testing._stage"
RUNS: dict[str, tuple[str, ...]] = {
    # Long enough that the start of the workers, half a second of the processor each, counts little.
    "repair": ("task.max_problems=40", "trainer.episodes=160", "evaluation.baselines={}"),
    "evolution": ("evaluation.baselines={}",),
}


def processor() -> tuple[float, float]:
    """Return the processor seconds of this process, and of those it started that have ended."""
    own, others = (resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def processor_of(pid: int) -> float:
    """Return the processor seconds of a process that lives, and of those it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Accounted(processes.WorkerProcess):
    """A worker process whose processor seconds are known when it ends."""

    used: ClassVar[list[float]] = []

    async def close(self) -> None:
        with suppress(OSError):
            self.used.append(processor_of(self.process.pid))
        await super().close()


def run(name: str, executor: dict[str, Any]) -> None:
    """Train an example in this process, and with the executor."""
    results, walls, totals = [], [], []
    processes.WorkerProcess = Accounted  # type: ignore[misc]
    for use in (None, executor):
        with tempfile.TemporaryDirectory() as folder:
            before, began = processor(), time.perf_counter()
            config = load(EXAMPLES / f"{name}.yaml", RUNS[name])
            data = config.resolved()
            data["run"] = {**data["run"], "executor": use, "retention": "none"}
            train(from_data(data), Path(folder, "run"))
            walls.append(time.perf_counter() - began)
            own, others = (b - a for a, b in zip(before, processor(), strict=True))
            totals.append(own + others)
            results.append(result(Path(folder, "run")))
        where = "one process" if use is None else f"{use['workers']} workers ({use['use']})"
        print(
            f"{name}, {where}: {walls[-1]:.1f} s; processor: {own:.1f} s here, {others:.1f} s",
            flush=True,
        )
    same = "the same" if results[0] == results[1] else "DIFFERENT"
    print(f"{name}: wall {walls[0] / walls[1]:.2f} times as fast; results: {same}", flush=True)
    if Accounted.used:
        longest, shortest = own + max(Accounted.used), max(totals[1] / 2, own)
        print(
            f"{name}: critical path {shortest:.1f} to {longest:.1f} s of {totals[0]:.1f} s, so "
            f"{totals[0] / longest:.2f} to {totals[0] / shortest:.2f} times as fast",
            flush=True,
        )
        Accounted.used.clear()


@asynccontextmanager
async def opened(config: Config, executor: bool = False) -> AsyncIterator[Rollout]:
    """Yield a function that runs so many episodes: in this process, or on the config's executor."""
    async with AsyncExitStack() as stack:
        components = LearnedComponents(config, stack)
        await components.restore(None)
        calls = CallPath()
        engine = components.opened.engine(calls)
        if executor:
            pool = await stack.enter_async_context(open_pool(config, calls, None))
            assert pool is not None
            pool.take(engine, components.opened, OWN_TEAM)
        session = EngineSession(engine, "item", Key(1), Key(2), config.run.concurrency)
        problems = session.problems()

        async def rollout(count: int) -> tuple[float, float]:
            """Run episodes; return milliseconds and those of the processor for each of them."""
            began, before = time.perf_counter(), time.process_time()
            await session.rollout([Job(problems[n % len(problems)], Key(n)) for n in range(count)])
            wall, busy = time.perf_counter() - began, time.process_time() - before
            return wall / count * 1e3, busy / count * 1e3

        yield rollout


async def items(executor: dict[str, Any]) -> None:
    """Print what an episode costs on its way to a worker and back."""
    team = {kind: {"use": f"{STAGE}:Kit{kind.title()}"} for kind in ("task", "policy", "reward")}
    agents = {"a": {"use": f"{STAGE}:KitAgent"}}
    config = from_data({"seed": 1, "agents": agents, "run": {"executor": executor}, **team})
    costs = []
    for there in (False, True):
        async with opened(config, there) as rollout:
            await rollout(64)  # workers start
            costs.append(await rollout(ITEMS))
    (here, _), (wall, busy) = costs
    print(
        f"item, {executor['use']}: {wall:.3f} ms wall, {busy:.3f} ms of the processor here; "
        f"in one process {here:.3f} ms",
        flush=True,
    )


async def batches() -> None:
    """Print what an episode with local models costs by how many of them run at once."""
    costs = {}
    for count in (128, 64, 1):
        config = load(EXAMPLES / "marl.yaml", (f"run.concurrency={count}",))
        async with opened(config) as rollout:
            await rollout(count)
            costs[count] = min([(await rollout(128))[1] for _ in range(REPEATS)])
        print(f"batches, {count} at once: {costs[count]:.2f} ms of the processor an episode")
    print(
        f"batches: {costs[1] / costs[128]:.1f} times as fast in one process as one by one; two "
        f"workers with 64 each would at best be {2 * costs[128] / costs[64]:.2f} times as fast "
        "again, with other bytes",
        flush=True,
    )


def on_a_cluster(names: Sequence[str]) -> bool:
    """Train examples on a cluster that loses parts; return whether all gave the same."""
    good = True
    with tempfile.TemporaryDirectory() as folder, cluster.cluster() as nodes:
        for name in names:
            data = cluster.data_of(name)

            def say(text: str, name: str = name) -> None:
                print(f"{name}: {text}", flush=True)

            expected = cluster.trained(data, Path(folder, name, "local"), None)

            def compare(where: str, outcome: object, expected: object = expected) -> None:
                nonlocal good
                good &= outcome == expected
                say(f"{where}: {'the same' if outcome == expected else 'DIFFERENT'}")

            for executor in ({"use": "processes", "workers": 2}, nodes.executor):
                use = str(executor["use"])
                compare(use, cluster.trained(data, Path(folder, name, use), executor))
            for where, outcome in cluster.losses(data, Path(folder, name), nodes, say=say).items():
                compare(where, outcome)
            log = Path(folder, name, "ray", "run.log").read_text().splitlines()
            for line in map(json.loads, log):
                if line.get("component") == "run.executor":
                    say(line["text"])
    return good


def main(*words: str) -> None:
    """Run what is named; by default everything."""
    if "cluster" in words:
        names = [word for word in words if word != "cluster"] or list(cluster.SMALL)
        sys.exit(not on_a_cluster(names))
    use = "ray" if "ray" in words else "processes"
    executor = {"use": use, "workers": 2}
    names = [word for word in words if word != "ray"] or ["item", *RUNS]
    for name in names:
        if name == "item":
            asyncio.run(items(executor))
        elif name == "batches":
            asyncio.run(batches())
        else:
            run(name, executor)


if __name__ == "__main__":
    main(*sys.argv[1:])
