"""Event files for TensorBoard, written by tensorboardX.

Values are 32-bit floats, the only ones that all of TensorBoard's readers show. A step is one record
of a file, so that a writer that is killed leaves whole steps, and perhaps a part of a record, which
readers leave out. A resumed run goes on in a new file.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from attrs import converters, field, frozen

from orchestrion_track.interfaces import Backend, Point, RunInfo, Tracker

HEAD, TAIL = 12, 4
"""Bytes around a record: before it its length and a checksum of that, behind it its checksum."""


@frozen
class TensorBoard(Tracker):
    """Event files that TensorBoard shows.

    Args:
        folder: where to; a folder of the run's name is made in it. By default the files stand in
            `tensorboard` in the run's own folder.
    """

    folder: Path | None = field(default=None, converter=converters.optional(Path))

    needs: ClassVar[tuple[str, ...]] = ("tensorboardX",)
    extra: ClassVar[str] = "orchestrion-track[tensorboard]"

    def connect(self, run: RunInfo, known: str | None, sent: int) -> Backend:
        if known is not None:
            return _EventFile(run.directory / known, run)
        folder = run.directory / "tensorboard" if self.folder is None else self.folder / run.name
        names = (folder.with_name(f"{folder.name}-{n}") if n > 1 else folder for n in count(1))
        return _EventFile(next(name for name in names if not name.exists()), run)


class _EventFile:
    def __init__(self, folder: Path, run: RunInfo) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.summary import text

        folder.mkdir(parents=True, exist_ok=True)
        inside = folder.is_relative_to(run.directory)  # the run's folder may be moved
        self.id = str(folder.relative_to(run.directory) if inside else folder.absolute())
        files = sorted(folder.glob("events.*"))
        self.held: int | None = max((_steps(file) for file in files), default=0)
        # Readers take files in the order of their names, and two may be begun in one second.
        self._writer: Any = EventsWriter(str(folder / "events"), f".{len(files):04}")
        if not files:
            lines = [f"    {name}: {value}" for name, value in run.config.items()]
            self._write(0, time.time(), summary=text("config", "\n".join(lines)))
        self._writer.flush()

    def log(self, points: Sequence[Point]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        for point in points:
            values = [
                Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()
            ]
            self._write(point.step, point.at, summary=Summary(value=values))
        self._writer.flush()

    def attach(self, file: Path) -> None:
        raise NotImplementedError  # there is no setting for it

    def finish(self, status: str) -> None:
        self._writer.close()

    def _write(self, step: int, at: float, **what: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=at, step=step, **what))


def _steps(file: Path) -> int:
    """Return the step after the last one that stands in a file with all of its record."""
    from tensorboardX.proto.event_pb2 import Event

    data, start, steps = file.read_bytes(), 0, 0
    while start + HEAD <= len(data):
        end = start + HEAD + int.from_bytes(data[start : start + 8], "little")
        if end + TAIL > len(data):
            break
        event = Event.FromString(data[start + HEAD : end])
        if any(value.HasField("simple_value") for value in event.summary.value):
            steps = event.step + 1
        start = end + TAIL
    return steps
