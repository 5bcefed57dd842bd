"""A config or a run, open for use: nothing of it is changed any more."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrion._config import Config, load
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import check_judged, check_turns, problems_of
from orchestrion._engine.opening import Opened, load_states, open_components
from orchestrion._errors import StoreError, UsageError
from orchestrion._guards import place_of
from orchestrion._keys import Key
from orchestrion._records import JSON, Array, Saved, Split
from orchestrion._report import Report, compare, outcomes, own_name
from orchestrion._session import EngineSession
from orchestrion._store import Checkpoint, RunReader, find_run
from orchestrion._store.shared import SharedAnswers

__all__ = [
    "Trained",
    "newest_checkpoint",
    "newest_states",
    "open_run",
    "run_directory",
    "saved_from_json",
    "saved_to_json",
]


class Trained:
    """A config or run that is open for use: nothing of it is changed any more.

    Args:
        config: as it was opened.
        opened: its components.
        directory: the run's folder; None for a config that was not trained.
        notes: what a person should know, e.g. that a damaged checkpoint was passed over.
        trained_on: episodes that each contender of a report was trained with.
        shared: answers of earlier runs.
        untrained: the config before anything was learned; None where it is `config`.
        configured: its components before learnable settings were changed, for baselines that are
            judged with these.
    """

    def __init__(
        self,
        config: Config,
        opened: Opened,
        directory: Path | None,
        notes: Sequence[str] = (),
        trained_on: Mapping[str, int] | None = None,
        shared: SharedAnswers | None = None,
        untrained: Config | None = None,
        configured: Opened | None = None,
    ) -> None:
        self.configured = configured or opened
        self.config, self.opened, self.directory = config, opened, directory
        self.untrained = untrained
        self.trained_on = trained_on or {}
        self.notes = tuple(notes)
        self.failures: Counter[str] = Counter()
        """How often which turn or verification failed in `evaluate`, as "who: message"."""
        self.calls = CallPath(Budget(config.budget), shared=shared)
        self.engine = opened.engine(self.calls)
        self.engine.stage = "run"

    async def evaluate(
        self,
        split: Split | None = None,
        seeds: int | None = None,
        limit: int | None = None,
        baselines: bool = True,
    ) -> Report:
        """Judge the policy, and the run's baselines as they were trained, on a split.

        A baseline that has to be trained and was not yet is left out; `notes` says so. So is the
        untrained team where nothing was trained, as it is what is judged.

        Args:
            split: of the problems; None for the config's `evaluation.split`.
            seeds: tries of each; None for the config's.
            limit: how many problems; None for as many as the config says.
            baselines: whether to judge them as well.

        Raises:
            UsageError: the split has no problems.
        """
        evaluation = self.config.evaluation
        split, seeds = split or evaluation.split, seeds or evaluation.seeds
        limit = limit or evaluation.episodes
        place = place_of(self.config, "task")
        if not len(problems_of(self.opened.runtimes["task"], split, place)):
            raise UsageError(f"{place}: its split {split!r} has no problems")
        own = own_name(self.config, trained=self.directory is not None)
        results = {}
        left_out = untrained_baselines(self.config, self.trained_on)
        others = [
            name
            for name, one in evaluation.baselines.items()
            if name not in left_out and not (one.untrained and self.directory is None)
        ]
        for name in (own, *(others if baselines else ())):
            async with AsyncExitStack() as stack:
                opened: Opened = self.opened
                team: dict[str, Any] = {}
                if name != own:
                    one = evaluation.baselines[name]
                    team = {"policy": one.policy, "agents": one.agents}
                    if one.as_configured:
                        opened = self.configured
                    if one.untrained:
                        config = self.untrained or self.config
                        opened = await open_components(config, stack, Key(config.seed))
                engine = opened.engine(self.calls, **team)
                stack.callback(engine.close)
                key = Key(self.config.seed).child("evaluate")
                session = EngineSession(
                    engine, name, key, key, self.config.run.concurrency, test=True
                )
                try:
                    episodes = await session.evaluate_as(name, split, None, limit, seeds)
                finally:
                    self.failures.update(engine.failed_turns)
            where = f"the evaluation of {name}"
            check_judged(episodes, where)
            if name == own:
                check_turns(episodes, where, 1)
            results[name] = outcomes(episodes)
        key = Key(self.config.seed).child("report")
        return compare(split, seeds, results, self.trained_on, key)


def untrained_baselines(config: Config, trained: Collection[str]) -> list[str]:
    """Return the baselines that have a trainer and are not among the trained ones."""
    baselines = config.evaluation.baselines
    return [
        name for name, one in baselines.items() if one.trainer is not None and name not in trained
    ]


@asynccontextmanager
async def open_run(
    target: str | Path, overrides: Sequence[str] = (), block: Sequence[str] = ()
) -> AsyncIterator[Trained]:
    """Open a run's folder (or its name) with what it learned, or a config as it is.

    Args:
        target: a run or a config file.
        overrides: as `-o`; e.g. another suite of problems for the same policy.
        block: plugins that are never imported.

    Raises:
        UsageError: there is neither, the config has problems or was changed since the run began,
            or the run has no checkpoint.
        CheckpointError: no checkpoint is valid.
        RunError: what was learned does not fit the (overridden) config.
    """
    directory = run_directory(target)
    path = Path(target) if directory is None else directory / "config.yaml"
    config = load(path, overrides, block=block)
    checkpoint, states, trained_on = None, {}, {}
    notes = config.plugins.notes()
    if directory is not None:
        with RunReader(directory) as reader:
            _check_unchanged(path, reader, block)
            restored = reader.usable()
            checkpoint = restored.checkpoint
            notes += restored.notes()
            evaluations = reader.load_evaluations()
            states = {
                name: results["state"]
                for name, results in evaluations.items()
                if results.get("state") is not None
            }
            trained_on = {name: results["trained_on"] for name, results in evaluations.items()}
            # Not yet evaluated, or with an older checkpoint than the newest: what it is made of.
            last = (checkpoint.stage, checkpoint.iteration) if checkpoint is not None else (-1, -1)
            done = [one for one in reader.iterations() if (one.stage, one.iteration) <= last]
            trained_on[own_name(config)] = sum(one.episodes for one in done)
        if checkpoint is None and config.stages:
            raise UsageError(f"{directory}: nothing is learned yet; `orchestrion resume` goes on")
    if left_out := untrained_baselines(config, trained_on):
        which = ", ".join(left_out)
        notes += (f"left out: baselines that are trained only at the end of a run: {which}",)
    untrained = config
    if checkpoint is not None and checkpoint.overlay:
        config = config.with_overlay(checkpoint.overlay)
    async with AsyncExitStack() as stack:
        opened = await open_components(config, stack, Key(config.seed))
        if checkpoint is not None:
            load_states(opened, checkpoint.components)
        baselines = config.evaluation.baselines
        load_states(
            opened,
            {
                baselines[name].policy: saved_from_json(state)
                for name, state in states.items()
                if name in baselines
            },
        )
        configured = None
        if config is not untrained and any(one.as_configured for one in baselines.values()):
            configured = await open_components(untrained, stack, Key(config.seed), previous=opened)
        name = config.run.cache
        shared = None if name is None else stack.enter_context(SharedAnswers(name))
        trained = Trained(
            config, opened, directory, notes, trained_on, shared, untrained, configured
        )
        try:
            async with trained.calls.budget.deadline():
                yield trained
        finally:
            trained.engine.close()


def _check_unchanged(path: Path, reader: RunReader, block: Sequence[str]) -> None:
    """Refuse a run's config that decides something else than it did when the run began."""
    if path.read_text("utf-8") == reader.config_text:
        return
    begun_with = (reader.manifest or {}).get("digest")
    if begun_with not in (None, load(path, block=block).digest):
        raise UsageError(
            f"{path}: was changed since the run began; put it back as it was, and use -o to try "
            "what was learned under other settings"
        )


def run_directory(target: str | Path) -> Path | None:
    """The run's folder if `target` is one or names one; None if it is a file.

    Raises:
        UsageError: it is neither.
    """
    if Path(target).is_file():
        return None
    try:
        return find_run(target)
    except StoreError as error:
        raise UsageError(f"{target}: neither a config nor a run ({error})") from None


def newest_checkpoint(target: str | Path) -> tuple[Path, Checkpoint | None]:
    """A run's folder, and its newest valid checkpoint; None if it has none yet.

    Raises:
        UsageError: it is no run.
    """
    directory = run_directory(target)
    if directory is None:
        raise UsageError(f"{target}: is a file; name a run")
    with RunReader(directory) as reader:
        return directory, reader.usable().checkpoint


def newest_states(target: str | Path) -> tuple[Path, Mapping[str, Saved]]:
    """A run's folder, and the states in its newest checkpoint; none if it has no checkpoint yet.

    Raises:
        UsageError: it is no run.
    """
    directory, checkpoint = newest_checkpoint(target)
    return directory, checkpoint.components if checkpoint is not None else {}


def saved_to_json(saved: Saved) -> JSON:
    """Learned state as JSON; arrays as base64."""
    arrays = {
        name: [array.dtype, list(array.shape), b64encode(array.data).decode()]
        for name, array in saved.arrays.items()
    }
    return {"arrays": arrays, "data": saved.data}


def saved_from_json(data: JSON) -> Saved:
    """The inverse of `saved_to_json`."""
    arrays = {
        name: Array(dtype, tuple(shape), b64decode(text))
        for name, (dtype, shape, text) in data["arrays"].items()
    }
    return Saved(arrays, data["data"])
