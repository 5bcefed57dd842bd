"""What the commands share: timed trainings, waiting agents, intervals over seeds."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from urllib.request import urlopen

from orchestrion import Agent, Calls, Key, Output, Problem, View
from orchestrion._engine.episode import Engine
from orchestrion._run import Conduct
from orchestrion.config import Config
from orchestrion.runs import RunStore, manifest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t at 97.5 %, by the number of seeds."""
PROBLEM = Problem("p", "a problem")
REPEATS = 5


def train(config: Config, folder: Path) -> tuple[float, float]:
    """Train in a fresh run folder; return CPU and wall-clock seconds."""
    store = RunStore.create(
        folder, config.to_yaml(), manifest(config), retention=config.run.retention
    )
    with store:
        wall, cpu = time.perf_counter(), time.process_time()
        asyncio.run(Conduct(config, store).train())
        return time.process_time() - cpu, time.perf_counter() - wall


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half its 95 % t-interval, which is 0 for a single value."""
    if len(values) < 2:
        return mean(values), 0.0
    return mean(values), T_95.get(len(values), 1.96) * stdev(values) / sqrt(len(values))


def interval(values: Sequence[float]) -> str:
    """Return the mean with its 95 % t-interval over seeds, as text."""
    center, half = mean_and_half(values)
    return f"{center:+.3f} [{center - half:+.3f}, {center + half:+.3f}]"


def processor_of(pid: int) -> float:
    """Return the processor seconds of a process that lives, and of those it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(
    *words: str, folder: Path | None = None, environment: dict[str, str] | None = None
) -> Iterator[str]:
    """Start a server of another project on a free port, and yield its address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [*words, "--host", "127.0.0.1", "--port", str(port)],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            try:
                urlopen(f"{url}/health", timeout=5).close()
            except OSError:
                if server.poll() is not None:
                    break
                time.sleep(1)
            else:
                yield url
                return
        raise SystemExit(f"{words[0]} does not answer")
    finally:
        server.terminate()
        server.wait(60)


class Noop(Agent):
    """Answers at once, with the same output."""

    output = Output("said")

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return self.output


class Waiting(Noop):
    """Answers after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        await asyncio.sleep(self.seconds)
        return self.output


async def noop() -> int:
    return 1


def cpu_microseconds(work: Callable[[], Awaitable[object]], count: int) -> float:
    """Return the CPU time of one of `count` units of work; the best of `REPEATS` runs."""

    async def once() -> float:
        start = time.process_time()
        await work()
        return time.process_time() - start

    return min(asyncio.run(once()) for _ in range(REPEATS)) / count * 1e6


def print_wall(engine: Engine, name: str, ideal: float) -> None:
    """Print the wall-clock time of an episode, the best of `REPEATS`, beside the ideal one."""

    async def once() -> float:
        start = time.perf_counter()
        await engine.run("e", PROBLEM, Key(1))
        return time.perf_counter() - start

    seconds = min(asyncio.run(once()) for _ in range(REPEATS))
    ratio = seconds / ideal
    print(f"{name:7} {seconds * 1e3:7.1f} ms   = {ratio:.3f} x the ideal {ideal * 1e3:g} ms")
