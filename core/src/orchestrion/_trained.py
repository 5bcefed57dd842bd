"""Open a config, or a run with what it learned, to use and to evaluate it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import get_args

from attrs import Factory, frozen

from orchestrion._config.loading import ConfigLike, as_config, is_text
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import problems_of, text_problem
from orchestrion._engine.opening import load_states
from orchestrion._engine.pool import open_pool
from orchestrion._errors import UsageError
from orchestrion._guards import calling, place_of
from orchestrion._keys import Key
from orchestrion._learned import (
    OWN_TEAM,
    LearnedComponents,
    evaluate_contender,
    saved_from_json,
)
from orchestrion._manifest import changed_code, changed_data, code_of, data_of
from orchestrion._readiness import check_policies
from orchestrion._records import JSON, Episode, Problem, Saved, Split, Turn, answering
from orchestrion._report import (
    Outcomes,
    Report,
    compare,
    enumerated,
    outcomes,
    own_name,
    problem_digests,
)
from orchestrion._store import Checkpoint, RunReader, find_run
from orchestrion._store.shared import SharedAnswers
from orchestrion._stored import changed_settings
from orchestrion.config import Config, load


@frozen
class FoundRun:
    """A run's config and what it learned; `directory` is None for a config that was not trained."""

    config: Config
    directory: Path | None = None
    checkpoint: Checkpoint | None = None
    states: Mapping[str, Saved] = Factory(dict)  # of baselines, by the paths of their policies
    overlays: Mapping[str, Mapping[str, JSON]] = Factory(dict)  # that baselines learned, by name
    trained_on: Mapping[str, int] = Factory(dict)  # by contender of a report, in episodes
    notes: Sequence[str] = ()
    version: str = ""
    iterations: int | None = None
    categories: Sequence[str] = ()


class Trained:
    """A config or a run that is open for use; using it changes nothing of it.

    `shared` are answers of earlier runs; `budget` is what may be spent, None for a new one, as the
    config says.
    """

    def __init__(
        self,
        found: FoundRun,
        components: LearnedComponents,
        shared: SharedAnswers | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.components, self.overlays = components, found.overlays
        self.config, self.opened = components.config, components.opened
        self.directory = found.directory  # the run's folder; None for a config that was not trained
        self.version = found.version
        """Tells apart what was opened: a digest of the config and its checkpoint."""
        self.iterations = found.iterations
        """Those that the run had at the checkpoint; None for a config."""
        self.categories = tuple(found.categories)
        """Of the problems that a trained team was judged on; none if these have no category."""
        self.trained_on = found.trained_on
        """By contender of a report, how many episodes it was trained with."""
        self.notes = tuple(found.notes)
        """What a person should know, e.g. that a damaged checkpoint was skipped."""
        self.failures: dict[str, int] = {}
        """How often which turn or verification failed in `evaluate`, as "who: message"."""
        self._left_out = [
            name
            for name, baseline in self.config.evaluation.baselines.items()
            if baseline.trainer is not None and name not in self.trained_on
        ]
        if self._left_out:
            why = "baselines that are trained only at the end of a run"
            self.notes += (f"left out: {why}: {', '.join(self._left_out)}",)
        self.calls = CallPath(budget or Budget(self.config.budget), shared=shared)
        self.engine = self.opened.engine(self.calls)
        self.engine.stage = "run"

    def problem(self, text: str, category: str = "") -> Problem:
        """Return the problem that the task makes of free text.

        Args:
            text: what the task takes.
            category: of the problem; "" for what the task makes of the text.

        Raises:
            UsageError: the task takes no free text.
            RunError: the task broke its contract.
        """
        place = place_of(self.config, "task")
        return text_problem(self.engine.team.task, text, place, category)

    def answering(self, episode: Episode) -> Turn | None:
        """Return the turn that the task takes for an episode's answer; None if there is none."""
        task = self.engine.team.task
        with calling(place_of(self.config, "task"), "answering()"):
            # Tasks need not subclass the protocol, which has the default.
            return getattr(task, "answering", answering)(reversed(episode.turns))

    def doubt(self, problem: Problem) -> str:
        """Return why a problem is unlike those that the team learned from, or ""."""
        return doubt(problem, self.categories)

    async def evaluate(
        self,
        split: Split | None = None,
        seeds: int | None = None,
        limit: int | None = None,
        baselines: bool = True,
    ) -> Report:
        """Evaluate the policy, and the run's baselines as they were trained, on a split.

        A baseline that has a trainer and was not trained yet is left out; `notes` says so. The
        untrained team is left out where nothing was trained: there it is the team itself.

        Args:
            split: of the problems; None for the config's, as for the next two.
            seeds: tries of each problem.
            limit: how many problems.
            baselines: whether to evaluate them as well.

        Raises:
            UsageError: the split has no problems, or an argument is wrong.
            RunError: no episode could be judged, or every turn failed.
        """
        if split not in (None, *get_args(Split)):
            raise UsageError(f"split: {split!r} is none of {', '.join(get_args(Split))}")
        for name, number in (("seeds", seeds), ("limit", limit)):
            if number is not None and number < 1:
                raise UsageError(f"{name}: must be at least 1, got {number!r:.80}")
        evaluation = self.config.evaluation
        split, seeds = split or evaluation.split, seeds or evaluation.seeds
        limit = limit or evaluation.episodes
        place = place_of(self.config, "task")
        if not len(problems_of(self.opened.runtimes["task"], split, place)):
            raise UsageError(f"{place}: its split {split!r} has no problems")
        teams = {own_name(self.config, trained=self.directory is not None): OWN_TEAM}
        if baselines:
            teams |= {
                name: team
                for name, team in evaluation.baselines.items()
                if name not in self._left_out and not (team.untrained and self.directory is None)
            }
        results: dict[str, Outcomes] = {}
        async with open_pool(self.config, self.calls, self.directory) as pool:
            for name, team in teams.items():
                async with AsyncExitStack() as stack:
                    overlay = self.overlays.get(name)
                    opened = await self.components.of_contender(team, stack, overlay)
                    engine = opened.engine(self.calls, team.policy, team.agents)
                    if pool is not None:
                        pool.take(engine, opened, team)
                    engine.failed_turns = self.failures
                    session = await evaluate_contender(
                        engine, name, self.config, split, seeds, limit
                    )
                results[name] = outcomes(session.evaluations)
        key, digests = Key(self.config.seed).child("report"), problem_digests(session.judged)
        return compare(split, seeds, results, self.trained_on, key, digests)

    def changes(self) -> list[str]:
        """Return which problems and code are others than when the run began, as far as is known.

        With another config (`-o task.suite=...`) they may well be others, and nothing is said.
        """
        if self.directory is None:
            return []
        with RunReader(self.directory) as reader:
            manifest = reader.manifest or {}
        if manifest.get("digest") != self.components.initial.digest or "data" not in manifest:
            return []
        now = data_of(self.opened.runtimes["task"], place_of(self.config, "task"))
        data = changed_data(manifest["data"], now)
        code = changed_code(manifest.get("code", {}), code_of(self.components.initial))
        what = {"the task's data": data, "code": code}
        return [f"{w} was changed since the run began: {text}" for w, text in what.items() if text]


def doubt(problem: Problem, categories: Sequence[str]) -> str:
    """Return why a problem is unlike those of the categories that a team learned from, or ""."""
    if not categories or problem.category in categories:
        return ""
    known = enumerated(categories[:8])
    if problem.category:
        return f"the category {problem.category!r:.80} is none of those it learned from: {known}"
    return f"the team learned from problems with a category ({known}), and this one has none"


def find(target: ConfigLike, overrides: Sequence[str] = (), block: Sequence[str] = ()) -> FoundRun:
    """Return what a run or a config holds, with nothing opened; see `open_run`."""
    directory = after = None
    if isinstance(target, str | PathLike) and not is_text(target):
        target, after = _versioned(target)
        directory = run_directory(target)
        if directory is None and after is not None:
            raise UsageError(f"{target}@{after}: {target} is a config; only a run has versions")
    if directory is None:
        config = as_config(target, overrides, block)
        return FoundRun(config, notes=config.plugins.notes(), version=_version(config, None))
    config = as_config(directory / "config.yaml", overrides, block)
    with RunReader(directory) as reader:
        _check_unchanged(directory / "config.yaml", reader, block)
        restored = reader.usable(after)
        checkpoint = restored.checkpoint
        trained_on = _trained_on(reader, checkpoint, own_name(config))
        states, overlays = _of_baselines(reader, config)
        judged = reader.load_evaluations().get(own_name(config), {}) if config.stages else {}
    if checkpoint is None and config.stages:
        raise UsageError(
            f"{directory}: the run has no checkpoint yet; `orchestrion resume` continues it"
        )
    return FoundRun(
        config,
        directory,
        checkpoint,
        states,
        overlays,
        trained_on,
        [*config.plugins.notes(), *restored.notes()],
        _version(config, restored.path),
        restored.after,
        sorted(filter(None, judged.get("kinds", ()))),
    )


def _versioned(target: str | PathLike[str]) -> tuple[str | PathLike[str], int | None]:
    """Return a run, and after how many iterations it is wanted: `RUN@N` names an older version."""
    run, at, number = str(target).rpartition("@")
    if not at or not number.isdecimal() or Path(target).exists():
        return target, None
    return run, int(number)


def _version(config: Config, checkpoint: Path | None) -> str:
    digest = sha256(config.digest.encode())
    if checkpoint is not None:
        digest.update(checkpoint.read_bytes())
    return digest.hexdigest()[:16]


@asynccontextmanager
async def open_run(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    block: Sequence[str] = (),
    *,
    before: Trained | None = None,
    live: bool = True,
) -> AsyncIterator[Trained]:
    """Open a run's folder (or its name) with what it learned, or a config as it is.

    Args:
        target: a run, `RUN@N` for its checkpoint after N iterations, or a config as for `train`.
        overrides: as `-o`; e.g. another suite of problems for the same policy.
        block: plugins that are never imported.
        before: an earlier version of it that is open; what it spent counts against the budget.
        live: whether agents and models may be asked; else no service needs to be up.

    Raises:
        UsageError: the target is neither, the config has problems or was changed since the run
            began, or the run has no checkpoint.
        CheckpointError: no checkpoint is valid.
        RunError: what was learned does not fit the (overridden) config.
    """
    found = find(target, overrides, block)
    config = found.config
    async with AsyncExitStack() as stack:
        components = LearnedComponents(config, stack, live=live)
        await components.restore(found.checkpoint)
        load_states(components.opened, found.states)
        check_policies(components.opened)
        name = config.run.cache
        shared = None if name is None else stack.enter_context(SharedAnswers(name))
        budget = None if before is None else before.calls.budget.continued(config.budget)
        trained = Trained(found, components, shared, budget)
        async with trained.calls.budget.deadline():
            yield trained


def _trained_on(reader: RunReader, checkpoint: Checkpoint | None, own: str) -> dict[str, int]:
    """Return by contender how many episodes it was trained with.

    The own team is counted up to the checkpoint: the run may not have evaluated it yet, or with
    an older one.
    """
    last = (checkpoint.stage, checkpoint.iteration) if checkpoint is not None else (-1, -1)
    iterations = [i for i in reader.iterations() if (i.stage, i.iteration) <= last]
    trained_on = {name: stored["trained_on"] for name, stored in reader.load_evaluations().items()}
    return {**trained_on, own: sum(iteration.episodes for iteration in iterations)}


def _of_baselines(
    reader: RunReader, config: Config
) -> tuple[dict[str, Saved], dict[str, Mapping[str, JSON]]]:
    """Return what a run's baselines learned: states by the paths of their policies, settings."""
    states: dict[str, Saved] = {}
    overlays: dict[str, Mapping[str, JSON]] = {}
    for name, results in reader.load_evaluations().items():
        baseline = config.evaluation.baselines.get(name)
        if baseline is None:
            continue
        overlays[name] = results.get("overlay", {})
        if results.get("state") is not None:
            states[baseline.policy] = saved_from_json(results["state"])
    return states, overlays


def _check_unchanged(path: Path, reader: RunReader, block: Sequence[str]) -> None:
    """Refuse a run's config that decides something else than it did when the run began."""
    if path.read_text("utf-8") == reader.config_text:
        return
    begun_with = (reader.manifest or {}).get("digest")
    if begun_with is not None and not load(path, block=block).is_unchanged(begun_with):
        raise UsageError(
            f"{path}: was changed since the run began{changed_settings(reader)}; put it back as it "
            "was, and use -o to try what was learned under other settings"
        )


def run_directory(target: str | PathLike[str]) -> Path | None:
    """Return the run's folder if `target` is one or names one; None if it is a file.

    Raises:
        UsageError: it is neither.
    """
    return None if Path(target).is_file() else find_run(target)


def newest_checkpoint(target: str | PathLike[str]) -> tuple[Path, Checkpoint | None]:
    """Return a run's folder, and its newest valid checkpoint; None if it has none yet."""
    directory = run_directory(target)
    if directory is None:
        raise UsageError(f"{target}: is a file; name a run")
    with RunReader(directory) as reader:
        return directory, reader.usable().checkpoint


def newest_states(target: str | PathLike[str]) -> tuple[Path, Mapping[str, Saved]]:
    """Return a run's folder, and the states in its newest checkpoint; none if it has none yet."""
    directory, checkpoint = newest_checkpoint(target)
    return directory, checkpoint.components if checkpoint is not None else {}
