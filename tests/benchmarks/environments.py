"""What a team learns in two environments, seed by seed, beside teams that choose at random.

    python dev.py python -m tests.benchmarks.environments        # three training seeds
    python dev.py python -m tests.benchmarks.environments 5 docs/examples/cartpole.yaml

Arguments: number of training seeds, configs. All are judged on the held-out split, whose seeds no
training met; a value is the mean return as a share of what the config calls the best. `ahead` is
the learned team's minus the best of the others', with the 95 % t-interval over training seeds.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from orchestrion.config import load
from orchestrion.runs import Report, open_run
from tests.benchmarks.support import ROOT, mean_and_half, train

CONFIGS = ("docs/examples/cartpole.yaml", "docs/examples/tictactoe.yaml")


async def judged(directory: Path) -> Report:
    """Return the report of what was learned, and of its baselines."""
    async with open_run(directory) as trained:
        return await trained.evaluate(limit=1000)


def compare(path: str, seeds: int) -> None:
    """Train and judge a config seed by seed."""
    ahead: list[float] = []
    print(path)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            run = Path(folder) / str(seed)
            overrides = [f"seed={seed}", "evaluation.episodes=1"]
            cpu, _ = train(load(ROOT / path, overrides), run)
            report = asyncio.run(judged(run))
            values = {one.name: one.reward.mean for one in report.contenders}
            learned, *others = values.values()
            ahead.append(learned - max(others))
            shown = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
            print(
                f"  seed {seed}: {shown}  ({report.problems} problems, {cpu:.0f} CPU s)", flush=True
            )
    print("  ahead: {:+.3f} +- {:.3f}".format(*mean_and_half(ahead)))


def main(seeds: int = 3, *paths: str) -> None:
    """Compare each config."""
    for path in paths or CONFIGS:
        compare(path, seeds)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int(arguments[0]) if arguments else 3, *arguments[1:])
