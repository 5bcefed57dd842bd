"""What a tracker is: settings that connect to a backend, and what the backend is handed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

from attrs import asdict, field, frozen

from orchestrion import Meta, UsageError

__all__ = ["Backend", "Point", "RunInfo", "Tracker"]


@frozen
class RunInfo:
    """The run that is tracked."""

    name: str  # of its folder
    directory: Path  # its folder
    config: Mapping[str, Any]  # every setting by its config path, without secrets


@frozen
class Point:
    """What was measured at one step."""

    step: int
    """The number of the iteration, counted over all stages from 0. The results at the end have the
    number after that of the last iteration."""
    at: float  # Unix time in seconds: when the run was created, and what it worked until then
    values: Mapping[str, float]  # numbers by name


class Backend(Protocol):
    """A tracker's connection to where its runs are kept. Any method may raise, or take long."""

    id: str
    """What `connect` needs to go on in the same tracker run."""
    held: int | None
    """The step after the last one that the tracker run holds; None if that cannot be told."""

    def log(self, points: Sequence[Point]) -> None:
        """Write points, in order of their steps; they are kept when this returns, if possible."""
        ...

    def attach(self, file: Path) -> None:
        """Keep a file with the tracker run; only called for trackers with a setting `report`."""
        ...

    def finish(self, status: str) -> None:
        """Write what is left, note how the run ended, and disconnect.

        Args:
            status: "completed", "failed", "budget", "cancelled", or "interrupted" for a run whose
                process was killed.
        """
        ...


@frozen
class Tracker(ABC):
    """A tracker's settings, all of them plain values; derive from it for a tracker of your own.

    Args:
        patience: seconds. If the tracker does not answer for so long, the run says so. At its end
            the run waits at most so long for what is still to be sent.
    """

    patience: Annotated[float, Meta(gt=0)] = field(default=30.0, kw_only=True)

    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that must be installed."""
    extra: ClassVar[str] = ""
    """What to install for that, e.g. "orchestrion-track[mlflow]"."""

    @property
    def target(self) -> str:
        """Return what names the place that is written to: another place has another tracker run."""
        return repr([value for name, value in sorted(asdict(self).items()) if name != "patience"])

    @abstractmethod
    def connect(self, run: RunInfo, known: str | None, sent: int) -> Backend:
        """Begin a tracker run, or go on with one.

        Args:
            run: what is tracked.
            known: the `id` of the tracker run to go on with; None to begin one.
            sent: the step after the last one that was surely sent.
        """

    def check(self) -> None:
        """Refuse to work if a library is missing.

        Raises:
            UsageError: it is; says what to install.
        """
        missing = [name for name in self.needs if find_spec(name) is None]
        if missing:
            raise UsageError(
                f"the tracker {self.label} needs {', '.join(missing)}, which is not installed: "
                f'pip install "{self.extra}"'
            )

    @property
    def label(self) -> str:
        """Return what messages call it."""
        return type(self).__name__.lower()

    def observe(self) -> object:
        """Return what listens to a run and starts the process that writes.

        Raises:
            UsageError: a library is missing.
        """
        from orchestrion_track.listener import Listener

        self.check()
        return Listener(self)
