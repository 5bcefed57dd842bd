"""What learning is worth on a table of recorded answers, at several weights of cost.

    python dev.py python tests/benchmarks/recorded.py                         # a generated table
    python dev.py python tests/benchmarks/recorded.py TABLE PRICES            # three weights
    python dev.py python tests/benchmarks/recorded.py TABLE PRICES 0.1,0.2,7  # or these
    python dev.py python tests/benchmarks/recorded.py TABLE PRICES auto seed=2 task.split.seed=1

Arguments: a table, its prices (`-` if they stand in the table), weights of cost (1 is the price of
the dearest model) or `auto`, overrides of docs/examples/recorded.yaml. `auto` takes weights from
the training questions: where the best single model changes from the strongest to a cheaper one,
where asking anybody at all hardly pays any more, and the geometric middle of the two.

Everything is trained and searched on the training split and judged on the held-out one. Intervals
are 95 %, paired bootstrap over its questions. Fixed strategies are evaluated exactly; the best set
is found by beam search, the best cascade (ask up to three; unless k agree, ask one more) by
exhaustive search, once with the task's vote at the end and once with the last answer as the
result, both with votes fitted on other questions. `by category` looks up the best of nobody, one
model, or one and another for each group of questions. The time is that of training, from the opened
store to the last commit, on one core.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before any library reads it

import numpy as np  # noqa: E402
from orchestrion_recorded.baselines import (  # noqa: E402
    Matrix,
    Result,
    ahead,
    best_by_category,
    best_set,
    best_single,
    candidates,
    cross_fitted,
    crossovers,
    describe,
    evaluate,
    evaluate_by_category,
    everybody,
    matrix,
    oracle,
)

from orchestrion import Key  # noqa: E402
from orchestrion._run import Run, manifest  # noqa: E402
from orchestrion.config import Config, load  # noqa: E402
from orchestrion.runs import RunReader, RunStore  # noqa: E402

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "docs/examples/recorded.yaml"
AUTO = "auto"
WORTH = 0.92  # of the weight at which asking the best value gains nothing


def configured(table: str, prices: str, overrides: Sequence[str]) -> Config:
    """The example, for this table."""
    settings = ["evaluation.baselines={}"]
    if table:
        path = Path(table).resolve()
        settings += [f"task.table={path}", f"agents.ask={{use: recorded, table: {path}}}"]
    if prices not in ("", "-"):
        settings.append(f"task.prices={Path(prices).resolve()}")
    return load(CONFIG, [*settings, *overrides])


def splits(config: Config) -> tuple[Matrix, Matrix]:
    """The training questions and the held-out ones."""
    recording = config.components["task"].component.recording()
    train_data = cross_fitted(recording, matrix(recording, "train"))
    return train_data, matrix(recording, config.evaluation.split)


def train(config: Config, directory: Path) -> tuple[float, float]:
    """Train in a fresh run folder; CPU and wall-clock seconds."""
    retention = config.run.retention
    with RunStore.create(
        directory, config.to_yaml(), manifest(config), retention=retention
    ) as store:
        cpu, wall = time.process_time(), time.perf_counter()
        asyncio.run(Run(config, store).train())
        return time.process_time() - cpu, time.perf_counter() - wall


def learned(directory: Path, data: Matrix) -> Result:
    """What the trained policy did on each held-out question."""
    with RunReader(directory) as reader:
        rows = reader.load_evaluations()["learned"]["outcomes"]
    return Result(
        np.array([rows[name]["solved"] for name in data.ids]),
        np.array([rows[name]["cost"] for name in data.ids]),
    )


def automatic(data: Matrix) -> list[float]:
    """Three weights at which there is something to decide."""
    found = crossovers(data)
    low, high = found[0], WORTH * found[-1]
    return sorted({float(f"{weight:.2g}") for weight in (low, sqrt(low * high), high)})


def fixed(train_data: Matrix, data: Matrix, weight: float) -> dict[str, tuple[Result, str]]:
    """Fixed strategies by name, with what they are in words."""
    chosen = {
        "best single": best_single(train_data, weight),
        "best set": best_set(train_data, weight),
        "best cascade": candidates(train_data, 3).best(weight),
        "cascade, last is final": candidates(train_data, 3, final=True).best(weight),
        "everybody": everybody(train_data),
    }
    found = {
        name: (evaluate(data, strategy), describe(data, strategy))
        for name, strategy in chosen.items()
    }
    by_category = best_by_category(train_data, weight)
    found["by category"] = (
        evaluate_by_category(data, by_category),
        f"a look-up of {len(by_category)} entries",
    )
    return {**found, "oracle": (oracle(data, weight), "knows who is right")}


def line(name: str, result: Result, weight: float) -> str:
    """A strategy's row."""
    return (
        f"{name:<24}{result.correct.mean():9.4f}{result.cost.mean():9.4f}"
        f"{result.reward(weight).mean():9.4f}"
    )


def show(weight: float, mine: Result, others: Mapping[str, tuple[Result, str]]) -> None:
    """The table for one weight."""
    print(f"{'':<24}{'accuracy':>9}{'cost':>9}{'reward':>9}   learned minus it")
    print(line("learned", mine, weight))
    for name, (result, words) in others.items():
        one = ahead(mine, result, weight, Key(1).child(name))
        mark = "*" if one.excludes_zero else " "
        print(
            f"{line(name, result, weight)}   {one.mean:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
            f"{mark} {words}"
        )


def main(table: str = "", prices: str = "", weights: str = AUTO, *overrides: str) -> None:
    """Train and judge at each weight, then print the curve."""
    train_data, data = splits(configured(table, prices, overrides))
    chosen = automatic(train_data) if weights == AUTO else [float(w) for w in weights.split(",")]
    print(f"{table or 'generated table'} {' '.join(overrides)}".strip())
    print(f"{len(data.models)} models; {len(train_data.ids)} questions to learn from, ", end="")
    print(f"{len(data.ids)} held out; weights {', '.join(f'{w:g}' for w in chosen)}")
    curve: list[tuple[float, Result, Mapping[str, tuple[Result, str]]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for weight in chosen:
            config = configured(table, prices, [f"reward.cost_weight={weight}", *overrides])
            directory = Path(folder) / f"{weight:g}"
            cpu, wall = train(config, directory)
            mine = learned(directory, data)
            others = fixed(train_data, data, weight)
            print(f"\ncost weight {weight:g}: trained in {cpu:.0f} s CPU, {wall:.0f} s wall")
            show(weight, mine, others)
            sys.stdout.flush()
            curve.append((weight, mine, others))
    print("\naccuracy at cost, along the weights")
    print(f"{'weight':>8}{'learned':>20}{'best set':>20}{'best cascade':>20}")
    for weight, mine, strategies in curve:
        row = [mine, strategies["best set"][0], strategies["best cascade"][0]]
        cells = [f"{one.correct.mean():.4f} at {one.cost.mean():.4f}" for one in row]
        print(f"{weight:8g}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main(*sys.argv[1:])
