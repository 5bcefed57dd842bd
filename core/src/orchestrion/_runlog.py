"""The log of a run: `run.log` in its folder, a JSON object a line, and lines on a terminal.

It takes the events of the run (see `_events`), what libraries and components log through the
standard library's `logging`, and what they log through structlog, unless the program has configured
that itself. Secrets are taken out. It is no part of a run's result, and never fails a run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from orchestrion._errors import BudgetError
from orchestrion._events import DEBUG, ERROR, INFO, LOGGER, WARNING, WHERE, event, within
from orchestrion._readonly import finite
from orchestrion._secrets import hidden

NAME: Final = "run.log"
LIMIT: Final = 10 * 2**20
"""Bytes of the file; what came before stands in one older file of this size."""
LONGEST: Final = 4_000
"""Characters of a text in a line."""
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
    handlers: list[logging.Handler] = [
        _File(directory / NAME, log, level, say or partial(warnings.warn, category=RuntimeWarning))
    ]
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
        if handler is not logging.lastResort:
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
    message, exc_info = str(fields.pop("event", "")), fields.pop("exc_info", None)
    return {"msg": message, "extra": {"fields": fields}, "exc_info": exc_info}


# ---------------------------------------------------------------- handlers


class _Formatter(logging.Formatter):
    """Renders the fields of a record, without secrets."""

    def __init__(self, render: Callable[[dict[str, Any]], str]) -> None:
        super().__init__()
        self._render = render

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat()
        fields = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **({} if record.name == LOGGER.name else {"logger": record.name}),
            **WHERE.get(),
            **getattr(record, "fields", {}),
        }
        fields.pop("log", None)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        return hidden(self._render(finite(fields, _cut)))


def _prepare(
    handler: logging.Handler, log: object, level: int, render: Callable[[dict[str, Any]], str]
) -> None:
    """Let a handler take the records of one run."""
    handler.setLevel(level)
    # A record of a thread may belong to any run.
    handler.addFilter(lambda record: WHERE.get().get("log", log) is log)
    handler.setFormatter(_Formatter(render))


class _File(RotatingFileHandler):
    """Appends a JSON object a line; what prevents that is said once, and the run goes on."""

    def __init__(self, path: Path, log: object, level: int, say: Say) -> None:
        super().__init__(
            path, "a", LIMIT, 1, encoding="utf-8", delay=True, errors="backslashreplace"
        )
        _prepare(self, log, level, json.dumps)
        self._say: Say | None = say

    def _open(self) -> Any:
        """Open the file behind its last whole line: a process that was killed may leave a part."""
        path = Path(self.baseFilename)
        if path.is_file():
            text = path.read_bytes()
            os.truncate(path, text.rfind(b"\n") + 1)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        error, say, self._say = sys.exc_info()[1], self._say, None
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        if say is not None:
            with suppress(Exception):
                say(f"warning: {self.baseFilename} cannot be written: {reason}; the run goes on")

    def close(self) -> None:
        """Close the file; what could not be written is lost."""
        with suppress(OSError):
            super().close()


class _Terminal(logging.Handler):
    """Says to a person what the commands do not show in other words."""

    def __init__(self, say: Say, log: object, level: int, verbose: int) -> None:
        from structlog.dev import ConsoleRenderer

        super().__init__()
        renderer = ConsoleRenderer(
            colors=False, pad_event_to=0, timestamp_key="time", sort_keys=False
        )
        _prepare(self, log, level, lambda fields: renderer(None, "", fields))
        self._say, self._verbose = say, verbose

    def emit(self, record: logging.LogRecord) -> None:
        """Say it: a warning of a library as it is, and where more was asked for, with fields."""
        is_own = record.name == LOGGER.name
        if is_own and (not self._verbose or record.msg in _SHOWN):
            return
        try:
            self._say(self.format(record) if self._verbose else hidden(record.getMessage()))
        except Exception:
            self.handleError(record)


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    # Half of a secret would not be found any more.
    return f"{hidden(text)[:LONGEST]}... ({len(text):,} characters)"
