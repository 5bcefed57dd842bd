"""Read a run folder, also while another process writes to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar, Unpack

from attrs import frozen

from orchestrion._errors import CheckpointError, StoreError, UsageError
from orchestrion._interfaces import Metrics
from orchestrion._readonly import ReadOnlyDict, read_only
from orchestrion._records import JSON, NO_USAGE, TRAINING, Usage
from orchestrion._store.checkpoint import Checkpoint, read_checkpoint
from orchestrion._store.conversations import StoredCall, read_all_calls, read_calls
from orchestrion._store.database import NAME, Database
from orchestrion._store.episodes import (
    Retention,
    StoredEpisode,
    read_episodes,
    read_rows,
    read_turn_orders,
)
from orchestrion._store.evaluations import FOLDER, read_evaluation
from orchestrion._store.journal import (
    USAGE_SUMS,
    AnswerStore,
    CallJournal,
    usage_columns,
    usage_of,
)
from orchestrion._store.lock import lock_holder
from orchestrion._store.names import run_at
from orchestrion._store.notes import Event, read_notes
from orchestrion._store.pages import EpisodeFilter, EpisodePage, PageOptions, read_page
from orchestrion._store.serial import loads, parse

RunStatus = Literal["running", "completed", "failed", "budget", "cancelled", "interrupted"]
"""`interrupted` is shown for a run that says it is running while no process writes to it."""


T = TypeVar("T")

BOOKED = "booked"
"""The kind of an event that only a resumed run reads: names of pure results, see `Booked`."""
_ALL = EpisodeFilter()


@frozen
class Iteration:
    """A committed iteration. `metrics` and the counts are a function of config and seed.

    All who ask a reader get the same one, so that nothing in it can be changed.
    """

    stage: int
    iteration: int
    metrics: Metrics
    episodes: int
    successes: int
    unrewarded: int
    reward: float | None
    checkpoint: str | None
    digest: str | None
    seconds: float
    statuses: Mapping[str, int]
    """Episodes by status."""
    agents: Mapping[str, int]
    """Turns by agent, those in nested teams as well."""
    failures: Mapping[str, tuple[int, str]]
    """Failed turns by agent: their number, and their most frequent reason."""


@frozen
class Restored:
    """Where a run goes on."""

    checkpoint: Checkpoint | None  # the newest valid one; None for the run's beginning
    path: Path | None  # its file
    refused: tuple[str, ...]  # why newer ones are not used
    after: int = 0  # how many iterations were committed up to it

    def notes(self) -> list[str]:
        """Return what a person should know: checkpoints that were not used."""
        used = self.path.name if self.path is not None else "none"
        return [f"{reason}; {used} is used instead" for reason in self.refused]


class Where(TypedDict, total=False):
    """Which episodes of a run: each key that is not None narrows them.

    `source` is "train" or a contender's name; `id` is an episode's.
    """

    source: str | None
    stage: int | None
    iteration: int | None
    status: str | None
    success: bool | None
    problem: str | None
    id: str | None


class _State(Generic[T]):
    """An attribute of a reader that is read from the table `state` each time."""

    def __init__(self, key: str, default: T) -> None:
        self._key, self._default = key, default

    def __get__(self, reader: RunReader, kind: type) -> T:
        value: T = reader._state(self._key, self._default)
        return value


class RunReader:
    """A run's store, open for reading. Close it, or use `with`.

    Args:
        directory: the run's folder.

    Raises:
        StoreError: there is no run, or it has another schema.
    """

    directory: Path
    journal: CallJournal
    """Recorded calls, to replay them."""
    cache: AnswerStore
    checkpoints: Path
    exports: Path

    config_text = _State[str]("config", "")  # the resolved config, as YAML
    manifest = _State[JSON]("manifest", None)
    """What `create` was given, and under `opened` what components noted."""
    created = _State[float]("created", 0.0)  # when the run was created (Unix time)
    finished = _State[float | None]("finished", None)  # when it ended last (Unix time)
    seconds = _State[float]("seconds", 0.0)  # how long it worked, in all its parts together
    retention = _State[Retention]("retention", "all")  # what is kept of episodes and calls
    keep = _State[int]("keep", 3)  # how many checkpoints are kept
    detail = _State[str]("detail", "")  # the sentence given with the status

    def __init__(self, directory: Path) -> None:
        self.directory = run_at(directory)
        self.checkpoints, self.exports = self.directory / "checkpoints", self.directory / "exports"
        self._reader = Database(self.directory / NAME, writable=False)
        self.journal = CallJournal(self._reader)
        self.cache = AnswerStore(self._reader)
        self._iterations: tuple[Any, list[Iteration]] | None = None
        """Those of a version of the database."""

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _state(self, key: str, default: Any = None) -> Any:
        for row in self._reader.rows("state", "WHERE key = ?", (key,)):
            return loads(row["value"])
        return default

    @property
    def status(self) -> RunStatus:
        """Return how the run stands."""
        status: RunStatus = self._state("status", "running")
        if status == "running" and lock_holder(self.directory) is None:
            return "interrupted"
        return status

    def data_version(self) -> int:
        """Return a number that differs once another process has written to the run."""
        return self._reader.version()[0]

    @property
    def planned(self) -> dict[int, int]:
        """Return how many iterations each stage has, of the stages that were begun."""
        return {int(stage): total for stage, total in self._state("planned", {}).items()}

    def spend(self) -> Usage:
        """Return what was paid so far, in unfinished iterations too.

        That is the sum over the journal, and what turns stated beside their calls, as far as the
        budget counted it.
        """
        return self.journal.spend() + self._stated_unrecorded()

    def stated(self) -> Usage:
        """Return what turns reported beside their calls, as far as the budget counted it."""
        return self.journal.spend("stated") + self._stated_unrecorded()

    def _stated_unrecorded(self) -> Usage:
        """Return what turns reported that neither costs money nor counts against a cap."""
        return usage_of(self._state("stated", usage_columns(NO_USAGE)))

    def usage_by_source(self) -> dict[str, Usage]:
        """Return what all stored episodes of training took, and those of each contender."""
        query = f"SELECT source, {USAGE_SUMS} FROM episodes GROUP BY source ORDER BY min(number)"
        return {source: usage_of(sums) for source, *sums in self._reader.all(query)}

    def cost_by_agent(self, source: str) -> dict[str, float]:
        """Return what each agent's turns cost in the episodes of a source, dearest first.

        Empty where turns are not kept.
        """
        query = (
            "SELECT json_extract(t.value, '$.agent') AS agent,"
            " total(json_extract(t.value, '$.output.usage.cost')) AS cost"
            " FROM episodes e, json_each(e.record, '$.trajectory') t WHERE e.source = ?"
            " GROUP BY agent ORDER BY cost DESC, agent"
        )
        return dict(self._reader.all(query, (source,)))

    def events(self) -> list[Event]:
        """Return all events, and notes that were added later, oldest first."""
        events = [
            Event(row["at"], row["kind"], loads(row["data"]))
            for row in self._reader.rows("events", "WHERE kind != ? ORDER BY number", (BOOKED,))
        ]
        return events + read_notes(self.directory)

    def _last_seq(self) -> int:
        return int(self._reader.one("SELECT coalesce(max(seq), 0) FROM iterations")[0])

    def iterations(self, stage: int | None = None, first: int = 0) -> list[Iteration]:
        """Return all committed iterations, or those of one stage, in order.

        Args:
            stage: index of the trainer.
            first: how many of all iterations to leave out at the beginning.
        """
        if first:
            iterations = self._read_iterations(first)
        else:
            # A report on a run of 10,000 asks for them several times.
            version = self._reader.version()
            if self._iterations is None or self._iterations[0] != version:
                self._iterations = version, self._read_iterations()
            iterations = self._iterations[1]
        return [row for row in iterations if stage in (None, row.stage)]

    def _read_iterations(self, first: int = 0) -> list[Iteration]:
        iterations = []
        for row in self._reader.rows("iterations", "ORDER BY seq LIMIT -1 OFFSET ?", (first,)):
            del row["seq"]
            metrics = parse(row["metrics"])
            row["metrics"] = ReadOnlyDict(
                {name: math.nan if v is None else v + 0 for name, v in metrics.items()}
            )
            # Older runs have no failures.
            row["statuses"], row["agents"], *failures = read_only(parse(row.pop("counts")))
            row["failures"] = failures[0] if failures else {}
            iterations.append(Iteration(**row))
        return iterations

    def last_iteration(self) -> tuple[int, int] | None:
        """Return the stage and the iteration committed last; None before the first."""
        return self._reader.one(  # type: ignore[no-any-return]
            "SELECT stage, iteration FROM iterations ORDER BY seq DESC LIMIT 1"
        )

    def latest(self) -> Restored:
        """Return the newest valid checkpoint, without changing anything."""
        return self._first_valid(self._named())

    def usable(self, after: int | None = None) -> Restored:
        """Return the newest valid checkpoint, for callers that cannot do without it.

        Args:
            after: the one after so many iterations, and no other; None for the newest.

        Raises:
            CheckpointError: checkpoints were written, but none of them is valid any more.
            UsageError: there is none after so many iterations.
        """
        kept = self._named()
        if after is not None and after not in [seq for seq, _, _ in kept]:
            have = ", ".join(str(seq) for seq, _, _ in reversed(kept)) or "none"
            raise UsageError(
                f"{self.directory}: keeps no checkpoint after {after} iterations; it has those "
                f"after {have} (`run.keep` says how many are kept)"
            )
        restored = self._first_valid([row for row in kept if after in (None, row[0])])
        if restored.checkpoint is None and restored.refused:
            reasons = "\n".join(f"  {reason}" for reason in restored.refused)
            raise CheckpointError(
                f"{self.directory}: no checkpoint is valid, so the run cannot be resumed or used; "
                f"copy one back, or start a new run\n{reasons}"
            )
        return restored

    def _named(self) -> list[tuple[int, str, str | None]]:
        """Return the checkpoints that are kept, newest first: after which iteration, file, digest.

        Iterations are counted from 1, over all stages.
        """
        return self._reader.all(
            "SELECT seq, checkpoint, digest FROM iterations"
            " WHERE checkpoint IS NOT NULL ORDER BY seq DESC"
        )

    def _first_valid(self, named: list[tuple[int, str, str | None]]) -> Restored:
        refused: list[str] = []
        for seq, name, digest in named:
            path = self.checkpoints / name
            try:
                checkpoint = read_checkpoint(path, digest)
            except CheckpointError as error:
                refused.append(str(error))
            else:
                return Restored(checkpoint, path, tuple(refused), seq)
        return Restored(None, None, tuple(refused))

    def episodes(self, **where: Unpack[Where]) -> Iterator[StoredEpisode]:
        """Yield stored episodes, in the order they were written; see `Where`."""
        return read_episodes(self._reader, _filters(where))

    def episode_rows(self, **where: Unpack[Where]) -> Iterator[Mapping[str, Any]]:
        """Yield stored episodes as rows of the database, with nothing decoded.

        They have the columns of the table `episodes`, and `stage`, `iteration`, `public` (the
        problem's JSON) and `outcome` (JSON: the parts of the scores, and those of the reward).
        """
        return read_rows(self._reader, _filters(where))

    def episode_page(
        self, wanted: EpisodeFilter = _ALL, **options: Unpack[PageOptions]
    ) -> EpisodePage:
        """Return some episodes in order, without their turns, for tables that people read.

        Nothing is checked against what was written.

        Raises:
            UsageError: `after` or `before` is no place in a list of episodes.
        """
        return read_page(self._reader, wanted, **options)

    def evaluation_names(self) -> list[str]:
        """Return the names of all finished evaluations, oldest first."""
        return [name for (name,) in self._reader.all("SELECT name FROM evaluations ORDER BY rowid")]

    def turn_orders(
        self,
        stage: int | None = None,
        iteration: int | None = None,
        limit: int = 32,
        source: str = TRAINING,
    ) -> list[list[tuple[int, str]]]:
        """Return the turns of the first episodes of an iteration: (decision, agent) each.

        Without an iteration they are the first episodes of `source`: "train" or an evaluation.
        """
        return read_turn_orders(self._reader, stage, iteration, limit, source)

    def part_names(self, record: Literal["scores", "reward"]) -> list[str]:
        """Return names of all parts that scores or rewards have, sorted."""
        rows = self._reader.all(
            "SELECT DISTINCT part.key FROM episodes e, json_each(e.record, ?) part ORDER BY 1",
            (f"$.{record}.parts",),
        )
        return [name for (name,) in rows]

    def calls(self, names: Sequence[str]) -> list[StoredCall]:
        """Return what calls asked and what they were answered; without those that left no record.

        `names` are as `Output.calls` and `Episode.calls` have them.
        """
        return read_calls(self._reader, names)

    def all_calls(self, who: str | None = None) -> Iterator[StoredCall]:
        """Yield all calls that were answered or failed, in the order of their records.

        `who` selects those on behalf of an agent, or of "verifier", "reward" or "trainer".
        """
        return read_all_calls(self._reader, who)

    def never_tried(self) -> list[str] | None:
        """Return the agents without a turn in training, in team order; None if none was trained."""
        checkpoint = self.latest().checkpoint
        tried = {agent for iteration in self.iterations() for agent in iteration.agents}
        if checkpoint is None or not tried:
            return None
        return [name for name in checkpoint.roster if name not in tried]

    def trained_on(self, source: str) -> tuple[int, int]:
        """Return how many problems an evaluation has, and how many of them training had as well.

        Both are 0 where episodes are not kept. Ids and categories are not compared.
        """
        content = "json_remove(p.record, '$.id', '$.category')"
        kept = "FROM episodes e JOIN problems p ON p.digest = e.public WHERE e.source = ?"
        query = (
            "SELECT count(DISTINCT e.problem), count(DISTINCT CASE WHEN"
            f" {content} IN (SELECT {content} {kept}) THEN e.problem END) {kept}"
        )
        judged, trained = self._reader.one(query, (TRAINING, source))
        return judged, trained

    def count_problems(self, source: str) -> int:
        """Return how many problems the episodes of a source have; 0 where they are not kept."""
        query = "SELECT count(DISTINCT problem) FROM episodes WHERE source = ?"
        count: int = self._reader.one(query, (source,))[0]
        return count

    def load_evaluations(self) -> dict[str, JSON]:
        """Return the results of all finished evaluations by name, oldest first."""
        return {
            row["name"]: loads(row["results"])
            for row in self._reader.rows("evaluations", "ORDER BY rowid")
        }

    def kept_evaluations(self) -> dict[str, JSON]:
        """Return what `orchestrion eval` kept beside the run, by file name, oldest first.

        Of a file that cannot be read it has what is wrong with it, under `error`.
        """
        files = (self.directory / FOLDER).glob("*.json")
        numbered = [path for path in files if path.stem.isdecimal()]
        documents: dict[str, JSON] = {}
        for path in sorted(numbered, key=lambda path: int(path.stem)):
            try:
                documents[path.name] = read_evaluation(path, printed=False)
            except StoreError as error:
                documents[path.name] = {"error": str(error)}
        return documents

    def verify(self) -> None:
        """Read the whole database, to find broken pages as well; raise `StoreError` if damaged."""
        self._reader.verify()


def _filters(where: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := [name for name in where if name not in Where.__annotations__]:
        raise TypeError(f"episodes cannot be selected by {unknown[0]!r}")
    table = {"stage": "i", "iteration": "i"}
    return {f"{table.get(name, 'e')}.{name}": value for name, value in where.items()}
