"""What learning is worth on a table of recorded answers, at several weights of cost.

    python dev.py python -m tests.benchmarks.recorded                         # a generated table
    python dev.py python -m tests.benchmarks.recorded TABLE PRICES            # three weights
    python dev.py python -m tests.benchmarks.recorded TABLE PRICES 0.1,0.2,7  # or these
    python dev.py python -m tests.benchmarks.recorded TABLE PRICES 0.1,7 seed=2 task.split.seed=1
    python dev.py python -m tests.benchmarks.recorded TABLE PRICES 0.1,7 splits=6   # pooled

With `splits=N`, questions are held out in N ways (`task.split.seed` from 1 on); a question that was
held out several times counts once, with its mean.

Arguments: a table, its prices (`-` if they stand in the table), weights of cost (1 is the price of
the dearest model), overrides of docs/examples/recorded.yaml.

Everything is trained and searched on the training split and judged on the held-out one. Intervals
are 95 %, paired bootstrap over its questions. Fixed strategies are evaluated exactly; the best set
is found by beam search, the best cascade (ask up to three; unless k agree, ask one more) by
exhaustive search, with votes fitted on other questions. `by category` looks up the best of nobody,
one model, or one and another for each group of questions. The ceilings are looked up on the very
questions that they are judged on: of such a look-up, and of cascades that ask up to three first. No
strategy of that form has more with these votes; where both are equal, it gains nothing by category
to ask several. The time is that of training, from the opened store to the last commit, on one core.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from orchestrion_recorded.baselines import (
    Matrix,
    Strategy,
    StrategyResult,
    best_by_category,
    best_set,
    best_single,
    candidates,
    cross_fitted,
    describe,
    evaluate,
    evaluate_by_category,
    matrix,
    oracle,
)
from orchestrion_recorded.recording import Recording

from orchestrion import Key
from orchestrion.config import Config, load
from orchestrion.runs import RunReader, difference
from tests.benchmarks.support import EXAMPLES, train

CONFIG = EXAMPLES / "recorded.yaml"


def configured(table: str, prices: str, overrides: Sequence[str]) -> Config:
    """Return the example, for this table."""
    settings = ["evaluation.baselines={}"]
    if table:
        path = Path(table).resolve()
        settings += [f"task.table={path}", f"agents.ask={{use: recorded, table: {path}}}"]
    if prices not in ("", "-"):
        settings.append(f"task.prices={Path(prices).resolve()}")
    return load(CONFIG, [*settings, *overrides])


def splits(config: Config) -> tuple[Matrix, Matrix]:
    """Return the training questions and the held-out ones."""
    settings = config.components["task"].component
    recording = Recording(settings, settings.read())
    train_data = cross_fitted(recording, matrix(recording, "train"))
    return train_data, matrix(recording, config.evaluation.split)


def learned(directory: Path, data: Matrix) -> StrategyResult:
    """Return what the trained policy did on each held-out question."""
    with RunReader(directory) as reader:
        rows = reader.load_evaluations()["learned"]["outcomes"]
    return StrategyResult(
        np.array([rows[name]["solved"] for name in data.ids]),
        np.array([rows[name]["cost"] for name in data.ids]),
    )


def fixed(train_data: Matrix, data: Matrix, weight: float) -> dict[str, tuple[StrategyResult, str]]:
    """Return fixed strategies by name, with what they are in words."""
    chosen = {
        "best single": best_single(train_data, weight),
        "best set": best_set(train_data, weight),
        "best cascade": candidates(train_data, 3).best(weight),
        "everybody": Strategy(tuple(range(len(data.models)))),
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
    for name, limit in (("ceiling by category", 1), ("ceiling of cascades", 3)):
        told = best_by_category(data, weight, shrinkage=0.0, limit=limit)
        found[name] = (evaluate_by_category(data, told), "chosen on the questions held out")
    return {**found, "oracle": (oracle(data, weight), "knows who is right")}


def pooled(parts: Sequence[tuple[Sequence[str], StrategyResult]]) -> StrategyResult:
    """Return the mean result on each question that was held out, in the order of their names."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for ids, result in parts:
        for name, correct, cost in zip(ids, result.correct, result.cost, strict=True):
            rows.setdefault(name, []).append((correct, cost))
    means = np.array([np.mean(rows[name], axis=0) for name in sorted(rows)])
    return StrategyResult(means[:, 0], means[:, 1])


def line(name: str, result: StrategyResult, weight: float) -> str:
    """Return a strategy's row."""
    return (
        f"{name:<24}{result.correct.mean():9.4f}{result.cost.mean():9.4f}"
        f"{result.reward(weight).mean():9.4f}"
    )


def show(
    weight: float, mine: StrategyResult, others: Mapping[str, tuple[StrategyResult, str]]
) -> None:
    """The table for one weight."""
    print(f"{'':<24}{'accuracy':>9}{'cost':>9}{'reward':>9}   learned minus it")
    print(line("learned", mine, weight))
    for name, (result, words) in others.items():
        rewards = (one.reward(weight).tolist() for one in (mine, result))
        one = difference(next(rewards), next(rewards), Key(1).child(name, "ahead"))
        mark = "*" if one.excludes_zero else " "
        print(
            f"{line(name, result, weight)}   {one.mean:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"
            f"{mark} {words}"
        )


def main(table: str = "", prices: str = "", weights: str = "0.1,0.5,2", *overrides: str) -> None:
    """Train and judge at each weight, then print the curve."""
    ways = next((int(text[7:]) for text in overrides if text.startswith("splits=")), 0)
    overrides = tuple(text for text in overrides if not text.startswith("splits="))
    divisions = [(*overrides, f"task.split.seed={1 + i}") for i in range(ways)] or [overrides]
    chosen = [float(weight) for weight in weights.split(",")]
    print(f"{table or 'generated table'} {' '.join(overrides)}".strip())
    curve: list[tuple[float, StrategyResult, Mapping[str, tuple[StrategyResult, str]]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for weight in chosen:
            mine: list[tuple[Sequence[str], StrategyResult]] = []
            others: dict[str, list[tuple[Sequence[str], StrategyResult]]] = {}
            words, seconds = {}, 0.0
            for i, settings in enumerate(divisions):
                train_data, data = splits(configured(table, prices, settings))
                config = configured(table, prices, [f"reward.cost_weight={weight}", *settings])
                directory = Path(folder) / f"{weight:g}-{i}"
                seconds += train(config, directory)[0]
                mine.append((data.ids, learned(directory, data)))
                for name, (result, text) in fixed(train_data, data, weight).items():
                    others.setdefault(name, []).append((data.ids, result))
                    words[name] = text if len(divisions) == 1 else ""
            result = pooled(mine)
            rest = {name: (pooled(parts), words[name]) for name, parts in others.items()}
            print(
                f"\ncost weight {weight:g}: {len(data.models)} models, {len(train_data.ids)} "
                f"questions to learn from, {len(result.cost)} judged; {seconds:.0f} s CPU to train"
            )
            show(weight, result, rest)
            sys.stdout.flush()
            curve.append((weight, result, rest))
    print("\naccuracy at cost, along the weights")
    print(f"{'weight':>8}{'learned':>20}{'best set':>20}{'best cascade':>20}")
    for weight, result, strategies in curve:
        row = [result, strategies["best set"][0], strategies["best cascade"][0]]
        cells = [f"{one.correct.mean():.4f} at {one.cost.mean():.4f}" for one in row]
        print(f"{weight:8g}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main(*sys.argv[1:])
