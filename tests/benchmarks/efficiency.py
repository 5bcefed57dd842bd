"""How much is learned from how many episodes: every trainer, every problem, seed by seed.

    python dev.py python -m tests.benchmarks.efficiency                      # all that is missing
    python dev.py python -m tests.benchmarks.efficiency --problems relay stop --learners optimistic
    python dev.py python -m tests.benchmarks.efficiency --episodes 50 100 300 --seeds 1 2
    python dev.py python -m tests.benchmarks.efficiency --report             # run nothing
    python dev.py python -m tests.benchmarks.efficiency --tables 40-49 --problems relay \
        relay-sparse --learners reinforce --episodes 25600 --seeds 1         # on drawn tables

A cell is a fresh run of one learner on one problem with so many training episodes and one seed.
Finished cells stand in a file of JSON lines (`--results`) and are skipped, so that a run that was
cut off goes on. Printed is a table: the regret, exact, of what was learned in use (greedy); where
the best value is not known, the mean reward on held-out problems short of the highest that any cell
reached. Regrets are means over seeds, +- is half a 95 % t-interval. With `--tables`, Relay and Stop
are posed with tables drawn by each of these seeds, and every table is listed, with the regret of
the policy that knows the tables and looks one call ahead.

Every learner has the same settings on every problem: `policy: {use: values}` with `trainer: {use:
..., episodes: N}`; `neural` with `reinforce` as the problem's example has them, in batches of a
twentieth of the episodes, but at least 16 and at most the example's. Some stop at fewer episodes
(`MOST`), so that all takes about 50 minutes on 2 cores. `ucb1` is a bandit in every state, see
`ucb_table.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean
from typing import Any

from attrs import evolve, frozen
from orchestrion_orchestration_bench.command import weight_of
from orchestrion_orchestration_bench.drawn import with_tables
from orchestrion_orchestration_bench.process import evaluate, look_ahead, optimum
from orchestrion_orchestration_bench.regret import judged
from orchestrion_orchestration_bench.solved import Team, solve

from orchestrion import OrchestrionError
from orchestrion._config.nodes import Problems
from orchestrion._config.sources import read_tree
from orchestrion.config import Config, from_data
from orchestrion.runs import RunReader, open_run
from tests.benchmarks.support import EXAMPLES, ROOT, mean_and_half, train

SIZES = (50, 100, 300, 1_000, 3_000, 10_000, 25_600)
SEEDS = (1, 2, 3, 4, 5)
PLAYED = 2_000
"""Episodes that judge a policy that cannot be judged exactly."""


@frozen
class Posed:
    """A problem of the benchmark.

    Args:
        example: its config, in docs/examples.
        changes: settings of the task that differ from the example's.
        tables: seed of drawn tables; None for the example's own.
        exact: whether the best value is known.
        keys: what of an observation's data makes a state for `ucb1`; none stands for features.
        most: episodes at most: more take too long.
    """

    example: str
    changes: Mapping[str, Any] = {}
    tables: int | None = None
    exact: bool = True
    keys: tuple[str, ...] = ()
    most: int = SIZES[-1]


RELAY = ("type", "done")
PROBLEMS = {
    "relay": Posed("relay", keys=RELAY),
    "relay-sparse": Posed("relay", {"partial": 0.0}, keys=RELAY),
    "relay-drawn": Posed("relay", tables=3, keys=RELAY),
    "stop": Posed("stop", keys=("type", "history")),
    "recorded": Posed("recorded", exact=False),
    "code-review": Posed("code-review", exact=False, most=300),
}
DRAWN = ("relay", "relay-sparse", "stop")
"""Problems whose tables can be drawn; with those of seed 40, the first is `relay@40`."""
VALUES = ("optimistic", "fitted-q", "bandit", "auto")
SEARCH = {"length": 8, "beam": 2}
"""Of `best-sequence`; it takes more episodes than it is given where these are very few."""
MOST = {"fitted-q": 300, "bandit": 1_000, "auto": 3_000, "nearest": 3_000}
"""Episodes at most of learners that look at all episodes again and again."""
LEARNERS = ("reinforce", *VALUES, "nearest", "halving", "best-sequence", "ucb1")


@frozen
class Cell:
    """One run of one learner."""

    problem: str
    learner: str
    episodes: int
    seed: int


# ---------------------------------------------------------------------- running


def posed_as(problem: str) -> Posed:
    """Return the problem of this name, `NAME` or `NAME@SEED`."""
    name, _, seed = problem.partition("@")
    return evolve(PROBLEMS[name], tables=int(seed)) if seed else PROBLEMS[name]


def configured(cell: Cell) -> Config:
    """Return the problem's example, with this learner."""
    posed = posed_as(cell.problem)
    path = EXAMPLES / f"{posed.example}.yaml"
    root = read_tree(path, os.environ, Problems())
    assert root is not None
    data = root.plain()
    data["task"] |= posed.changes
    if posed.tables is not None:
        data = with_tables(data, posed.tables)
    weight = data["reward"].get("cost_weight", 0.1)
    policy, trainer = learner(cell, data["policy"], data["trainer"], weight)
    run = {"retention": "none", "checkpoint_every": 10**6, "concurrency": 256}
    data |= {"seed": cell.seed, "policy": policy, "trainer": trainer, "run": run}
    data["evaluation"] = {"episodes": 1}  # what is judged here, `judge` judges
    config = from_data(data, directory=path.parent)
    if cell.learner == "best-sequence":
        # As many problems as the episodes suffice for.
        team = [config.components[member].component for member in config.roster]
        width = sum(max(1, len(agent.options)) for agent in team)
        tried = 1 + width + (SEARCH["length"] - 1) * SEARCH["beam"] * width
        trainer = {**trainer, "problems": max(1, cell.episodes // tried)}
        config = from_data(data | {"trainer": trainer}, directory=path.parent)
    return config


def learner(
    cell: Cell, policy: Mapping[str, Any], trainer: Mapping[str, Any], weight: float
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the sections `policy` and `trainer` of a cell."""
    count = cell.episodes
    match cell.learner:
        case "reinforce":
            if trainer["use"] != "reinforce":  # the example learns otherwise
                policy, trainer = {"use": "neural"}, {"use": "reinforce", "episodes": 256}
            batch = min(trainer["episodes"], max(16, count // 20))
            group = trainer.get("group", 1)  # episodes on one problem, compared with each other
            batch = max(group, batch // group * group)
            sizes = {"episodes": batch, "iterations": max(1, count // batch)}
            return policy, {**trainer, **sizes}
        case "ucb1":
            module, keys = "tests.benchmarks.ucb_table", list(posed_as(cell.problem).keys)
            trainer = {"use": f"{module}:UcbTrainer", "episodes": count, "cost_weight": weight}
            return {"use": f"{module}:UcbTable", "keys": keys}, trainer
        case "nearest":
            return {"use": "nearest"}, {"use": "nearest", "episodes": count}
        case "halving":
            return {"use": "sequence"}, {"use": "halving", "episodes": count}
        case "best-sequence":
            return {"use": "sequence"}, {"use": "best-sequence", **SEARCH}
        case name:
            return {"use": "values"}, {"use": name, "episodes": count}


async def judge(directory: Path, exact: bool) -> dict[str, float]:
    """Return the regret of what was learned, or its mean reward on held-out problems."""
    async with open_run(directory) as trained:
        if exact:
            parts = trained.opened.runtimes
            weight, roster = weight_of(parts["reward"]), trained.opened.roster()
            sampled, greedy = judged(
                parts["task"], parts["policy"], roster, weight, turns=20, episodes=PLAYED
            )
            process = solve(parts["task"]).process
            process = process.only(Team.of(process, roster).all_columns)
            ahead = evaluate(process, look_ahead(process, weight), weight).value
            ahead = optimum(process, weight)[0].value - ahead
            return {"regret": greedy.regret, "sampled": sampled.regret, "look_ahead": ahead}
        report = await trained.evaluate("test", limit=PLAYED, baselines=False)
        return {"reward": report.contenders[0].reward.mean}


def measure(cell: Cell) -> dict[str, Any]:
    """Train and judge one cell."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        try:
            cpu, _ = train(configured(cell), directory)
            with RunReader(directory) as reader:
                taken = sum(iteration.episodes for iteration in reader.iterations())
            figures = asyncio.run(judge(directory, posed_as(cell.problem).exact))
        except OrchestrionError as error:
            raise RuntimeError(str(error)) from None  # one that reaches the parent process
    place = {"problem": cell.problem, "learner": cell.learner, "episodes": cell.episodes}
    return {**place, "seed": cell.seed, "taken": taken, "cpu": round(cpu, 2), **figures}


def read(path: Path) -> dict[Cell, dict[str, Any]]:
    """Return what was measured so far, by cell; a line that was cut off is dropped."""
    done = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        done[Cell(row["problem"], row["learner"], row["episodes"], row["seed"])] = row
    return done


def run_missing(cells: Sequence[Cell], path: Path, jobs: int) -> None:
    """Measure the cells that the file does not have, small ones first."""
    done = read(path)
    missing = sorted((c for c in cells if c not in done), key=lambda c: (c.episodes, c.seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool, path.open("a") as out:
        running = {pool.submit(measure, cell): cell for cell in missing}
        for number, future in enumerate(as_completed(running), 1):
            cell = running[future]
            told = f"{number}/{len(missing)} {cell.problem} {cell.learner} {cell.episodes} "
            try:
                row = future.result()
            except Exception as error:
                print(f"{told} seed {cell.seed}: {error}", file=sys.stderr)
                continue
            out.write(json.dumps(row) + "\n")
            out.flush()
            value = row.get("regret", row.get("reward"))
            print(f"{told} seed {cell.seed}: {value:.4f}, {row['cpu']} s", file=sys.stderr)


# ---------------------------------------------------------------------- reporting


def shortfalls(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """By learner and number of episodes, what each seed falls short of the best."""
    best = max((row["reward"] for row in rows if "reward" in row), default=0.0)
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        short = row["regret"] if "regret" in row else best - row["reward"]
        found.setdefault(row["learner"], {}).setdefault(row["episodes"], []).append(short)
    return found


def spread(values: Sequence[float]) -> str:
    """Return the mean with half its 95 % t-interval."""
    return "{:.3f}+-{:.3f}".format(*mean_and_half(values))


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield regret by learner and number of episodes, problem by problem."""
    for problem in PROBLEMS:
        mine = [row for row in rows if row["problem"] == problem]
        if not mine:
            continue
        what = "regret" if PROBLEMS[problem].exact else "reward short of the best cell's"
        yield f"\n{problem}: {what}, mean over seeds"
        sizes = sorted({row["episodes"] for row in mine})
        yield f"{'':15}" + "".join(f"{size:>14,}" for size in sizes) + f"{'CPU s':>9}"
        found = shortfalls(mine)
        for name in LEARNERS:
            if name in found:
                cells = [found[name].get(size) for size in sizes]
                shown = "".join(f"{spread(cell) if cell else '-':>14}" for cell in cells)
                seconds = [
                    row["cpu"]
                    for row in mine
                    if row["learner"] == name and row["episodes"] == max(found[name])
                ]
                yield f"{name:15}{shown}{mean(seconds):9.1f}"


def by_table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield regret on every drawn table, by problem, learner and number of episodes."""
    cells: dict[tuple[str, str, int], dict[int, list[Mapping[str, Any]]]] = {}
    for row in sorted(rows, key=lambda row: int(row["problem"].partition("@")[2])):
        name, _, seed = row["problem"].partition("@")
        tables = cells.setdefault((name, row["learner"], row["episodes"]), {})
        tables.setdefault(int(seed), []).append(row)
    for (name, learner, episodes), tables in sorted(cells.items()):
        yield f"\n{name}, {learner}, {episodes:,} episodes: regret by table"
        yield f"{'table':>8}{'greedy':>9}{'sampled':>9}{'look-ahead':>12}{'CPU s':>8}{'seeds':>7}"
        regrets = {}
        for seed, found in tables.items():
            regrets[seed] = mean(row["regret"] for row in found)
            sampled, ahead, cpu = (
                mean(row[k] for row in found) for k in ("sampled", "look_ahead", "cpu")
            )
            numbers = f"{regrets[seed]:9.4f}{sampled:9.4f}{ahead:12.4f}{cpu:8.1f}{len(found):7}"
            yield f"{seed:8}{numbers}"
        worst = max(regrets, key=regrets.__getitem__)
        yield f"mean {mean(regrets.values()):.4f}, worst {regrets[worst]:.4f} (table {worst})"


def seeds_of(text: str) -> list[int]:
    """Seeds as they are given: `40`, or `40-49`."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a seed, or two as in 40-49")
    return [*range(int(match[1]), int(match[2] or match[1]) + 1)]


def main() -> None:
    """Measure what is missing, then print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--episodes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--tables", type=seeds_of, default=[], help="seeds of tables, as 40-49")
    parser.add_argument("--jobs", type=int, default=2, help="cells at once")
    parser.add_argument("--results", type=Path, default=ROOT / "runs/efficiency.jsonl")
    parser.add_argument("--report", action="store_true", help="run nothing")
    given = parser.parse_args()
    if given.tables:
        drawn = [name for name in given.problems if name in DRAWN]
        given.problems = [f"{name}@{seed}" for name in drawn for seed in given.tables]
    if not given.report:
        cells = [
            Cell(problem, name, episodes, seed)
            for problem in given.problems
            for name in given.learners
            for episodes in given.episodes
            for seed in given.seeds
            if episodes <= min(posed_as(problem).most, MOST.get(name, SIZES[-1]))
        ]
        run_missing(cells, given.results, given.jobs)
    rows = [row for cell, row in read(given.results).items() if cell.problem in given.problems]
    print("\n".join(by_table(rows) if given.tables else table(rows)))


if __name__ == "__main__":
    main()
