"""How well and how fast an orchestrator learns Relay: exact regret and CPU seconds, seed by seed.

    python dev.py python -m tests.benchmarks.relay                       # five seeds
    python dev.py python -m tests.benchmarks.relay 3 docs/examples/stop.yaml
    python dev.py python -m tests.benchmarks.relay 1 docs/examples/relay.yaml task.partial=0

Arguments: number of seeds, config, overrides. The time is that of `orchestrion train` from the
opened store to the last commit, on one core, without the baselines; the values are exact where
the policy goes by the observation alone. Published for plain REINFORCE on Relay with partial 0.3:
mean regret 0.148 without a baseline, 0.104 with a leave-one-out baseline.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from statistics import mean

from orchestrion_orchestration_bench.command import regret_of
from orchestrion_orchestration_bench.regret import RegretReport

from orchestrion.config import load
from orchestrion.runs import open_run
from tests.benchmarks.support import ROOT, mean_and_half, train

ONLY_TRAINING = ("evaluation.baselines={}", "evaluation.episodes=1")


async def judge(directory: Path) -> RegretReport:
    """Return the regret of what was learned."""
    async with open_run(directory) as trained:
        return regret_of(trained)


def spread(values: list[float]) -> str:
    """Return the mean with its 95 % t-interval."""
    return "{:.4f} +- {:.4f}".format(*mean_and_half(values))


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
