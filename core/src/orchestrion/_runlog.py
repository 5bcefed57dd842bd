"""The log of a run: `run.log` in its folder, a JSON object a line, and lines on a terminal.

It takes the events of the run (see `_events`), what libraries and components log through the
standard library's `logging`, and what they log through structlog, unless the program has configured
that itself. Secrets are taken out. It is no part of a run's result, and never fails a run.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from orchestrion._errors import BudgetError
from orchestrion._events import DEBUG, ERROR, INFO, LOGGER, WARNING, WHERE, event, within
from orchestrion._secrets import hidden

NAME: Final = "run.log"
LIMIT: Final = 10 * 2**20
"""Bytes of the file; what came before stands in one older file of this size."""
LONGEST: Final = 4_000
"""Characters of a text in a line."""
_TAIL: Final = 2**20
"""Bytes at the end of the file in which the last whole line ends."""
_SHOWN: Final = frozenset({"stage", "iteration", "evaluation", "note"})
"""Events that commands show in words of their own."""

Say = Callable[[str], None]

_open: list[object] = []
"""The logs that are open in this process."""


@contextmanager
def run_log(directory: Path, say: Say | None = None, verbose: int = 0) -> Iterator[None]:
    """Log what happens in a run, and how it ends, until the block ends.

    Args:
        directory: the run's folder; its log is continued.
        say: prints a line for a person; None where the program shows what is logged.
        verbose: 0 prints warnings of libraries, 1 the run's events too, 2 every episode, which
            then stands in the file as well, and what libraries log as information.
    """
    log = object()
    level = DEBUG if verbose > 1 else INFO
    handlers: list[logging.Handler] = [_File(directory / NAME, log, level, say or _warn)]
    if say is not None:
        handlers.append(_Terminal(say, log, level, verbose))
    elif not logging.getLogger().handlers and logging.lastResort is not None:
        # It prints warnings as long as the root logger has no handler, and now it has one.
        handlers.append(logging.lastResort)
    with within(log=log, run=directory.name), _attached(handlers, log, level), _structlog():
        try:
            yield
        except BaseException as error:
            stopped = isinstance(error, BudgetError) or not isinstance(error, Exception)
            text = str(error) or type(error).__name__
            event(WARNING if stopped else ERROR, "run ended early", error=text)
            raise


@contextmanager
def _attached(handlers: list[logging.Handler], log: object, level: int) -> Iterator[None]:
    """Let the handlers have what the run and the libraries log."""
    root = logging.getLogger()
    before = root.level
    _open.append(log)
    LOGGER.setLevel(level)
    if level == DEBUG and root.getEffectiveLevel() > INFO:
        root.setLevel(INFO)
    for handler in handlers:
        root.addHandler(handler)
        if isinstance(handler, _Handler):
            LOGGER.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
            LOGGER.removeHandler(handler)
            handler.close()
        _open.remove(log)
        if not _open:
            LOGGER.setLevel(logging.NOTSET)
        if level == DEBUG:
            root.setLevel(before)


@contextmanager
def _structlog() -> Iterator[None]:
    """Pass what components log through structlog on to `logging`, if nobody configured it."""
    import structlog

    if structlog.is_configured():
        yield
        return
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, _to_logging],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


def _to_logging(logger: object, method: str, fields: Any) -> Any:
    """Return the arguments of a method of a standard logger."""
    exc_info = fields.pop("exc_info", None)
    return {
        "msg": str(fields.pop("event", "")),
        "extra": {"fields": fields},
        "exc_info": exc_info,
    }


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, RuntimeWarning, stacklevel=2)


# ---------------------------------------------------------------- handlers


class _Handler(logging.Handler):
    """Takes the records of one run, as a text made by a structlog formatter."""

    def __init__(self, log: object, level: int, last: Any) -> None:
        import structlog

        super().__init__(level)
        self._log = log
        self.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=[structlog.processors.TimeStamper("iso", key="time")],
                processors=[
                    structlog.processors.format_exc_info,
                    _with_fields,
                    last,
                    _without_secrets,
                ],
            )
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record belongs to this run; one of a thread may belong to any."""
        return WHERE.get().get("log", self._log) is self._log


class _File(_Handler):
    """Appends a JSON object a line to a file of bounded size, each line in one write."""

    def __init__(self, path: Path, log: object, level: int, say: Say) -> None:
        import structlog

        super().__init__(log, level, structlog.processors.JSONRenderer())
        self._path, self._say = path, say
        self._file = -1
        self._size = 0
        self._failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. What prevents that is said once, and the next one is tried again."""
        try:
            self._write(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except Exception as error:
            reason = error.strerror if isinstance(error, OSError) else repr(error)
            if not self._failed:
                self._failed = True
                with suppress(Exception):
                    self._say(f"warning: {self._path} cannot be written: {reason}; the run goes on")

    def _write(self, line: bytes) -> None:
        if self._file >= 0 and self._size and self._size + len(line) > LIMIT:
            self.close_file()
            os.replace(self._path, self._path.with_name(f"{NAME}.1"))
        if self._file < 0:
            self._begin()
        written = os.write(self._file, line)
        if written < len(line):  # the disk is full: no half lines
            os.ftruncate(self._file, self._size)
            raise OSError(0, "no space left on the device")
        self._size += written

    def _begin(self) -> None:
        """Open the file behind its last whole line: a process that was killed may leave a part."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        self._file = os.open(self._path, flags, 0o666)
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, min(size, _TAIL), max(0, size - _TAIL))
        self._size = size - len(tail) + tail.rfind(b"\n") + 1
        if self._size < size:
            os.ftruncate(self._file, self._size)

    def close_file(self) -> None:
        """Close the file; the next record opens it again."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def close(self) -> None:
        """Close the file for good."""
        self.close_file()
        super().close()


class _Terminal(_Handler):
    """Says to a person what the commands do not show in other words."""

    def __init__(self, say: Say, log: object, level: int, verbose: int) -> None:
        from structlog.dev import ConsoleRenderer

        renderer = ConsoleRenderer(
            colors=False, pad_event_to=0, timestamp_key="time", sort_keys=False
        )
        super().__init__(log, level, renderer)
        self._say, self._verbose = say, verbose

    def emit(self, record: logging.LogRecord) -> None:
        """Say it: a warning of a library as it is, and where more was asked for, with fields."""
        own = record.name == LOGGER.name
        if own and (not self._verbose or record.msg in _SHOWN):
            return
        try:
            self._say(self.format(record) if self._verbose else hidden(record.getMessage()))
        except Exception:
            self.handleError(record)


# ---------------------------------------------------------------- what a line holds


def _with_fields(logger: object, level: str, record: Any) -> Any:
    """Return the fields of a line, in their order."""
    from_library = record["_record"].name != LOGGER.name
    fields = {
        "time": record["time"],
        "level": level,
        "event": record["event"],
        **({"logger": record["_record"].name} if from_library else {}),
        **WHERE.get(),
        **getattr(record["_record"], "fields", {}),
    }
    fields.pop("log", None)
    if "exception" in record:
        fields["exception"] = record["exception"]
    return _plain(fields)


def _plain(value: Any) -> Any:
    """Return a value as JSON: long texts are cut, and numbers that JSON lacks are null."""
    if isinstance(value, str) and len(value) > LONGEST:
        # Half of a secret would not be found any more.
        return f"{hidden(value)[:LONGEST]}... ({len(value):,} characters)"
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (str, int, float)) else _plain(str(value))


def _without_secrets(logger: object, level: str, text: Any) -> Any:
    return hidden(text)
