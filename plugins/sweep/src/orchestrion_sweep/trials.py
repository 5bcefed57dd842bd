"""Trials: each is one ordinary run a seed, in a folder of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, define, evolve, frozen

from orchestrion import Key, Metrics, OrchestrionError, Usage, UsageError
from orchestrion.config import Config
from orchestrion.runs import (
    Allowance,
    Estimate,
    Progress,
    RunReader,
    RunStore,
    atrain,
    difference,
    estimate,
    manifest,
    mean,
)
from orchestrion_sweep.plan import SweepPlan
from orchestrion_sweep.settings import Objective
from orchestrion_sweep.space import Values, name_of

Rows = Mapping[str, Mapping[str, float | None]]
"""By problem: reward, solved, cost; means over tries and seeds."""

FIGURES: tuple[Objective, ...] = ("reward", "solved", "cost")
METRICS: Mapping[Objective, str] = {"reward": "reward", "solved": "success", "cost": "cost"}
"""What iterations call them."""

PRUNED = "pruned by the sweep"


@define
class Trial:
    """A trial of a sweep."""

    number: int  # 0 is the config as it is
    values: Values  # what it changes
    folders: list[Path]  # of its runs, one for each seed
    status: str = "waiting"  # or "completed", "pruned", "failed"
    reason: str = ""  # why it is not completed
    rows: Rows = Factory(dict)  # its results on the validation split

    def figure(self, plan: SweepPlan, name: Objective) -> Estimate:
        """Return a result with its interval, over the problems of the validation split."""
        return of_rows(self.rows, name, Key(plan.base.seed).child("sweep", "validation"))


def new_trial(plan: SweepPlan, folder: Path, number: int, values: Values) -> Trial:
    """Return a trial that has not begun, or goes on where its folders are."""
    many = len(plan.seeds) > 1
    names = [name_of(number, values, seed if many else None) for seed in plan.seeds]
    return Trial(number, values, [folder / name for name in names])


def of_rows(rows: Rows, name: Objective, key: Key) -> Estimate:
    """Return the mean of a result over problems, with its interval."""
    values = [row[name] for row in rows.values()]
    return estimate([value for value in values if value is not None], key.child(name))


def ahead(first: Rows, second: Rows, name: Objective, key: Key) -> Estimate:
    """Return the mean of `first - second` over the problems that both have a result for."""
    pairs = [
        (row[name], second[problem][name]) for problem, row in first.items() if problem in second
    ]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return difference([a for a, _ in both], [b for _, b in both], key.child(name))


def merged(results: Sequence[Rows]) -> Rows:
    """Return the means of several seeds, by problem."""
    rows: dict[str, dict[str, float | None]] = {}
    for problem in results[0]:
        rows[problem] = {}
        for name in FIGURES:
            values = [v for r in results if problem in r and (v := r[problem][name]) is not None]
            rows[problem][name] = mean(values) if values else None
    return rows


# ------------------------------------------------------------------ runs on disk


@frozen
class StoredTrial:
    """What a run folder holds; nothing where there is none yet."""

    status: str = ""
    detail: str = ""
    rows: Rows = Factory(dict)
    curve: Sequence[Metrics] = ()
    spend: Usage = Usage()


def stored(folder: Path) -> StoredTrial:
    """Return what a folder holds."""
    if not (folder / "run.db").exists():
        return StoredTrial()
    with RunReader(folder) as run:
        evaluations: list[Any] = list(run.load_evaluations().values())
        rows = evaluations[0]["outcomes"] if evaluations else {}
        curve = [iteration.metrics for iteration in run.iterations()]
        return StoredTrial(run.status, run.detail, rows, curve, run.spend())


def spent_of(trial: Trial) -> Usage:
    """Return what a trial's runs took."""
    return sum((stored(folder).spend for folder in trial.folders), Usage())


def spent_below(folder: Path) -> Usage:
    """Return what all runs of a sweep took, with what was under way when it was killed."""
    folders = [database.parent for database in sorted(folder.glob("*/run.db"))]
    for run in folders:
        if stored(run).status == "interrupted":
            RunStore.open(run).close()  # books what may have been paid
    return sum((stored(run).spend for run in folders), Usage())


class _Pruned(asyncio.CancelledError):
    """The sweep ends a trial in training."""


class _Watch(Progress):
    """Follows one run for the sweep.

    Args:
        say: shows a line.
        tick: called after every iteration.
        step: called with the number and the metrics of every iteration; returns whether to go on.
        done: iterations that an earlier process ran.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        tick: Callable[[], None],
        step: Callable[[int, Metrics], bool] | None,
        done: int,
    ) -> None:
        self._say, self._tick, self._step = say, tick, step
        self._warm = 0
        self._counted = done

    def noted(self, path: str, name: str, text: str) -> None:
        self._say(f"{path}: {name} {text}")

    def stage(self, name: str, iterations: int, done: int) -> None:
        self._warm = self._warm or math.ceil(iterations / 4)

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        self._tick()
        step, self._counted = self._counted, self._counted + 1
        # The first quarter of training says little about its end.
        if self._step is not None and not self._step(step, metrics) and step >= self._warm:
            raise _Pruned(f"{PRUNED} after {step + 1} iterations of training")


async def carry_out(
    plan: SweepPlan,
    trial: Trial,
    allowance: Allowance,
    say: Callable[[str], None],
    tick: Callable[[], None],
    step: Callable[[int, Metrics], bool] | None = None,
) -> None:
    """Run a trial to its end, or read how it ended; its status and results are set then.

    `allowance` is left for all trials. `say`, `tick` and `step` are those of `_Watch`; iterations
    that an earlier process ran are given to `step` again.

    Raises:
        BudgetError: the budget is used up.
        UsageError: the config as it is cannot be run.
    """
    results = []
    for i, (folder, seed) in enumerate(zip(trial.folders, plan.seeds, strict=True)):
        run = stored(folder)
        follow = step if i == 0 else None
        if follow is not None:
            for number, metrics in enumerate(run.curve):
                follow(number, metrics)
        if run.status == "failed" or run.detail.startswith(PRUNED):
            trial.status = "failed" if run.status == "failed" else "pruned"
            trial.reason = run.detail or "failed"
            return
        if run.status != "completed":
            watch = _Watch(say, tick, follow, len(run.curve))
            try:
                await atrain(plan.trial(trial.values, seed), folder, watch, allowance=allowance)
            except _Pruned as error:
                trial.status, trial.reason = "pruned", str(error)
                return
            except OrchestrionError as error:
                if error.exit_code == 4 or (trial.number == 0 and isinstance(error, UsageError)):
                    raise
                trial.status, trial.reason = "failed", str(error)
                return
        results.append(stored(folder).rows)
    trial.rows, trial.status = merged(results), "completed"


# ------------------------------------------------------------------ test


async def judge_on_test(
    plan: SweepPlan, folder: Path, trial: Trial, allowance: Allowance, say: Callable[[str], None]
) -> Rows:
    """Return a trained trial's results on the test split; it is judged there once.

    Each seed's is a run of its own that begins with what the trial's run learned.

    Raises:
        BudgetError: the budget is used up.
        RunError: it could not be judged.
    """
    results = []
    for learned, seed in zip(trial.folders, plan.seeds, strict=True):
        directory = folder / f"test-{learned.name}"
        if stored(directory).status != "completed":
            config = plan.test(trial.values, seed)
            _begin_with(learned, directory, config)
            await atrain(config, directory, _Watch(say, lambda: None, None, 0), allowance=allowance)
        results.append(stored(directory).rows)
    return merged(results)


def _begin_with(learned: Path, directory: Path, config: Config) -> None:
    """Make a run whose newest checkpoint is that of another."""
    settings = config.run
    if (directory / "run.db").exists():
        store = RunStore.open(directory)
    else:
        facts = manifest(config) | {"learned_in": str(learned.name)}
        store = RunStore.create(
            directory, config.to_yaml(), facts, retention=settings.retention, keep=settings.keep
        )
    with store:
        if not config.stages or store.iterations():
            return
        with RunReader(learned) as run:
            last, checkpoint = run.iterations()[-1], run.usable().checkpoint
        assert checkpoint is not None  # a completed run has one
        checkpoint = evolve(checkpoint, config=config.digest)
        store.commit_iteration(last.stage, last.iteration, [], last.metrics, checkpoint)
