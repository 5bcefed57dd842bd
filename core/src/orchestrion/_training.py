"""Train, resume and evaluate from Python: in a script, a notebook, or a coroutine."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from orchestrion._blocking import blocking
from orchestrion._config.loading import ConfigLike, as_config
from orchestrion._engine.budget import Allowance
from orchestrion._errors import UsageError
from orchestrion._manifest import manifest
from orchestrion._notebook import notebook_progress
from orchestrion._observers import Observers
from orchestrion._progress import Progress
from orchestrion._records import JSON, Split
from orchestrion._report import Report
from orchestrion._run import Conduct, status_after
from orchestrion._runlog import run_log
from orchestrion._store import RunStore, find_run
from orchestrion._store.names import run_folder
from orchestrion._store.reader import RunStatus
from orchestrion._stored import stored_config
from orchestrion._stored_run import Run
from orchestrion._suggest import article
from orchestrion._trained import open_run
from orchestrion.config import Config, load


async def atrain(
    config: ConfigLike,
    directory: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    *,
    overrides: Sequence[str] = (),
    block: Sequence[str] = (),
    allowance: Allowance | None = None,
) -> Run:
    """Train a config, evaluate what was learned beside its baselines, and return the run.

    `train` blocks, also in a notebook; `atrain` is awaited. Ctrl-C or a notebook's interrupt ends
    the run after its last committed iteration.

    Args:
        config: a file, YAML text of several lines, a mapping, or a `Config`.
        directory: the run's folder; a run of the same config in it is continued. None for a new
            one as the command line makes it: `runs/NAME-NUMBER`, or by `run.directory`, `run.name`.
        progress: shows how the run goes on; None for a bar in a notebook and nothing elsewhere.
        overrides: as `-o`, e.g. `["trainer.iterations=5"]`.
        block: plugins that are never imported.
        allowance: what it may spend together with other runs; by default the config's budget.

    Raises:
        ConfigError: the config is wrong; has everything that is, with its place.
        BudgetError: the budget is used up; `resume` with more of it goes on.
        UsageError: the folder holds a run of another config, or something else.
        OrchestrionError: the run failed.
    """
    _check_progress(progress)
    config = as_config(config, overrides, block)
    observers = config.observers()  # before there is a folder: one of them may refuse
    if directory is not None and (Path(directory) / "run.db").exists():
        store = RunStore.open(Path(directory))
    else:
        store = create_run(config, None if directory is None else Path(directory))
    return await _carry_out(config, store, observers, progress, allowance)


def _check_progress(progress: object) -> None:
    if progress is not None and not isinstance(progress, Progress):
        kind = type(progress).__name__
        raise UsageError(f"progress: expected an orchestrion.runs.Progress, got {article(kind)}")


async def aresume(
    run: str | PathLike[str],
    progress: Progress | None = None,
    *,
    overrides: Sequence[str] = (),
    block: Sequence[str] = (),
) -> Run:
    """Go on with a run from its newest checkpoint, as if it had never ended, and return it.

    `resume` blocks, `aresume` is awaited.

    Args:
        run: a `Run`, its folder, or its name below `runs/`.
        progress: as `atrain`.
        overrides: what does not decide the result: `budget.*` and most of `run.*`.
        block: plugins that are never imported.

    Raises:
        UsageError: there is no such run, or its config was changed.
        OrchestrionError: as `atrain`.
    """
    _check_progress(progress)
    directory = find_run(run)
    config = load(directory / "config.yaml", overrides, block=block)
    observers = config.observers()
    return await _carry_out(config, resumed_store(config, directory), observers, progress)


async def aevaluate(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    split: Split | None = None,
    seeds: int | None = None,
    limit: int | None = None,
    baselines: bool = True,
    block: Sequence[str] = (),
) -> Report:
    """Evaluate what a run learned, or a config as it is, beside the baselines; nothing learns.

    Writes nothing to the run's folder, and warns of what was left out. `evaluate` blocks,
    `aevaluate` is awaited.

    Args:
        target: a `Run`, its folder or name, or a config in any form that `train` takes.
        overrides: as `-o`; e.g. another suite of problems for the same policy.
        split: of the problems; None for the config's `evaluation.split`.
        seeds: tries of each problem; None for the config's.
        limit: how many problems; None for as many as the config says.
        baselines: whether to evaluate them as well.
        block: plugins that are never imported.

    Raises:
        UsageError: there is no such run, it has no checkpoint yet, or the split has no problems.
        OrchestrionError: the evaluation failed.
    """
    async with open_run(target, overrides, block) as trained:
        for note in trained.notes:
            warnings.warn(note, stacklevel=2)
        return await trained.evaluate(split, seeds, limit, baselines)


train, resume, evaluate = blocking(atrain), blocking(aresume), blocking(aevaluate)


def create_run(
    config: Config, directory: Path | None = None, suffix: str = "", **facts: JSON
) -> RunStore:
    """Return the store of a new run, open for writing; `facts` go into its manifest.

    Without a `directory` its folder is one below `run.directory`: `run.name`, or the first free
    number of the name of the config's file. With a `suffix`, `run.name` is numbered too.
    """
    settings, numbered = config.run, None
    if directory is None:
        directory = run_folder(settings.directory)
        if settings.name is not None and not suffix:
            directory /= settings.name
        else:
            numbered = (settings.name or Path(config.source).stem) + suffix
    return RunStore.create(
        directory,
        config.to_yaml(),
        manifest(config) | facts,
        retention=settings.retention,
        keep=settings.keep,
        numbered=numbered,
    )


def resumed_store(config: Config, directory: Path) -> RunStore:
    """Return the store of a run, open to go on with it; `run.keep` of the config acts on it.

    Raises:
        UsageError: another setting of `run` was changed that only a new run can have.
        StoreError: see `RunStore.open`.
    """
    store = RunStore.open(directory)
    try:
        before, now = stored_config(store)["run"], config.resolved()["run"]
        changed = {key for key in before if before[key] != now[key]}
        if changed & {"name", "directory"}:
            key = "name" if "name" in changed else "directory"
            raise UsageError(
                f"run.{key}: a run goes on in its own folder; leave this out, and rename or move "
                f"{directory} instead"
            )
        if "retention" in changed and config.run.retention != store.retention:
            raise UsageError(
                "run.retention: a run goes on with the one that it began with; leave this out. "
                f"`orchestrion runs prune {directory} --retention LEVEL` keeps less of the run"
            )
        if "keep" in changed:
            store.keep_checkpoints(config.run.keep)
    except BaseException:
        store.close()
        raise
    return store


async def _carry_out(
    config: Config,
    store: RunStore,
    observers: Observers,
    progress: Progress | None,
    allowance: Allowance | None = None,
) -> Run:
    status: RunStatus = "failed"
    detail, directory = "", store.directory
    with store, run_log(directory):
        progress = progress or notebook_progress(directory)
        conduct = Conduct(config, store, progress, observers, budget=allowance)
        try:
            await conduct.train()
            status = "completed"
        except BaseException as error:
            status, detail = status_after(error), str(error)
            if status != "failed":
                error.add_note(f"go on with: orchestrion.resume({str(directory)!r})")
            raise
        finally:
            if conduct.begun:
                store.set_status(status, detail, **conduct.unbooked())
                conduct.observers.run_finished(directory, status)
            progress.ended(status)
    return Run(directory)
