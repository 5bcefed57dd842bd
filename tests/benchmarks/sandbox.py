"""What a run in the sandbox costs, beside a plain interpreter in the same run.

    python dev.py python -m tests.benchmarks.sandbox          # 200 of each
    python dev.py python -m tests.benchmarks.sandbox 50

`plain`    `python -I -S -c pass`, unprotected.
`run`      the same program as a warm run.

Each line: wall time at the median and the 95th percentile, CPU of everything (this process, the
sandbox and what ran in it), and both as multiples of `plain`. They take turns, so that a busy
machine slows all of them alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import mean, median, quantiles

from orchestrion_sandbox import Profile, Program, choose


async def plain() -> None:
    """An interpreter, and nothing else."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "pass"])  # noqa: ASYNC220
    process.wait()


class Meter:
    """CPU seconds of this process and all that it starts, however they end.

    By a control group of its own where one can be made. Elsewhere by what was waited for, which
    misses what no one waits for inside a sandbox.
    """

    def __init__(self) -> None:
        self.exact = False
        for parent, file, unit in (
            ("/sys/fs/cgroup/cpuacct", "cpuacct.usage", 1e-9),
            ("/sys/fs/cgroup", "cpu.stat", 1e-6),
        ):
            self._parent, self._group = Path(parent), Path(parent, f"orchestrion-{os.getpid()}")
            self._file, self._unit = self._group / file, unit
            try:
                self._group.mkdir()
                (self._group / "cgroup.procs").write_text(str(os.getpid()))
                self.exact = self._file.exists()
            except OSError:
                continue
            if self.exact:
                return

    def read(self) -> float:
        """So far."""
        if not self.exact:
            used = [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
            return sum(usage.ru_utime + usage.ru_stime for usage in used)
        return float(self._file.read_text().replace("usage_usec", "").split()[0]) * self._unit

    def close(self) -> None:
        """Leave the group."""
        if self.exact:
            (self._parent / "cgroup.procs").write_text(str(os.getpid()))
            for _ in range(100):  # what was killed last may still be on its way out
                with contextlib.suppress(OSError):
                    self._group.rmdir()
                    return
                time.sleep(0.02)


async def main(repeats: int = 200) -> None:
    """Let them take turns, and print."""
    meter = Meter()
    async with choose("auto").open(Profile()) as box:
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "plain": plain,
            "run": lambda: box.run(Program("pass")),
        }
        walls: dict[str, list[float]] = {name: [] for name in works}
        cpus: dict[str, list[float]] = {name: [] for name in works}
        for turn in range(-2, repeats):
            for name, work in works.items():
                used, began = meter.read(), time.perf_counter()
                await work()
                wall = time.perf_counter() - began
                if turn >= 0:  # the first ones warm up
                    walls[name].append(wall)
                    cpus[name].append(meter.read() - used)
        print(f"{box.backend}, level {box.level}, {repeats} of each", end="")
        print("" if meter.exact else "; CPU of the sandbox incomplete, no control group")
    meter.close()
    floor_wall, floor_cpu = median(walls["plain"]), mean(cpus["plain"])
    for name in works:
        p50, p95 = median(walls[name]), quantiles(walls[name], n=20)[-1]
        used = mean(cpus[name])
        print(
            f"{name:8} p50 {p50 * 1e3:6.1f} ms  p95 {p95 * 1e3:6.1f} ms  best "
            f"{min(walls[name]) * 1e3:6.1f} ms  CPU {used * 1e3:6.1f} ms  "
            f"= {p50 / floor_wall:4.2f} x the time, {used / floor_cpu:4.2f} x the CPU of plain"
        )


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
