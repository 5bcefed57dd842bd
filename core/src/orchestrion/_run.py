"""Carry a run out from its config to its report: stages, iterations, commits, evaluation."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any

from msgspec.structs import asdict

from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from orchestrion._engine.checks import check_judged, check_turns, iterations_of, merged_metrics
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened, save_states
from orchestrion._engine.pool import Pool, open_pool
from orchestrion._engine.replaying import ReplayPath
from orchestrion._errors import BudgetError, UsageError
from orchestrion._events import INFO, WARNING, event, within
from orchestrion._forecast import training_episodes
from orchestrion._guards import calling, place_of
from orchestrion._interfaces import Stateful
from orchestrion._keys import Key
from orchestrion._learned import OWN_TEAM, LearnedComponents, evaluate_contender, saved_to_json
from orchestrion._manifest import (
    changed_code,
    changed_data,
    code_of,
    data_of,
    has_other_problems,
    manifest,
)
from orchestrion._observers import Observers
from orchestrion._progress import Progress
from orchestrion._readiness import NO_REWARD, check_ready
from orchestrion._records import JSON, Episode
from orchestrion._report import (
    LEARNED,
    Report,
    kinds,
    of_evaluations,
    outcomes,
    own_name,
    problem_digests,
)
from orchestrion._session import EngineSession, fewer_collections, summarize
from orchestrion._store import Checkpoint, RunReader, RunStore
from orchestrion._store.conversations import turns_with_names
from orchestrion._store.reader import RunStatus
from orchestrion._store.shared import SharedAnswers
from orchestrion._stored import changed_settings
from orchestrion.config import Baseline, Config

HOPELESS = 10
"""If all turns of an iteration fail, and there are at least this many, the run fails."""

FAILING = 20
"""Of an agent that failed in so many turns without a break, progress tells."""


class Conduct:
    """Carries one run out over its store; `train` starts or continues it."""

    def __init__(
        self,
        config: Config,
        store: RunStore,
        progress: Progress | None = None,
        observers: Observers | None = None,
        replay: RunReader | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.config, self.store = config, store
        self.progress = progress or Progress()
        self.observers = observers or Observers(None, ())
        self.key = Key(config.seed)
        self.replays = replay is not None
        self._shared: SharedAnswers | None = None
        if replay is None:
            if budget is None:
                budget = Budget(config.budget, store.spend(), store.seconds)
            if config.run.cache is not None:
                self._shared = SharedAnswers(config.run.cache)
            self.calls = CallPath(
                budget, store.journal, store.cache, shared=self._shared, booked=store.booked
            )
        else:
            self.calls = ReplayPath(replay.journal)
        begun_with = ((replay or store).manifest or {}).get("digest")
        # A checkpoint has the config's digest as the version computed it that began the run.
        self._digest: str = config.digest
        if begun_with is not None and config.is_unchanged(begun_with):
            self._digest = begun_with
        self.failures: dict[str, int] = {}
        """How often which turn or verification failed, as "who: message"."""
        self._in_a_row: Counter[str] = Counter()
        """By agent: how many of its turns in training failed since the last that did not."""
        self.begun = False
        """Whether the components were opened: from then on the run has a status of its own."""
        self._refused = False
        """Whether the first trainer refused config or data before its first episode."""
        self.changed_data = ""
        """Which problems are others than when the run began."""
        self.changed_code = ""
        """Which modules of the user have other code than when the run began."""
        self._pool: Pool | None = None
        self._stack = AsyncExitStack()
        self.components = LearnedComponents(
            config, self._stack, store.directory, not self.replays, self._note
        )
        self._first = (0, 0)
        """The stage and the iteration to begin with."""
        self._iterated = False
        """Whether an iteration was run in this process."""
        self._most: Mapping[str, int | None] = {}
        """The most episodes that the run and its baselines are trained on, where that is known."""
        self._trainer: str | None = None
        """Path of the trainer at work."""
        self._part = ""
        """What the run is doing, as cost reports name it."""
        self._booked_at = time.monotonic()
        """When the run's time was last booked in the store."""

    async def train(self) -> Report:
        """Do everything that is still to be done, and return the report.

        Raises:
            BudgetError: the budget is used up; the unfinished iteration is dropped.
            asyncio.CancelledError: interrupted; the unfinished iteration is dropped.
            UsageError: the run was begun with another config; nothing was changed.
            OrchestrionError: the run failed.
        """
        pooled = None if self.replays else self.config
        try:
            # Not on the stack, which is closed when the components are opened again.
            with self._shared or nullcontext():
                async with (
                    # A replay runs here: what it shows is answers, not where they were used.
                    open_pool(pooled, self.calls, self.store.directory, self._note) as self._pool,
                    self._stack,
                ):
                    return await self._train()
        except Exception:
            # Config or data are wrong: there is nothing to go on with, unless something was paid.
            if (self._refused or not self.begun) and not self.calls.budget.spent.calls:
                self.store.discard()
            raise

    async def _train(self) -> Report:
        with fewer_collections():  # loading a library such as torch makes 150,000 objects
            await self._restore()
        self.begun = True
        if self.store.status != "running":
            self.store.set_status("running")
        if self.config.stages and self.config.reward is None:
            self.progress.noted("reward", "missing:", NO_REWARD)
        self._note_dear_baselines()
        self.observers.run_started(self.store.directory, self.config.resolved(), self._note_event)
        try:
            async with self.calls.budget.deadline():
                first_stage, done = self._first
                for stage in range(first_stage, len(self.config.stages)):
                    await self._train_stage(stage, done if stage == first_stage else 0)
                if self._iterated:
                    await self._reload()
                    self._note_data()
                return await self.report()
        finally:
            # Answers that arrived are paid for: a resumed run must find them in the journal.
            await self.calls.drain()
            spent, retried = asdict(self.calls.budget.spent), self.calls.retried
            event(INFO, "spent", **spent, retried=retried)

    async def _restore(self) -> None:
        """Open the components, with what the newest valid checkpoint holds."""
        checkpoint = self.store.usable().checkpoint
        self._check_digest(checkpoint)
        if checkpoint is not None:
            self._first = checkpoint.stage, checkpoint.iteration + 1
        await self.components.restore(checkpoint)
        sizes = check_ready(self.components.opened)
        if any(baseline.trainer for baseline in self.config.evaluation.baselines.values()):
            self._most = training_episodes(self.components.opened, sizes)
        # After everything that may refuse the run: this drops what came after the checkpoint.
        self.store.restore()
        self._note_versions()
        self._note_data()
        self._note_code()

    def _note_dear_baselines(self) -> None:
        """Show which baselines may take more episodes than the run's own training."""
        own, known = self._most.get(LEARNED), self.store.load_evaluations()
        dear = [
            f"{name} {most:,}"
            for name, most in self._most.items()
            if name not in known and own is not None and most is not None and most > own
        ]
        if dear:
            text = f"the run trains on at most {own:,} episodes, and on more: {', '.join(dear)}"
            self.progress.noted("evaluation.baselines", "note:", text)

    def _note_versions(self) -> None:
        if self.replays or self.store.status == "completed":
            return
        if changed := self.store.note_versions(manifest(self.config)["versions"]):
            text = f"other versions than before: {', '.join(changed)}; noted in its manifest"
            self.progress.noted("run", "goes on with", text)

    def _note_data(self) -> None:
        """Put in the manifest what problems the run has, or note that they are others now."""
        task = self.components.opened.runtimes["task"]
        data = data_of(task, place_of(self.config, "task"))
        before = (self.store.manifest or {}).get("data")
        noted, self.changed_data = self.changed_data, changed_data(before or data, data)
        if self.replays:
            return
        completed = self.store.status == "completed"
        if before is None and not completed:
            self.store.note_beginning(data=data)
        elif self.changed_data not in ("", noted):
            if not completed:
                note = {"text": self.changed_data, "data": data}
                self.store.record_event("data changed", note)
            what, text = "the data was changed:", self.changed_data
            if has_other_problems(before or {}, data):
                what = "other problems than before:"
                text += "; it may be judged on problems that it was trained on"
            self.progress.noted("task", what, text)

    def _note_code(self) -> None:
        """Put in the manifest what code of the user the run has, or note that it is other now."""
        code = code_of(self.config)
        before = (self.store.manifest or {}).get("code")
        self.changed_code = changed_code(before or code, code)
        if self.replays:
            return
        completed = self.store.status == "completed"
        if before is None and not completed:
            self.store.note_beginning(code=code)
        elif self.changed_code:
            if not completed:
                note = {"text": self.changed_code, "code": code}
                self.store.record_event("code changed", note)
            text = f"{self.changed_code}; what was measured before may not hold now"
            self.progress.noted("run", "other code than before:", text)

    async def _reload(self) -> None:
        """Open everything again with the last checkpoint, as a later `eval` does."""
        checkpoint = self.store.usable().checkpoint
        assert checkpoint is not None  # the last iteration always writes one
        for path in await self.components.reload(checkpoint):
            text = (
                f"{place_of(self.components.config, path)}: after load(), save() gives something "
                "else than what was loaded; the report is on the loaded state. Run `orchestrion "
                "check` on the plugin for details"
            )
            self._note(path, "load", text)

    def _note(self, path: str, name: str, text: str) -> None:
        event(INFO, "note", component=path, about=name, text=text)
        self.store.note(path, name, text)
        self.progress.noted(path, name, text)

    def _note_event(self, text: str) -> None:
        """Show what an observer has to say, and keep it among the events."""
        event(WARNING, "note", about="observer", text=text)
        self.store.record_event("observer", text)
        self.progress.noted("run", "warning:", text)

    def _check_digest(self, checkpoint: Checkpoint | None) -> None:
        begun_with = (self.store.manifest or {}).get("digest")
        if checkpoint is not None:
            begun_with = checkpoint.config
        if begun_with is not None and not self.config.is_unchanged(begun_with):
            raise UsageError(
                f"{self.store.directory}: was begun with another config"
                f"{changed_settings(self.store)}; start a new run, or put the config back as it was"
            )

    async def _train_stage(self, stage: int, done: int) -> None:
        path = self._part = self._trainer = self.config.stages[stage]
        total = self._iterations(path)
        self.store.plan(stage, total)
        self.progress.stage(path, total, done)
        event(INFO, "stage", stage=stage, trainer=path, iterations=total, done=done)
        for i in range(done, total):
            with within(stage=stage, iteration=i):
                await self._iterate(stage, i, path, last=i == total - 1)

    def _iterations(self, path: str) -> int:
        """Return how many iterations a trainer gets: as many as it wants, up to the config's."""
        wanted = iterations_of(self.components.opened.runtimes[path], place_of(self.config, path))
        limit = self.config.run.iterations
        return wanted if limit is None else min(wanted, limit)

    async def _iterate(self, stage: int, i: int, path: str, last: bool) -> None:
        """Run and commit one iteration of a stage."""
        place = place_of(self.config, path)
        self._booked_at = time.monotonic()
        engine, key = self._engine(self.components.opened), self.key.child("train", stage, i)
        session = self._session(engine, f"{stage}/{i}", key, build=self._build)
        try:
            with calling(place, f"iterate({i})"), fewer_collections():
                reported = await self.components.opened.runtimes[path].iterate(i, session)
        except UsageError:
            self._refused = not session.begun and self.store.last_iteration() is None
            raise
        await self.calls.settle()
        where = f"iteration {i + 1}"
        check_turns(session.episodes, where, HOPELESS)
        check_judged(session.episodes, where)
        self._note_failing(session.episodes)
        metrics = merged_metrics(summarize(session.episodes), reported, place)
        if session.adopted:
            await self.components.adopt(session.adopted)
        seconds = time.monotonic() - self._booked_at
        checkpoint_due = last or (i + 1) % self.config.run.checkpoint_every == 0
        self._iterated = True
        checkpoint = self._checkpoint(stage, i) if checkpoint_due else None
        stated = self.calls.budget.take_stated()
        written = self.store.commit_iteration(
            stage, i, session.episodes, metrics, checkpoint, seconds=seconds, stated=stated
        )
        self._booked_at = time.monotonic()
        self.observers.iteration_finished(stage, i, metrics)
        if written is not None:
            self.observers.checkpoint_written(written, i)
        self.progress.iteration(i, metrics, seconds)

    def _note_failing(self, episodes: Sequence[Episode]) -> None:
        """Show which agents fail in turn after turn: a run goes on with the others."""
        turns = [turn for one in episodes for _, turn in turns_with_names(one.trajectory)]
        for turn in turns:
            failed = turn.status == "failed"
            self._in_a_row[turn.agent] = self._in_a_row[turn.agent] + 1 if failed else 0
            if self._in_a_row[turn.agent] == FAILING:
                text = f"its last {FAILING} turns failed, the latest with: {turn.error:.200}"
                event(WARNING, "note", component=f"agents.{turn.agent}", about="turns", text=text)
                self.progress.noted(f"agents.{turn.agent}", "warning:", text)

    def _session(self, engine: Engine, name: str, key: Key, **settings: Any) -> EngineSession:
        evaluation_key, concurrency = self.key.child("evaluate"), self.config.run.concurrency
        return EngineSession(engine, name, key, evaluation_key, concurrency, **settings)

    def _engine(self, opened: Opened, team: Baseline = OWN_TEAM) -> Engine:
        """Return an engine for what the run does now."""
        observers = self.observers.of_episodes()
        engine = opened.engine(self.calls, team.policy, team.agents, observers)
        engine.stage, engine.failed_turns = self._part, self.failures
        if self._pool is not None:
            self._pool.take(engine, opened, team, self._trainer)
        return engine

    @asynccontextmanager
    async def _build(self, overlay: Mapping[str, JSON]) -> AsyncIterator[Engine]:
        """Open an engine under other values of learnable settings, for `Session.build`."""
        async with self.components.with_overlay(overlay) as opened:
            yield self._engine(opened)

    def _checkpoint(self, stage: int, i: int) -> Checkpoint:
        opened = self.components.opened
        return Checkpoint(
            stage,
            i,
            save_states(opened),
            self.components.overlay,
            self.config.seed,
            self._digest,
            tuple(member.name for member in opened.roster()),
            manifest(self.config)["versions"],
            int(os.environ.get("OMP_NUM_THREADS") or 1),
        )

    # ------------------------------------------------------------------ evaluation

    async def report(self) -> Report:
        """Evaluate the config's own team and every baseline that is not evaluated yet."""
        stored = self.store.load_evaluations()
        evaluation = self.config.evaluation
        teams = {own_name(self.config): OWN_TEAM, **evaluation.baselines}
        # The untrained team comes last: the trained one is closed before it is opened.
        for name, team in sorted(teams.items(), key=lambda item: item[1].untrained):
            self.progress.evaluating(name, name in stored)
            event(INFO, "evaluation", evaluation=name, known=name in stored)
            if name not in stored:
                self._booked_at = time.monotonic()
                with within(evaluation=name):
                    stored[name] = await self._evaluate(name, team)
        results = {name: stored[name] for name in teams}
        return of_evaluations(results, evaluation.split, evaluation.seeds, self.config.seed)

    async def _evaluate(self, name: str, team: Baseline) -> dict[str, Any]:
        """Train a baseline if it has a trainer, evaluate a contender, and store the results."""
        evaluation = self.config.evaluation
        self._part, self._trainer = f"evaluation of {name}", team.trainer
        trained_on = 0
        if team is OWN_TEAM:
            trained_on = sum(iteration.episodes for iteration in self.store.iterations())
        if team.untrained:
            await self._stack.aclose()  # model weights may not fit into memory twice
        async with AsyncExitStack() as stack:
            opened = await self.components.of_contender(team, stack)
            overlay: dict[str, JSON] = {}
            if team.trainer is not None:
                opened, overlay, trained_on = await self._train_baseline(name, team, opened, stack)
            settings = (evaluation.split, evaluation.seeds, evaluation.episodes)
            engine = self._engine(opened, team)
            session = await evaluate_contender(engine, name, self.config, *settings)
            await self.calls.settle()
            results = {
                "outcomes": outcomes(session.evaluations),
                "kinds": kinds(session.evaluations),
                "trained_on": trained_on,
                "state": _baseline_state(team, opened),
                "overlay": overlay,
            }
            if team is OWN_TEAM and self.config.stages:
                results["train_problems"] = len(session.problems("train"))
            if team is OWN_TEAM:
                results["digests"] = problem_digests(session.judged)
        self.store.save_evaluation(name, results, session.evaluations, **self.unbooked())
        self._booked_at = time.monotonic()
        return results

    async def _train_baseline(
        self, name: str, team: Baseline, opened: Opened, stack: AsyncExitStack
    ) -> tuple[Opened, dict[str, JSON], int]:
        """Train a baseline; return its components, the learned settings, and how many episodes."""
        path, trained_on, shown, most = team.trainer or "", 0, 0, self._most.get(name)
        overlay: dict[str, JSON] = {}

        def show() -> None:
            nonlocal shown
            shown += 1
            self.progress.training(name, shown, most)

        self.progress.training(name, 0, most)
        for i in range(self._iterations(path)):
            engine, key = self._engine(opened, team), self.key.child("baseline", name, i)
            engine.stage = f"training of {name}"
            episodes = f"baseline/{name}/{i}"
            session = self._session(engine, episodes, key, collect=False, on_training=show)
            with calling(place_of(self.config, path), f"iterate({i})"):
                await opened.runtimes[path].iterate(i, session)
            trained_on += session.trained_on
            if session.adopted:
                overlay |= session.adopted
                opened = await self.components.of_contender(team, stack, overlay, opened)
        return opened, overlay, trained_on

    def unbooked(self) -> dict[str, Any]:
        """Return what the run took since the last commit, for the store to add."""
        stated = self.calls.budget.take_stated()
        return {"seconds": time.monotonic() - self._booked_at, "stated": stated}


def _baseline_state(team: Baseline, opened: Opened) -> JSON:
    """Return a baseline's learned state, so that `eval` can evaluate it elsewhere."""
    policy = opened.runtimes[team.policy]
    if team is OWN_TEAM or team.untrained:
        return None
    return saved_to_json(policy.save()) if isinstance(policy, Stateful) else None


def status_after(error: BaseException) -> RunStatus:
    """Return the status of a run that ended with an error."""
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return "cancelled"
    return "budget" if isinstance(error, BudgetError) else "failed"
