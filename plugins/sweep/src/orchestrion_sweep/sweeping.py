"""A whole sweep: trials under one budget, the winner by validation, and its result on test.

All of it is a function of the config: what a killed sweep did is found in its folders, and the rest
is done as if it had never stopped.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from attrs import Factory, define, frozen

from orchestrion import BudgetError, Key, Metrics, OrchestrionError, RunError, Usage, UsageError
from orchestrion.config import to_yaml
from orchestrion.runs import Allowance, Estimate, RunLock, forecast_of, make_folder, write_atomic
from orchestrion_sweep.plan import SweepPlan, read_plan
from orchestrion_sweep.settings import Objective, rises
from orchestrion_sweep.space import Values
from orchestrion_sweep.trials import (
    FIGURES,
    METRICS,
    Rows,
    Trial,
    ahead,
    carry_out,
    judge_on_test,
    new_trial,
    of_rows,
    spent_below,
)

CONFIG, STATE, BEST, REPORT = "sweep.yaml", "sweep.json", "best.yaml", "report.json"

Say = Callable[[str], None]


@frozen
class OnTest:
    """The figures of the winner and of the config as it is on the test split."""

    problems: int  # of the split
    best: Mapping[Objective, Estimate]
    as_configured: Mapping[Objective, Estimate] | None  # None if that trial failed
    ahead: Mapping[Objective, Estimate] | None
    """The winner's minus those, paired by problem; None likewise, or if it won itself."""


@define
class SweepResult:
    """What came of a sweep."""

    plan: SweepPlan
    folder: Path
    trials: list[Trial] = Factory(list)  # in order
    best: Trial | None = None  # the winner; None if no trial has results
    front: list[Trial] = Factory(list)  # trials that no other beats in all objectives
    test: OnTest | None = None  # None until the winner was judged
    spend: Usage = Usage()  # of all its runs


async def sweep(config: str | Path, overrides: Sequence[str] = (), say: Say = print) -> SweepResult:
    """Do what `orchestrion sweep` does; given the folder of a sweep, go on with it.

    Args:
        config: a file with a section `search`, or the folder of a sweep.
        overrides: as `-o`.
        say: shows a line.

    Raises:
        ConfigError: everything that is wrong, before anything is run.
        OrchestrionError: as `go_on`; call it again with the folder.
    """
    result = await begin(Path(config), overrides)
    await go_on(result, say)
    return result


async def begin(
    config: Path, overrides: Sequence[str] = (), block: Sequence[str] = ()
) -> SweepResult:
    """Return a new sweep of a config in a folder of its own, or the sweep that a folder holds.

    The components of the config as it is are opened once, without network access.

    Raises:
        UsageError: something is wrong; then nothing was made.
    """
    earlier = _earlier_result(config, overrides, block)
    if earlier is not None:
        return earlier
    plan = read_plan(config, overrides, block)
    if plan.settings.method != "optuna":
        plan.draws()  # values that do not fit together are said before anything is made
    for judged in (plan.trial({}), plan.test({}, plan.base.seed)):
        with suppress(RunError):  # what needs the network is opened by the first trial
            await forecast_of(judged)
    return SweepResult(plan, create(plan, plan.base.run.name or config.stem))


def _earlier_result(
    config: Path, overrides: Sequence[str], block: Sequence[str]
) -> SweepResult | None:
    """Return the sweep that a folder holds; None for a file."""
    if not config.is_dir():
        return None
    folder = config.absolute()
    _state(folder)
    plan = read_plan(folder / CONFIG, overrides, block)
    check_unchanged(plan, folder)
    return SweepResult(plan, folder)


def create(plan: SweepPlan, name: str) -> Path:
    """Make the folder of a new sweep below that of runs, `NAME-sweep-NUMBER`, and return it."""
    root = Path(plan.base.run.directory).expanduser()
    make_folder(root.absolute())
    name = name if name.endswith("sweep") else f"{name}-sweep"
    for number in count(1):
        folder = root.absolute() / f"{name}-{number}"
        with suppress(FileExistsError):
            folder.mkdir()
            break
    sections = {"search": plan.space.plain(), "sweep": plan.settings.plain()}
    write_atomic(folder / CONFIG, [to_yaml({**plan.base.resolved(), **sections}).encode()])
    _write(folder / STATE, {"digest": plan.digest, "seconds": 0.0})
    return folder


def check_unchanged(plan: SweepPlan, folder: Path) -> None:
    """Refuse to go on with other trials than a sweep began with.

    Raises:
        UsageError: the folder holds no sweep, or another one.
    """
    if _state(folder)["digest"] != plan.digest:
        raise UsageError(
            f"{folder / CONFIG}: was changed since the sweep began; put it back as it was. With "
            "-o, only budget.*, most of run.* and (without optuna) sweep.parallel may differ"
        )


def _state(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError):
        raise UsageError(f"{folder}: holds no sweep") from None
    return state


def _write(path: Path, data: Mapping[str, Any]) -> None:
    write_atomic(path, [json.dumps(data, indent=2).encode()])


async def go_on(result: SweepResult, say: Say) -> None:
    """Do all that is still to be done of a sweep; what came of it is in `result` then.

    Raises:
        BudgetError: the budget is used up; all that is done is kept.
        UsageError: the config as it is cannot be run.
        OrchestrionError: the winner could not be judged.
    """
    lock = RunLock(result.folder)
    try:
        await _Sweep(result, say).all()
    finally:
        result.spend = spent_below(result.folder)
        lock.release()


class _Sweep:
    def __init__(self, result: SweepResult, say: Say) -> None:
        self.result, self.say = result, say
        self.plan, self.folder = result.plan, result.folder
        self.state = _state(self.folder)
        self.allowance = Allowance(
            self.plan.base.budget, spent_below(self.folder), float(self.state["seconds"])
        )
        self._written = time.monotonic()
        self._out_of_budget: BudgetError | None = None
        self._in_use: dict[Path, asyncio.Lock] = {}
        """By folder: trials with equal values share one."""

    async def all(self) -> None:
        """Run all trials, choose, and judge."""
        result, plan = self.result, self.plan
        try:
            for batch in self._batches():
                await self._run(batch)
            finished = [trial for trial in result.trials if trial.rows]
            result.front = front(plan, finished)
            result.best = best(plan, finished)
            if result.best is not None:
                self._write_best(result.best)
                result.test = await self._judge(result.best, result.trials[0])
        finally:
            self._keep_time()

    def _tick(self) -> None:
        if time.monotonic() - self._written > 1:
            self._keep_time()

    def _keep_time(self) -> None:
        self._written = time.monotonic()
        _write(self.folder / STATE, {**self.state, "seconds": self.allowance.elapsed})

    # ------------------------------------------------------------------ trials

    def _batches(self) -> Iterator[list[Trial]]:
        """Yield trials that do not depend on each other's results."""
        settings, self.study = self.plan.settings, None
        if settings.method != "optuna":
            yield self._trials(0, self.plan.draws())
            return
        from orchestrion_sweep.with_optuna import Study

        self.study = study = Study(self.plan, self.folder)
        yield self._trials(0, [{}])
        number, total = 1, settings.trials or 0
        while number < total:
            numbers = range(number, min(number + settings.parallel, total))
            batch = self._trials(number, study.ask(numbers))
            yield batch
            for trial in batch:
                figures = [trial.figure(self.plan, name).mean for name in settings.objectives]
                study.tell(trial.number, trial.status, figures)
            number += len(batch)

    def _trials(self, first: int, values: Sequence[Values]) -> list[Trial]:
        trials = [new_trial(self.plan, self.folder, first + i, v) for i, v in enumerate(values)]
        folders_by_values = {
            json.dumps(trial.values): trial.folders for trial in self.result.trials
        }
        for trial in trials:  # optuna may ask for the same values twice
            trial.folders = folders_by_values.setdefault(json.dumps(trial.values), trial.folders)
        self.result.trials += trials
        return trials

    async def _run(self, batch: Sequence[Trial]) -> None:
        """Run trials, so many at once; return when all ended.

        Raises:
            BudgetError: the budget is used up.
        """
        places = asyncio.Semaphore(self.plan.settings.parallel)

        async def run(trial: Trial) -> None:
            in_use = self._in_use.setdefault(trial.folders[0], asyncio.Lock())
            async with places, in_use:
                if self._out_of_budget is None:
                    await self._run_trial(trial)

        try:
            async with asyncio.TaskGroup() as group:
                for trial in batch:
                    group.create_task(run(trial))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        if self._out_of_budget is not None:
            raise self._out_of_budget

    async def _run_trial(self, trial: Trial) -> None:
        def say(text: str) -> None:
            self.say(f"trial {trial.number}: {text}")

        try:
            await carry_out(self.plan, trial, self.allowance, say, self._tick, self._step_of(trial))
        except BudgetError as error:
            self._out_of_budget = error
            return
        self._check_figures(trial)
        main = self.plan.settings.objectives[0]
        figure = trial.figure(self.plan, main)
        text = f"{main} {figure.mean:.4f}" if trial.rows else trial.reason
        say(f"{trial.status}: {text}" if trial.status != "completed" else text)
        self._keep_time()

    def _check_figures(self, trial: Trial) -> None:
        for name in self.plan.settings.objectives:
            if trial.status == "completed" and math.isnan(trial.figure(self.plan, name).mean):
                trial.status, trial.rows = "failed", {}
                trial.reason = f"no problem of the validation split has a {name}"

    def _step_of(self, trial: Trial) -> Callable[[int, Metrics], bool] | None:
        study = self.study
        if study is None or not self.plan.settings.prune or trial.number == 0:
            return None
        metric = METRICS[self.plan.settings.objectives[0]]

        def step(number: int, metrics: Metrics) -> bool:
            value = metrics.get(metric, math.nan)
            return math.isnan(value) or study.goes_on(trial.number, number, value)

        return step

    # ------------------------------------------------------------------ the winner

    def _write_best(self, trial: Trial) -> None:
        head = f"# Trial {trial.number} of {self.folder.name}: the best on the validation split.\n"
        text = head + self.plan.best(trial.values).to_yaml()
        write_atomic(self.folder / BEST, [text.encode()])

    async def _judge(self, winner: Trial, own: Trial) -> OnTest:
        judged: dict[int, Rows] = {}
        for trial in (winner, own):
            if trial.rows and trial.number not in judged:
                self.say(f"judging trial {trial.number} on test")
                judged[trial.number] = await judge_on_test(
                    self.plan, self.folder, trial, self.allowance, self.say
                )
        key = Key(self.plan.base.seed).child("sweep", "test")

        def figures(rows: Rows) -> dict[Objective, Estimate]:
            return {name: of_rows(rows, name, key) for name in FIGURES}

        best, as_it_is = judged[winner.number], judged.get(own.number)
        if as_it_is is None:
            return OnTest(len(best), figures(best), None, None)
        gain = {name: ahead(best, as_it_is, name, key) for name in FIGURES}
        return OnTest(len(best), figures(best), figures(as_it_is), None if winner is own else gain)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that says most: one of ours before any other."""
    flat = [e for e in errors.exceptions if not isinstance(e, BaseExceptionGroup)]
    return next((e for e in flat if isinstance(e, OrchestrionError)), flat[0])


def best(plan: SweepPlan, trials: Sequence[Trial]) -> Trial | None:
    """Return the trial whose first objective is best; of equal ones the first."""
    return max(trials, key=lambda trial: _goodness(plan, trial)[0], default=None)


def _goodness(plan: SweepPlan, trial: Trial) -> list[float]:
    """Return a trial's figure in each objective, the higher the better."""
    names = plan.settings.objectives
    return [trial.figure(plan, name).mean * (1 if rises(name) else -1) for name in names]


def front(plan: SweepPlan, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other beats: as good in all objectives, and better in one."""
    points = [_goodness(plan, trial) for trial in trials]

    def beaten(point: list[float]) -> bool:
        return any(
            other != point and all(a >= b for a, b in zip(other, point, strict=True))
            for other in points
        )

    return [trial for trial, point in zip(trials, points, strict=True) if not beaten(point)]
