"""Report events of a run for its log; the code that reports one does not know who listens.

They go through the standard library's logger `orchestrion.run`, with fields beside their name.
Without a listener they go nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

LOGGER: Final = logging.getLogger("orchestrion.run")
# Not to the root logger, which would print them where nobody asked for a log.
LOGGER.propagate = False
LOGGER.addHandler(logging.NullHandler())

WHERE: ContextVar[Mapping[str, Any]] = ContextVar("orchestrion_where", default=MappingProxyType({}))
"""Fields of all events of this task: run, stage, iteration, episode."""


def event(level: int, name: str, **fields: Any) -> None:
    """Report an event to the listeners of its level."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, name, extra={"fields": fields})


def listened(level: int) -> bool:
    """Return whether anybody listens to events of a level."""
    return LOGGER.isEnabledFor(level)


@contextmanager
def within(**fields: Any) -> Iterator[None]:
    """Add fields to all events of this task, and of those it starts."""
    token = WHERE.set({**WHERE.get(), **fields})
    try:
        yield
    finally:
        WHERE.reset(token)
