"""A run folder: what a run has done, stored so that nothing is ever half there.

    config.yaml     the resolved config, without secrets
    run.db          episodes, calls, metrics, evaluations, events (see `database`)
    checkpoints/    learned state (see `checkpoint`)
    exports/        files for people and other programs (see `exports`)
    evaluations/    what `orchestrion eval` found later (see `evaluations`)
    run.lock        who is writing

An iteration is committed as a whole: its checkpoint is on disk first, then one transaction adds
episodes, metrics and the checkpoint's name. Files without a row in `run.db` are ignored.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self, get_args

from orchestrion._engine.recording import Booked
from orchestrion._errors import StoreError, UsageError
from orchestrion._interfaces import Metrics
from orchestrion._manifest import changed_versions
from orchestrion._records import JSON, NO_USAGE, TRAINING, Episode, Usage
from orchestrion._secrets import hidden
from orchestrion._store.checkpoint import Checkpoint, prune_checkpoints, write_checkpoint
from orchestrion._store.conversations import drop_texts, turns_with_names
from orchestrion._store.creation import create_folder
from orchestrion._store.database import NAME, Database
from orchestrion._store.episodes import Retention, insert_episodes, strip_turns
from orchestrion._store.files import remove_stale
from orchestrion._store.journal import AnswerStore, CallJournal, real, usage_columns
from orchestrion._store.lock import RunLock
from orchestrion._store.names import next_directory, run_at
from orchestrion._store.reader import BOOKED, Restored, RunReader, RunStatus
from orchestrion._store.serial import dumps, encode, loads


class RunStore(RunReader):
    """A run's store, open for writing by this process alone. Use `create` or `open`.

    `journal`, `cache` and `booked` are what the call path needs. Methods may be called in any
    thread.
    """

    _new = False
    """Whether this process made the folder."""
    discarded = False
    """Whether the folder is removed when the run is closed."""

    def __init__(self, directory: Path) -> None:
        directory = run_at(directory)
        self._lock = RunLock(directory)
        try:
            self._writer = Database(directory / NAME, writable=True)
            super().__init__(directory)
            # Verify the whole database before writing: nothing may be added to a damaged run.
            self.verify()
        except BaseException:
            self.close()
            raise
        self._next = self._last_seq() + 1  # the number of the iteration in progress
        self._seconds, self._retention, self._keep = self.seconds, self.retention, self.keep
        self._stated = self._stated_unrecorded()
        earlier = self._reader.rows("events", "WHERE kind = ? ORDER BY number", (BOOKED,))
        self.booked = Booked(name for row in earlier for name in loads(row["data"]))
        self.journal = CallJournal(self._reader, self._writer, lambda: self._next)
        self.journal.keeps_requests = self._retention == "all"
        self.cache = AnswerStore(self._reader, self._writer)
        # What a writer that was killed left behind:
        for folder in (self.directory, self.checkpoints, self.exports):
            remove_stale(folder)
        self.journal.settle_lost()

    @classmethod
    def create(
        cls,
        directory: Path,
        config_text: str,
        manifest: JSON = None,
        *,
        retention: Retention = "all",
        keep: int = 3,
        numbered: str | None = None,
    ) -> Self:
        """Create a run and open it for writing. The folder appears complete, or not at all.

        Args:
            directory: where; must not exist, or be empty.
            config_text: the resolved config as YAML, without secrets.
            manifest: JSON about the run: name, seed, versions, thread count.
            retention: what is kept, see `Retention`.
            keep: how many checkpoints are kept.
            numbered: a name: the run's folder is then `directory/NAME-NUMBER`, with the next free
                number.

        Raises:
            UsageError: the folder holds files already.
            StoreError: it cannot be written to.
        """
        config_text = hidden(config_text)
        state = {
            "config": config_text,
            "manifest": manifest,
            "retention": retention,
            "keep": keep,
            "status": "running",
            "created": time.time(),
        }
        while True:
            folder = directory if numbered is None else next_directory(numbered, directory)
            try:
                create_folder(folder.absolute(), config_text, state)
                store = cls(folder)
                store._new = True
                return store
            except (StoreError, UsageError):
                # Another process may have taken the number in between.
                if numbered is None or not folder.exists():
                    raise

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open an existing run, to go on with it.

        Raises:
            StoreError: there is none, another process writes to it, or it is damaged.
        """
        return cls(directory)

    def close(self) -> None:
        """Close the files and give the lock up; a second call does nothing."""
        for database in ("_reader", "_writer"):
            if database in self.__dict__:
                self.__dict__[database].close()
        if self.discarded and self._new:
            self._new = False
            shutil.rmtree(self.directory, ignore_errors=True)
        self._lock.release()

    def discard(self) -> None:
        """Remove the folder when the run is closed, unless it was there before."""
        self.discarded = self._new

    def set_status(
        self,
        status: RunStatus,
        detail: str = "",
        *,
        seconds: float = 0.0,
        stated: Usage = NO_USAGE,
    ) -> None:
        """Set the run's status, with a sentence on it.

        `seconds` and `stated` are added to what the run took, see `commit_iteration`.
        """
        finished = None if status == "running" else time.time()
        with self._transaction("status", seconds, stated):
            self._set_state(status=status, detail=detail, finished=finished)
            if status == "completed" and self._retention != "all":
                self._writer.change("calls", "answer IS NOT NULL", answer="NULL")

    def plan(self, stage: int, iterations: int) -> None:
        """Note how many iterations a stage has, for those who watch."""
        planned = {**self.planned, stage: iterations}
        with self._writer.transaction("plan", durable=False):
            self._set_state(planned={str(k): n for k, n in planned.items()})

    def note(self, path: str, name: str, text: str) -> None:
        """Put in the manifest what a component noted when it was opened."""
        with self._writer.lock:
            opened = (self.manifest or {}).get("opened", {})
            self._note(opened={**opened, path: {**opened.get(path, {}), name: text}})

    def note_beginning(self, **entries: JSON) -> None:
        """Put in the manifest which problems and which code the run began with."""
        self._note(**entries)

    def _note(self, **entries: JSON) -> None:
        """Set entries of the manifest."""
        with self._writer.transaction("manifest"):
            self._set_state(manifest={**(self.manifest or {}), **entries})

    def note_versions(self, versions: Mapping[str, str]) -> list[str]:
        """Note with which versions the run goes on from here, if they are others than before.

        The manifest's `resumed` lists, oldest first, after how many iterations which versions
        took over. Return what changed, e.g. "repair 0.1 -> 0.2".
        """
        manifest = self.manifest or {}
        resumed = manifest.get("resumed", [])
        before = resumed[-1]["versions"] if resumed else manifest.get("versions")
        if before is None or before == versions:
            return []
        since = {"after_iterations": self._last_seq(), "versions": dict(versions)}
        self._note(resumed=[*resumed, since])
        changed = changed_versions(before, versions)
        self.record_event("versions changed", {**since, "changed": changed})
        return changed

    def record_event(self, kind: str, data: JSON = None) -> None:
        """Note something worth telling."""
        with self._writer.transaction("event", durable=False):
            self._add_event(kind, data)

    def _add_event(self, kind: str, data: JSON) -> None:
        self._writer.insert("events", [{"at": time.time(), "kind": kind, "data": dumps(data)}])

    def commit_iteration(
        self,
        stage: int,
        iteration: int,
        episodes: Sequence[Episode],
        metrics: Metrics,
        checkpoint: Checkpoint | None = None,
        *,
        seconds: float = 0.0,
        stated: Usage = NO_USAGE,
    ) -> Path | None:
        """Store a finished iteration, all of it or nothing; it is on disk when this returns.

        Committing an iteration again drops the earlier one and all that came after it.

        Args:
            stage: index of the trainer.
            iteration: index in the stage.
            episodes: in an order that does not depend on arrival.
            metrics: numbers by name, no times among them.
            checkpoint: of the same stage and iteration, if one is due; its file is returned.
            seconds: how long it took.
            stated: usage that turns reported since the last commit and that the journal does not
                hold, see `Budget.charge`.
        """
        # The lock is held until what is known in memory is what was committed, and no other thread
        # may prune the checkpoint's file before it is named.
        with self._writer.lock:
            self._writer.check_place()
            path = digest = None
            if checkpoint is not None:
                path, digest = write_checkpoint(self.checkpoints, checkpoint)
            seq = self._next
            with self._transaction("commit", seconds, stated):
                again = self._writer.one(
                    "SELECT seq FROM iterations WHERE stage = ? AND iteration = ?",
                    (stage, iteration),
                )
                if again is not None:
                    seq = again[0]
                    self._drop_from(seq)
                insert_episodes(self._writer, episodes, seq, TRAINING, self._retention)
                row = {
                    "seq": seq,
                    "stage": stage,
                    "iteration": iteration,
                    "metrics": encode(_numbers(metrics)).decode(),
                    "checkpoint": path.name if path is not None else None,
                    "digest": digest,
                    "seconds": real(seconds),
                    **_summary(episodes),
                }
                self._writer.insert("iterations", [row])
                names = self._forget_old_checkpoints(self._keep)
                if self._retention != "all":
                    self._drop_answers()
            self._next = seq + 1
            prune_checkpoints(self.checkpoints, names)
            return path

    @contextmanager
    def _transaction(self, point: str, seconds: float, stated: Usage) -> Iterator[None]:
        """Commit what is written inside, and what the run took meanwhile."""
        with self._writer.lock:
            total, usage = self._seconds + seconds, self._stated + stated
            with self._writer.transaction(point):
                yield
                self._set_state(seconds=total, stated=usage_columns(usage))
                if names := self.booked.take():
                    self._add_event(BOOKED, names)
            self._seconds, self._stated = total, usage

    def restore(self) -> Restored:
        """Find the newest valid checkpoint, and drop whatever was committed after it.

        Each checkpoint that is refused is noted as an event.

        Raises:
            CheckpointError: checkpoints were written, but none of them is valid any more.
        """
        with self._writer.lock:
            restored = self.usable()
            seq = restored.after + 1
            with self._writer.transaction("restore"):
                self._drop_from(seq)
                names = self._forget_old_checkpoints(self._keep)
            self._next = seq
            prune_checkpoints(self.checkpoints, names)
        for reason in restored.refused:
            self.record_event("checkpoint refused", reason)
        return restored

    def save_evaluation(
        self,
        name: str,
        results: JSON,
        episodes: Sequence[Episode] = (),
        *,
        seconds: float = 0.0,
        stated: Usage = NO_USAGE,
    ) -> None:
        """Store a finished evaluation under a name, so that a resume does not repeat it.

        `seconds` and `stated` are added to what the run took, see `commit_iteration`.

        Raises:
            UsageError: it is called like the episodes of training.
        """
        if name == TRAINING:
            raise UsageError(f"an evaluation cannot be called {name!r}: episodes of training are")
        with self._transaction("evaluation", seconds, stated):
            self._writer.execute("DELETE FROM episodes WHERE source = ?", (name,))
            self._writer.execute("DELETE FROM evaluations WHERE name = ?", (name,))
            seq = self._next - 1
            insert_episodes(self._writer, episodes, seq, name, self._retention)
            row = {"name": name, "seq": seq, "results": dumps(results)}
            self._writer.insert("evaluations", [row])

    def keep_checkpoints(self, count: int) -> None:
        """Keep so many checkpoints from the next commit or `restore` on."""
        with self._writer.transaction("keep"):
            self._set_state(keep=count)
        self._keep = count

    def shrink(self, retention: Retention | None = None, keep: int | None = None) -> None:
        """Drop what a lower retention or fewer checkpoints do without, and free the room."""
        with self._writer.lock:
            # What was dropped cannot be had back: both only go down.
            levels: tuple[Retention, ...] = get_args(Retention)
            retention = levels[max(map(levels.index, (retention or "all", self._retention)))]
            keep = min(keep or self._keep, self._keep)
            with self._writer.transaction("shrink"):
                self._set_state(retention=retention, keep=keep)
                if retention == "none":
                    self._writer.execute("DELETE FROM episodes")
                    self._writer.execute("DELETE FROM problems")
                elif retention == "episodes":
                    strip_turns(self._writer)
                names = self._forget_old_checkpoints(keep)
                if retention != "all":
                    self._drop_answers()
                    drop_texts(self._writer)
            self._retention, self._keep = retention, keep
            self.journal.keeps_requests = retention == "all"
            prune_checkpoints(self.checkpoints, names)
            self._writer.compact()

    def _set_state(self, **values: JSON) -> None:
        self._writer.execute_many("DELETE FROM state WHERE key = ?", [(key,) for key in values])
        rows = [{"key": key, "value": dumps(value)} for key, value in values.items()]
        self._writer.insert("state", rows)

    def _forget_old_checkpoints(self, keep: int) -> list[str]:
        """Take back the names of all but the newest; return the names that stay."""
        newest = self._writer.all(
            "SELECT checkpoint, seq FROM iterations WHERE checkpoint IS NOT NULL"
            " ORDER BY seq DESC LIMIT ?",
            (max(keep, 1),),
        )
        where = "checkpoint IS NOT NULL AND seq < ?"
        oldest = [(seq,) for _, seq in newest[-1:]]
        self._writer.change("iterations", where, oldest, checkpoint="NULL", digest="NULL")
        return [name for name, _ in newest]

    def _drop_answers(self) -> None:
        """Drop recorded answers that no resume needs: those up to the oldest kept checkpoint."""
        kept = "SELECT coalesce(min(seq), 0) FROM iterations WHERE checkpoint IS NOT NULL"
        self._writer.change("calls", f"answer IS NOT NULL AND seq <= ({kept})", answer="NULL")

    def _drop_from(self, seq: int) -> None:
        for table in ("iterations", "episodes", "evaluations"):
            self._writer.execute(f"DELETE FROM {table} WHERE seq >= ?", (seq,))


def _summary(episodes: Sequence[Episode]) -> dict[str, str | float | None]:
    """Return the columns of an iteration that sum its episodes up."""
    totals = [episode.reward.total for episode in episodes if episode.reward is not None]
    statuses = Counter(str(episode.status) for episode in episodes)
    agents: Counter[str] = Counter()
    errors: dict[str, Counter[str]] = {}
    for episode in episodes:
        for _, turn in turns_with_names(episode.trajectory):
            agents[turn.agent] += 1
            if turn.status == "failed":
                errors.setdefault(turn.agent, Counter())[turn.error] += 1
    failures = {who: [of.total(), of.most_common(1)[0][0]] for who, of in errors.items()}
    counts = [dict(sorted(part.items())) for part in (statuses, agents, failures)]
    return {
        "episodes": len(episodes),
        "successes": sum(episode.success for episode in episodes),
        "unrewarded": len(episodes) - len(totals),
        "reward": real(math.fsum(totals) / len(totals)) if totals else None,
        "counts": encode(counts).decode(),
    }


def _numbers(metrics: Metrics) -> dict[str, float]:
    return {name: v if type(v) is int else float(v) for name, v in sorted(metrics.items())}
