"""A run from its config to its report: stages, iterations, commits, baselines, evaluation."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import orchestrion
from orchestrion._config import Config
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import check_judged, check_turns, iterations_of, merged_metrics
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened, load_states, open_components, save_states
from orchestrion._engine.replaying import ReplayPath
from orchestrion._errors import BudgetError, UsageError
from orchestrion._guards import calling, place_of
from orchestrion._interfaces import Metrics, Stateful
from orchestrion._keys import Key
from orchestrion._observers import Observers
from orchestrion._readiness import check_ready
from orchestrion._records import JSON, Episode, Saved, Turn
from orchestrion._report import Report, kinds, of_evaluations, outcomes, own_name
from orchestrion._session import EngineSession, fewer_collections, summarize
from orchestrion._store import Checkpoint, RunReader, RunStore
from orchestrion._store.reader import RunStatus
from orchestrion._store.serial import dumps
from orchestrion._store.shared import SharedAnswers
from orchestrion._trained import (
    Trained,
    newest_checkpoint,
    newest_states,
    open_run,
    run_directory,
    saved_to_json,
)

__all__ = [
    "Progress",
    "Run",
    "Trained",
    "manifest",
    "newest_checkpoint",
    "newest_states",
    "open_run",
    "run_directory",
    "train",
]

HOPELESS = 10
"""An iteration of so many turns or more, all of which failed, ends the run."""


class Progress:
    """Who shows a person how a run goes on; as it is, nobody: subclass it for what you want."""

    def noted(self, path: str, name: str, text: str) -> None:
        """A component noted something when it was opened."""
        return

    def stage(self, name: str, iterations: int, done: int) -> None:
        """A stage begins, or goes on after `done` iterations."""
        return

    def iteration(self, iteration: int, metrics: Metrics, seconds: float) -> None:
        """An iteration was committed."""
        return

    def evaluating(self, name: str, known: bool) -> None:
        """A contender is trained (if a baseline needs that) and evaluated, or known already."""
        return


class Run:
    """One run over its store; `train` starts it or goes on with it.

    Args:
        config: structured and checked.
        store: open for writing; holds what was done so far.
        progress: shows it; None for nobody.
        observers: lifecycle hooks of the plugins in use.
        replay: answer calls from this journal and cache alone.
    """

    def __init__(
        self,
        config: Config,
        store: RunStore,
        progress: Progress | None = None,
        observers: Observers | None = None,
        replay: RunReader | None = None,
    ) -> None:
        self.config, self.store = config, store
        self.progress = progress or Progress()
        self.observers = observers or Observers(None, ())
        self.key = Key(config.seed)
        self.overlay: dict[str, JSON] = {}
        self.replays = replay is not None
        if replay is None:
            budget = Budget(config.budget, store.spend(), store.seconds)
            shared = config.run.cache
            self._shared = None if shared is None else SharedAnswers(shared)
            self.calls = CallPath(budget, store.journal, store.cache, shared=self._shared)
        else:
            self._shared = None
            self.calls = ReplayPath(replay.journal)
        self.failures: Counter[str] = Counter()
        """How often which turn or verification failed, as "who: message"."""
        self.begun = False
        """Whether it got so far that its status and its observers are concerned."""
        self._stack = AsyncExitStack()
        self._opened: Opened
        self._iterated = False
        """Whether what is open was trained in this process."""
        self._trained_on = 0
        self._part = ""
        """What it is at, as reports call it."""
        self._mark = time.monotonic()

    async def train(self) -> Report:
        """Everything that is still to be done, up to the report.

        Raises:
            BudgetError: the budget is used up; the unfinished iteration is dropped.
            asyncio.CancelledError: interrupted; the unfinished iteration is dropped.
            UsageError: the run was begun with another config; nothing was changed.
            OrchestrionError: the run failed.
        """
        # Not on the stack: that is closed in between, when what was learned is loaded anew.
        with self._shared or nullcontext():
            return await self._train()

    async def _train(self) -> Report:
        async with self._stack:
            with fewer_collections():  # loading a library such as torch makes 150,000 objects
                await self._restore()
            self.begun = True
            if self.store.status != "running":
                self.store.set_status("running")
            self.observers.run_started(self.store.directory, self.config.resolved())
            try:
                async with self.calls.budget.deadline():
                    for stage in range(self._stage, len(self.config.stages)):
                        await self._train_stage(stage)
                    if self._iterated:
                        await self._reload()
                    return await self.report()
            finally:
                # What was answered is paid: a resume must find it, however this part ended.
                await self.calls.drain()

    async def _restore(self) -> None:
        """Open the components, with the state of the newest valid checkpoint."""
        checkpoint = self.store.usable().checkpoint
        config = self.config
        self._check_digest(checkpoint)
        self._stage, self._done = 0, 0
        if checkpoint is not None:
            self.overlay = dict(checkpoint.overlay)
            config = config.with_overlay(self.overlay) if self.overlay else config
            self._stage, self._done = checkpoint.stage, checkpoint.iteration + 1
        self._opened = await self._open(config, self._stack)
        if checkpoint is not None:
            load_states(self._opened, checkpoint.components)
        check_ready(self._opened)
        # Only now, as it drops what came after that checkpoint: a refusal changes nothing.
        self.store.restore()
        self._note_versions()
        self._trained_on = sum(one.episodes for one in self.store.iterations())

    def _note_versions(self) -> None:
        if self.replays or self.store.status == "completed":
            return
        changed = self.store.note_versions(manifest(self.config)["versions"])
        if changed:
            text = f"other versions than before: {', '.join(changed)}; noted in its manifest"
            self.progress.noted("run", "goes on with", text)

    async def _reload(self) -> None:
        """Open everything anew with what the last checkpoint holds.

        What is reported is then what a later `eval` finds, also where a component does not save
        or load all that it learned.
        """
        checkpoint = self.store.usable().checkpoint
        assert checkpoint is not None  # the last iteration always writes one
        # First: weights need not fit into memory twice.
        await self._stack.aclose()
        config = self.config.with_overlay(self.overlay) if self.overlay else self.config
        self._opened = await self._open(config, self._stack, again=True)
        load_states(self._opened, checkpoint.components)
        for path, saved in save_states(self._opened).items():
            before = checkpoint.components.get(path)
            if before is not None and not _equal(saved, before):
                self._note(
                    path,
                    "load",
                    f"{place_of(config, path)}: load() does not bring back what save() gave; the "
                    "report is on what is left. `orchestrion check` says more",
                )

    def _note(self, path: str, name: str, text: str) -> None:
        self.store.note(path, name, text)
        self.progress.noted(path, name, text)

    def _check_digest(self, checkpoint: Checkpoint | None) -> None:
        begun_with = (self.store.manifest or {}).get("digest")
        if checkpoint is not None:
            begun_with = checkpoint.config
        if begun_with not in (None, self.config.digest):
            raise UsageError(
                f"{self.store.directory}: was begun with another config; start a new run, or put "
                "the config back as it was"
            )

    async def _train_stage(self, stage: int) -> None:
        path = self.config.stages[stage]
        total = self._iterations(path)
        self._part = path
        self.progress.stage(path, total, self._done)
        for i in range(self._done, total):
            await self._iterate(stage, i, path, last=i == total - 1)
        self._done = 0

    def _iterations(self, path: str) -> int:
        own = iterations_of(self._opened.runtimes[path], place_of(self.config, path))
        most = self.config.run.iterations
        return own if most is None else min(own, most)

    async def _iterate(self, stage: int, i: int, path: str, last: bool) -> None:
        place = place_of(self.config, path)
        self._mark = time.monotonic()
        session = self._session(f"{stage}/{i}", self.key.child("train", stage, i))
        try:
            with calling(place, f"iterate({i})"), fewer_collections():
                reported = await self._opened.runtimes[path].iterate(i, session)
        finally:
            self._close(session.engine)
        where = f"iteration {i}"
        check_turns(session.episodes, where, HOPELESS)
        check_judged(session.episodes, where)
        metrics = merged_metrics(summarize(session.episodes), reported, place)
        if session.adopted:
            await self._adopt(session.adopted)
        seconds = time.monotonic() - self._mark
        due = last or (i + 1) % self.config.run.checkpoint_every == 0
        self._iterated = True
        written = self.store.commit_iteration(
            stage,
            i,
            session.episodes,
            metrics,
            self._checkpoint(stage, i) if due else None,
            seconds=seconds,
            stated=self.calls.budget.take_stated(),
        )
        self._mark = time.monotonic()
        self._trained_on += len(session.episodes)
        self.observers.iteration_finished(stage, i, metrics)
        if written is not None:
            self.observers.checkpoint_written(written, i)
        self.progress.iteration(i, metrics, seconds)

    def _session(self, name: str, key: Key) -> EngineSession:
        return EngineSession(
            self._engine(self._opened),
            name,
            key,
            self.key.child("evaluate"),
            self.config.run.concurrency,
            build=self._build,
        )

    def _engine(self, opened: Opened, **team: Any) -> Engine:
        engine = opened.engine(self.calls, observers=_Listening(self.observers), **team)
        engine.stage = self._part
        return engine

    def _close(self, engine: Engine) -> None:
        engine.close()
        self.failures.update(engine.failed_turns)

    @asynccontextmanager
    async def _build(self, overlay: Mapping[str, JSON]) -> AsyncIterator[Engine]:
        config = self.config.with_overlay({**self.overlay, **overlay})
        async with AsyncExitStack() as stack:
            opened = await self._open(config, stack, self._opened)
            engine = self._engine(opened)
            try:
                yield engine
            finally:
                self._close(engine)

    async def _adopt(self, overlay: Mapping[str, JSON]) -> None:
        self.overlay.update(overlay)
        config = self.config.with_overlay(self.overlay)
        # What is replaced stays open until the run ends: something may still hold it.
        self._opened = await self._open(config, self._stack, self._opened)

    async def _open(
        self,
        config: Config,
        stack: AsyncExitStack,
        previous: Opened | None = None,
        again: bool = False,
    ) -> Opened:
        return await open_components(
            config,
            stack,
            self.key,
            self.store.directory,
            previous,
            self._note if previous is None and not again else None,
            live=not self.replays,
        )

    def _checkpoint(self, stage: int, i: int) -> Checkpoint:
        return Checkpoint(
            stage,
            i,
            save_states(self._opened),
            self.overlay,
            self.config.seed,
            self.config.digest,
            tuple(member.name for member in self._opened.roster()),
            manifest(self.config)["versions"],
            int(os.environ.get("OMP_NUM_THREADS") or 1),
        )

    # ------------------------------------------------------------------ evaluation

    async def report(self) -> Report:
        """Evaluate what was learned and every baseline; what is known is not repeated."""
        known = self.store.load_evaluations()
        evaluation = self.config.evaluation
        names = (own_name(self.config), *evaluation.baselines)
        # The untrained team comes last: it takes the place of the trained one.
        for name in sorted(names, key=self._is_untrained):
            self.progress.evaluating(name, name in known)
            if name not in known:
                self._mark = time.monotonic()
                known[name] = await self._contend(name)
        return of_evaluations(
            {name: known[name] for name in names},
            evaluation.split,
            evaluation.seeds,
            self.config.seed,
        )

    def _is_untrained(self, name: str) -> bool:
        baseline = self.config.evaluation.baselines.get(name)
        return baseline is not None and baseline.untrained

    async def _contend(self, name: str) -> dict[str, Any]:
        evaluation = self.config.evaluation
        trained_on = self._trained_on
        self._part = f"evaluation of {name}"
        baseline = evaluation.baselines.get(name)
        if self._is_untrained(name):
            trained_on = 0
            await self._stack.aclose()  # weights need not fit into memory twice
            self._opened = await self._open(self.config, self._stack, again=True)
            engine = self._engine(self._opened)
        elif baseline is None:
            engine = self._engine(self._opened)
        else:
            opened = await self._as_configured() if baseline.as_configured else self._opened
            engine = self._engine(opened, policy=baseline.policy, agents=baseline.agents)
        try:
            if baseline is not None and not baseline.untrained:
                engine.stage = f"training of {name}"
                trained_on = await self._train_baseline(name, engine)
                engine.stage = self._part
            session = self._evaluation(engine, name)
            episodes = await session.evaluate_as(
                f"evaluate/{name}", evaluation.split, None, evaluation.episodes, evaluation.seeds
            )
        finally:
            self._close(engine)
        where = f"the evaluation of {name}"
        check_judged(episodes, where)
        if baseline is None:
            check_turns(episodes, where, 1)
        results = {
            "outcomes": outcomes(episodes),
            "kinds": kinds(episodes),
            "trained_on": trained_on,
            "state": self._state(name),
        }
        if baseline is None and self.config.stages:
            results["train_problems"] = len(session.problems("train"))
        self.store.save_evaluation(name, results, episodes, **self.unbooked())
        self._mark = time.monotonic()
        return results

    async def _as_configured(self) -> Opened:
        """The components with all settings as the config has them, learned states as they are."""
        if not self.overlay:
            return self._opened
        return await self._open(self.config, self._stack, self._opened)

    def _state(self, name: str) -> JSON:
        """A baseline's learned state, so that it can be evaluated again elsewhere."""
        baseline = self.config.evaluation.baselines.get(name)
        if baseline is None or baseline.untrained:
            return None
        runtime = self._opened.runtimes[baseline.policy]
        return saved_to_json(runtime.save()) if isinstance(runtime, Stateful) else None

    def _evaluation(self, engine: Engine, name: str) -> EngineSession:
        return EngineSession(
            engine,
            f"evaluate/{name}",
            self.key.child("report", name),
            self.key.child("evaluate"),
            self.config.run.concurrency,
            test=True,
        )

    async def _train_baseline(self, name: str, engine: Engine) -> int:
        """Train a baseline from nothing; returns the number of training episodes."""
        path = self.config.evaluation.baselines[name].trainer
        if path is None:
            return 0
        trained_on = 0
        for i in range(self._iterations(path)):
            session = EngineSession(
                engine,
                f"baseline/{name}/{i}",
                self.key.child("baseline", name, i),
                self.key.child("evaluate"),
                self.config.run.concurrency,
                collect=False,
            )
            with calling(place_of(self.config, path), f"iterate({i})"):
                await self._opened.runtimes[path].iterate(i, session)
            trained_on += session.trained_on
        return trained_on

    def unbooked(self) -> dict[str, Any]:
        """What the run took since the last commit, for the store to add."""
        stated = self.calls.budget.take_stated()
        return {"seconds": time.monotonic() - self._mark, "stated": stated}


async def train(config: Config, directory: str | Path, progress: Progress | None = None) -> Report:
    """Train a config in a folder of its own; where it was begun there, go on.

    In a script `asyncio.run(train(config, folder))`, in a notebook `await train(config, folder)`.

    Args:
        config: structured and checked.
        directory: the run's folder; made if it does not exist.
        progress: is told how it goes on.

    Raises:
        BudgetError: the budget is used up; call it again with more.
        UsageError: the folder holds a run of another config, or something else.
        OrchestrionError: the run failed.
    """
    directory, settings = Path(directory), config.run
    if (directory / "run.db").exists():
        store = RunStore.open(directory)
    else:
        store = RunStore.create(
            directory,
            config.to_yaml(),
            manifest(config),
            retention=settings.retention,
            keep=settings.keep,
        )
    status: RunStatus = "failed"
    with store:
        run = Run(config, store, progress, config.observers())
        try:
            report = await run.train()
            status = "completed"
            return report
        except BudgetError:
            status = "budget"
            raise
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        finally:
            if run.begun:
                store.set_status(status, **run.unbooked())
                run.observers.run_finished(directory, status)


def _equal(one: Saved, other: Saved) -> bool:
    """Whether two saved states are the same, once they are written."""
    data = [dumps(saved.data, sort=True) for saved in (one, other)]
    return data[0] == data[1] and dict(one.arrays) == dict(other.arrays)


class _Listening:
    """Lifecycle hooks as the engine calls them; None where no plugin listens."""

    def __init__(self, observers: Observers) -> None:
        watches = observers.watches
        self.turn_finished: Callable[[str, Turn], None] | None = (
            observers.turn_finished if watches("orchestrion_turn_finished") else None
        )
        self.episode_finished: Callable[[Episode], None] | None = (
            observers.episode_finished if watches("orchestrion_episode_finished") else None
        )


def manifest(config: Config) -> dict[str, Any]:
    """What a run's result depends on besides its config."""
    return {
        "seed": config.seed,
        "digest": config.digest,
        "versions": {
            "python": platform.python_version(),
            "orchestrion": orchestrion.__version__,
            **{plugin.distribution: plugin.version for plugin in config.plugins_used},
        },
        "machine": platform.machine(),
    }
