"""What can be read from a run folder, also while another process writes to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from attrs import frozen

from orchestrion.errors import CheckpointError, StoreError
from orchestrion.interfaces import Metrics
from orchestrion.records import JSON, NO_USAGE, Usage
from orchestrion.store.checkpoint import Checkpoint, Refusal, newest_checkpoint
from orchestrion.store.database import NAME, Database
from orchestrion.store.episodes import Retention, StoredEpisode, read_episodes, read_rows
from orchestrion.store.journal import AnswerStore, CallJournal, usage_columns, usage_of
from orchestrion.store.lock import lock_holder
from orchestrion.store.names import is_run
from orchestrion.store.serial import loads, parse

__all__ = ["Event", "Iteration", "Restored", "RunReader", "RunStatus"]

T = TypeVar("T")

RunStatus = Literal["running", "completed", "failed", "budget", "cancelled", "interrupted"]
"""`interrupted` is shown for a run that says it is running while no process writes to it."""


@frozen
class Iteration:
    """A committed iteration. `metrics` and the counts are a function of config and seed."""

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


@frozen
class Restored:
    """Where a run goes on.

    Args:
        checkpoint: the newest valid one; None if the run starts at its beginning.
        path: its file.
        refused: newer ones that were damaged, with the reason.
        dropped: committed iterations after it, which are to be run again.
    """

    checkpoint: Checkpoint | None
    path: Path | None
    refused: tuple[Refusal, ...]
    dropped: int

    def notes(self) -> list[str]:
        """What a person should know: checkpoints that were passed over."""
        used = self.path.name if self.path is not None else "none"
        return [f"{one.reason}; {used} is used instead" for one in self.refused]


@frozen
class Event:
    """Something worth telling: a resume, a refused checkpoint, a warning. `at` is Unix time."""

    at: float
    kind: str
    data: JSON


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

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        if not is_run(self.directory):
            raise StoreError(f"{directory}: holds no run; `orchestrion runs list` shows all runs")
        self._reader = Database(self.directory / NAME, writable=False)
        self.journal = CallJournal(self._reader)
        self.cache = AnswerStore(self._reader)

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ state

    def _state(self, key: str, default: Any = None) -> Any:
        row = self._reader.one("SELECT value FROM state WHERE key = ?", (key,))
        return default if row is None else self._decoded(f"state {key!r}", loads, row[0])

    def _decoded(self, what: str, decode: Callable[[str], T], text: str) -> T:
        try:
            return decode(text)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{self.directory / NAME}: is damaged: {what} cannot be read ({error})"
            ) from error

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.directory / "checkpoints"

    @property
    def exports(self) -> Path:
        """The folder of exports."""
        return self.directory / "exports"

    @property
    def config_text(self) -> str:
        """The resolved config, as YAML."""
        return str(self._state("config", ""))

    @property
    def manifest(self) -> JSON:
        """What `create` was given, and under `opened` what components noted."""
        return self._state("manifest")

    @property
    def status(self) -> RunStatus:
        """How the run stands."""
        status: RunStatus = self._state("status", "running")
        if status == "running" and lock_holder(self.directory) is None:
            return "interrupted"
        return status

    @property
    def created(self) -> float:
        """When the run was created (Unix time)."""
        return self._decoded("state 'created'", float, self._state("created", 0.0))

    @property
    def finished(self) -> float | None:
        """When it ended last (Unix time)."""
        return self._state("finished")  # type: ignore[no-any-return]

    @property
    def seconds(self) -> float:
        """How long it worked, all parts together."""
        return self._decoded("state 'seconds'", float, self._state("seconds", 0.0))

    @property
    def retention(self) -> Retention:
        """What is kept of episodes and calls."""
        return self._state("retention", "all")  # type: ignore[no-any-return]

    @property
    def keep(self) -> int:
        """How many checkpoints are kept."""
        return int(self._state("keep", 3))

    @property
    def detail(self) -> str:
        """The sentence given with the status."""
        return str(self._state("detail", ""))

    def spend(self) -> Usage:
        """What was paid so far: the sum over the journal, unfinished iterations included.

        To it comes what turns stated beside their calls, as far as the budget counted it.
        """
        return self.journal.spend() + self._stated_unrecorded()

    def call_rows(self) -> list[tuple[Any, ...]]:
        """What the journal says of each call and attempt, without its answer.

        Service, who, stage, kind, seconds, attempts, estimated; then the columns of the usage.
        """
        return self._reader.all(
            "SELECT service, who, stage, kind, seconds, attempts, estimated,"
            " calls, input_tokens, output_tokens, usd, cost"
            " FROM calls WHERE kind NOT IN ('arrival', 'late', 'stated') ORDER BY rowid"
        )

    def stated(self) -> Usage:
        """What turns stated that they took beside their calls, as far as the budget counted it."""
        return self.journal.spend("stated") + self._stated_unrecorded()

    def _stated_unrecorded(self) -> Usage:
        """What turns stated that neither costs money nor counts against a cap."""
        return usage_of(self._state("stated", usage_columns(NO_USAGE)))

    def events(self) -> list[Event]:
        """All events, oldest first."""
        found = self._reader.all("SELECT at, kind, data FROM events ORDER BY number")
        return [Event(at, kind, self._decoded("an event", loads, data)) for at, kind, data in found]

    # ------------------------------------------------------------------ what was done

    def _last_seq(self) -> int:
        return int(self._reader.one("SELECT coalesce(max(seq), 0) FROM iterations")[0])

    def iterations(self, stage: int | None = None) -> list[Iteration]:
        """All committed iterations, or those of one stage, in order."""
        found = self._reader.all(
            "SELECT stage, iteration, metrics, episodes, successes, unrewarded, reward,"
            " checkpoint, digest, seconds FROM iterations"
            " WHERE ? IS NULL OR stage = ? ORDER BY seq",
            (stage, stage),
        )
        return [
            Iteration(
                stage,
                number,
                self._decoded(f"metrics of iteration {stage}/{number}", _metrics, metrics),
                *others,
            )
            for stage, number, metrics, *others in found
        ]

    def last_iteration(self) -> tuple[int, int] | None:
        """Stage and iteration committed last; None before the first."""
        return self._reader.one(  # type: ignore[no-any-return]
            "SELECT stage, iteration FROM iterations ORDER BY seq DESC LIMIT 1"
        )

    def latest(self) -> Restored:
        """The newest valid checkpoint, without changing anything."""
        return self._newest()[1]

    def usable(self) -> Restored:
        """As `latest`, for those who cannot do without what was learned.

        Raises:
            CheckpointError: checkpoints were written, but none of them is valid any more.
        """
        return self._required(self.latest())

    def _required(self, restored: Restored) -> Restored:
        if restored.checkpoint is None and restored.refused:
            reasons = "\n".join(f"  {refusal.reason}" for refusal in restored.refused)
            raise CheckpointError(
                f"{self.directory}: no checkpoint is valid, so the run cannot be resumed or used; "
                f"copy one back, or start a new run\n{reasons}"
            )
        return restored

    def _newest(self) -> tuple[int, Restored]:
        named = self._reader.all(
            "SELECT seq, checkpoint, digest FROM iterations"
            " WHERE checkpoint IS NOT NULL ORDER BY seq DESC"
        )
        path, checkpoint, refused = newest_checkpoint(
            (self.checkpoints / name, digest) for _, name, digest in named
        )
        seq = named[len(refused)][0] if checkpoint is not None else 0
        return seq, Restored(checkpoint, path, tuple(refused), self._last_seq() - seq)

    def episodes(
        self,
        *,
        source: str | None = None,
        stage: int | None = None,
        iteration: int | None = None,
        status: str | None = None,
        success: bool | None = None,
        problem: str | None = None,
        id: str | None = None,
    ) -> Iterator[StoredEpisode]:
        """Stored episodes, in the order they were written; each argument narrows them."""
        wanted = {
            "e.source": source,
            "i.stage": stage,
            "i.iteration": iteration,
            "e.status": status,
            "e.success": success,
            "e.problem": problem,
            "e.id": id,
        }
        return read_episodes(self._reader, wanted)

    def episode_rows(self) -> Iterator[Mapping[str, Any]]:
        """All stored episodes as they lie in the database, for exports; nothing is decoded.

        Columns of the table `episodes`, and `stage`, `iteration`, `public` (the problem's JSON),
        `outcome` (JSON: the parts of the scores, and those of the reward).
        """
        return read_rows(self._reader)

    def part_names(self, record: Literal["scores", "reward"]) -> list[str]:
        """Names of all parts that scores or rewards have, sorted."""
        found = self._reader.all(
            "SELECT DISTINCT part.key FROM episodes e, json_each(e.record, ?) part ORDER BY 1",
            (f"$.{record}.parts",),
        )
        return [name for (name,) in found]

    def counts(self, column: Literal["status", "problem", "category"]) -> dict[str, int]:
        """How many stored training episodes there are by the value of a column."""
        return dict(
            self._reader.all(
                f"SELECT {column}, count(*) FROM episodes WHERE source = 'train'"
                " GROUP BY 1 ORDER BY 1"
            )
        )

    def agent_turns(self) -> dict[str, int]:
        """How many stored training turns each agent had."""
        return dict(
            self._reader.all(
                "SELECT json_extract(turn.value, '$.agent'), count(*)"
                " FROM episodes e, json_each(e.record, '$.trajectory') turn"
                " WHERE source = 'train' GROUP BY 1 ORDER BY 1"
            )
        )

    def load_evaluations(self) -> dict[str, JSON]:
        """Results of all finished evaluations by name, in the order they were finished."""
        found = self._reader.all("SELECT name, results FROM evaluations ORDER BY rowid")
        return {
            name: self._decoded(f"evaluation {name!r}", loads, results) for name, results in found
        }


def _metrics(text: str) -> dict[str, float]:
    return {name: math.nan if v is None else v + 0 for name, v in parse(text).items()}
