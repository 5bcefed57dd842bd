"""A run in trackio."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from orchestrion import OrchestrionError
from orchestrion_track.interfaces import Backend, Point, RunInfo, Tracker


@frozen
class Trackio(Tracker):
    """A run in trackio.

    Args:
        project: its name.
        server: the address of a trackio server with its write token, e.g.
            "http://host:7860/?write_token=${env:TRACKIO_TOKEN}", or none for the local database,
            which stands where TRACKIO_DIR says.
        report: whether to keep `config.yaml` and `report.json` with the run at its end.
    """

    project: str = "orchestrion"
    server: str | None = None
    report: bool = False

    needs: ClassVar[tuple[str, ...]] = ("trackio",)
    extra: ClassVar[str] = "orchestrion-track[trackio]"

    def connect(self, run: RunInfo, known: str | None, sent: int) -> Backend:
        import trackio

        with _failing():
            run_of_trackio: Any = trackio.init(
                project=self.project,
                # Its runs are found by their names, and folders may be called alike.
                name=known or f"{run.name}-{uuid.uuid4().hex[:6]}",
                server_url=self.server,
                config=dict(run.config),
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
        return _TrackioRun(run_of_trackio)


class _TrackioRun:
    def __init__(self, run: Any) -> None:
        self._run, self.id = run, str(run.name)
        self.held: int | None = run._next_step  # it has no public name

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log(dict(point.values), step=point.step)

    def attach(self, file: Path) -> None:
        self._run.log_artifact(file, name=f"{self.id}-{file.name}", type="report")

    def finish(self, status: str) -> None:
        with _failing():
            self._run.finish()


@contextmanager
def _failing() -> Iterator[None]:
    """Raise for what trackio only warns of: a server that it cannot reach, data that it holds back.

    Raises:
        OrchestrionError: it warned.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if warning.category is UserWarning and "trackio" in Path(warning.filename).parts:
            raise OrchestrionError(f"trackio: {warning.message}")
