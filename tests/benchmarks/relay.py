"""How well and how fast an orchestrator learns Relay: exact regret and CPU seconds, seed by seed.

    python dev.py python tests/benchmarks/relay.py                       # five seeds
    python dev.py python tests/benchmarks/relay.py 3 docs/examples/stop.yaml
    python dev.py python tests/benchmarks/relay.py 1 docs/examples/relay.yaml task.partial=0

Arguments: number of seeds, config, overrides. The time is that of `orchestrion train` from the
opened store to the last commit, on one core, without the baselines; the values are exact where
the policy goes by the observation alone. Published for plain REINFORCE on Relay with partial 0.3:
mean regret 0.148 without a baseline, 0.104 with a leave-one-out baseline.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before any library reads it

from orchestrion_orchestration_bench.command import regret_of  # noqa: E402
from orchestrion_orchestration_bench.regret import RegretReport  # noqa: E402

from orchestrion._run import Run, manifest  # noqa: E402
from orchestrion.config import Config, load  # noqa: E402
from orchestrion.runs import RunStore, open_run  # noqa: E402

ROOT = Path(__file__).parents[2]
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t at 97.5 %, by the number of seeds."""
ONLY_TRAINING = ("evaluation.baselines={}", "evaluation.episodes=1")


def train(config: Config, directory: Path) -> tuple[float, float]:
    """Train in a fresh run folder; CPU and wall-clock seconds."""
    store = RunStore.create(
        directory, config.to_yaml(), manifest(config), retention=config.run.retention
    )
    with store:
        wall, cpu = time.perf_counter(), time.process_time()
        asyncio.run(Run(config, store).train())
        return time.process_time() - cpu, time.perf_counter() - wall


async def judge(directory: Path) -> RegretReport:
    """The regret of what was learned."""
    async with open_run(directory) as trained:
        return regret_of(trained)


def spread(values: list[float]) -> str:
    """The mean with its 95 % t-interval."""
    if len(values) < 2:
        return f"{mean(values):.4f}"
    half = T_95.get(len(values), 1.96) * stdev(values) / sqrt(len(values))
    return f"{mean(values):.4f} +- {half:.4f}"


def main(seeds: int = 5, path: str = "docs/examples/relay.yaml", *overrides: str) -> None:
    """Train and judge seed by seed."""
    sampled, greedy, seconds = [], [], []
    print(f"{path} {' '.join(overrides)}")
    print(f"{'seed':>4}{'sampled':>10}{'greedy':>10}{'CPU s':>8}{'wall s':>8}  evaluated")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            config = load(ROOT / path, [*ONLY_TRAINING, f"seed={seed}", *overrides])
            cpu, wall = train(config, Path(folder) / str(seed))
            report = asyncio.run(judge(Path(folder) / str(seed)))
            sampled.append(report.sampled.regret)
            greedy.append(report.greedy.regret)
            seconds.append(cpu)
            print(
                f"{seed:4}{sampled[-1]:10.4f}{greedy[-1]:10.4f}{cpu:8.1f}{wall:8.1f}  "
                f"{report.sampled.method}",
                flush=True,
            )
    print(f"mean regret, sampled: {spread(sampled)}")
    print(f"mean regret, greedy:  {spread(greedy)}")
    print(f"CPU seconds a seed:   {mean(seconds):.1f} (slowest {max(seconds):.1f})")
    print(f"best value {report.optimum.value:.6f}, random {report.random.value:.4f}")


if __name__ == "__main__":
    count, *rest = sys.argv[1:] or ["5"]
    main(int(count), *rest)
