"""A run as Python sees it: what it reached and what happened in it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from attrs import field, frozen

from orchestrion._errors import UsageError
from orchestrion._store import RunReader, find_run, tables
from orchestrion._store.reader import RunStatus, Where

if TYPE_CHECKING:
    from orchestrion._activations import Activations
    from orchestrion._asking import AskedTeam
    from orchestrion._records import Episode
    from orchestrion._report import Report
    from orchestrion.config import Config


def _folder(target: str | PathLike[str]) -> Path:
    return find_run(target).absolute()


def _check_where(reader: RunReader, where: Where) -> None:
    """Refuse what no episode can have: an empty table would not tell why."""
    source, sources = where.get("source"), ["train", *reader.evaluation_names()]
    if source is not None and source not in sources:
        name = reader.directory.name
        raise UsageError(f"{name}: no episode has the source {source!r}; there are {sources}")
    for name, number in (("stage", where.get("stage")), ("iteration", where.get("iteration"))):
        if not isinstance(number, int | None):
            raise UsageError(f"{name}: expected a whole number, got {number!r:.80}")


@frozen
class Run:
    """A run in its folder, running or ended; what is read is what the folder holds then.

    Tables come as pandas data frames if pandas is installed, else as polars ones, else as lists of
    dictionaries; `as_` chooses. Their columns and units are those of `runs export`, see
    `orchestrion._store.tables`. A run stands wherever a path to one is expected.

    Args:
        path: the run's folder, or its name below `runs/`; `path` is then the folder.

    Raises:
        UsageError: there is no such run.
    """

    path: Path = field(converter=_folder)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def status(self) -> RunStatus:
        """Return how the run stands, e.g. "running" or "completed"."""
        with RunReader(self.path) as reader:
            return reader.status

    @property
    def config(self) -> Config:
        """Return the config with everything in it that the run began with, to train it again.

        Raises:
            ConfigError: a plugin that it uses is missing here.
        """
        from orchestrion.config import load

        return load(self.path / "config.yaml")

    @property
    def report(self) -> Report:
        """Return the report on what was learned and on the baselines, as far as evaluated.

        Raises:
            UsageError: nothing is evaluated yet.
        """
        from orchestrion._stored import stored_report

        with RunReader(self.path) as reader:
            report = stored_report(reader)
        if report is None:
            raise UsageError(
                f"{self.path.name}: is {self.status} and has no report yet; it is made at the end, "
                "and orchestrion.resume goes on with a run that was interrupted"
            )
        return report

    def metrics(self, as_: tables.Form | None = None) -> Any:
        """Return a table with a row for each iteration: its number, seconds, and metrics."""
        with RunReader(self.path) as reader:
            return tables.in_form(tables.metrics(reader), as_)

    def evaluations(self, as_: tables.Form | None = None) -> Any:
        """Return a table with a row for each problem of each contender of the report."""
        with RunReader(self.path) as reader:
            return tables.in_form(tables.evaluations(reader), as_)

    def episodes(self, as_: tables.Form | None = None, **where: Unpack[Where]) -> Any:
        """Return a table with a row for each episode, e.g. `episodes(source="train")`."""
        with RunReader(self.path) as reader:
            _check_where(reader, where)
            return tables.in_form(tables.episodes(reader, **where), as_)

    def turns(self, as_: tables.Form | None = None, **where: Unpack[Where]) -> Any:
        """Return a table with a row for each turn of the episodes, e.g. `turns(id="0/3/1")`."""
        with RunReader(self.path) as reader:
            _check_where(reader, where)
            return tables.in_form(tables.turns(reader, **where), as_)

    def calls(self, as_: tables.Form | None = None, who: str | None = None) -> Any:
        """Return a table with a row for each call of a model, a tool or a person.

        Args:
            as_: the form.
            who: only those on behalf of this agent, or of "verifier", "reward" or "trainer".
        """
        with RunReader(self.path) as reader:
            return tables.in_form(tables.calls(reader, who), as_)

    def episode(self, id: str) -> Episode:
        """Return one episode, whole.

        Raises:
            UsageError: the run has none of this id.
        """
        with RunReader(self.path) as reader:
            stored = next(reader.episodes(id=id), None)
        if stored is None:
            raise UsageError(f"{self.path.name}: has no episode {id!r}; episodes() lists all")
        return stored.episode

    def activations(self, **where: Unpack[Where]) -> Activations:
        """Return who acted after whom, as one graph of the episodes."""
        from orchestrion._activations import fold, waves

        with RunReader(self.path) as reader:
            _check_where(reader, where)
            return fold(waves(stored.episode.turns) for stored in reader.episodes(**where))

    def load(
        self, overrides: Sequence[str] = (), *, concurrency: int | None = None
    ) -> AbstractAsyncContextManager[AskedTeam]:
        """Open the run to ask its team questions, see `orchestrion.load`."""
        from orchestrion._asking import load

        return load(self.path, overrides, concurrency=concurrency)

    def _repr_html_(self) -> str:
        from orchestrion._html import run_html

        return run_html(self)
