"""Call plugin code safely: whatever it raises becomes an error that names the component.

What plugin code returns is checked in `_engine.checks`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrion._errors import BudgetError, OrchestrionError, ReplayError, RunError, StoreError
from orchestrion._interrupts import from_outside
from orchestrion._secrets import hidden

if TYPE_CHECKING:
    from orchestrion.config import Config


FATAL = (BudgetError, ReplayError, StoreError, GeneratorExit)
"""Errors in a turn that end the episode: the run's own, not the agent's."""

LONGEST = 10_000
"""Characters of an error that a record keeps: there may be one in every turn."""

_LINE = 500
"""Characters of an error that stand in the message of another one."""


@contextmanager
def calling(place: str, method: str) -> Iterator[None]:
    """Call a component inside the block: its errors are raised as by `raise_named`."""
    try:
        yield
    except BaseException as error:
        raise_named(place, method, error)


def raise_named(place: str, method: str, error: BaseException) -> NoReturn:
    """Raise an error of plugin code again, with the component it came from.

    Orchestrion's own errors and the user's interrupt are raised as they are; of a group, its first
    Orchestrion error.

    Raises:
        RunError: it is any other error.
    """
    cause = _cause(error)
    if isinstance(cause, OrchestrionError) and cause is not error:
        raise cause from error
    if isinstance(cause, OrchestrionError) or from_outside(cause):
        raise error
    raise RunError(f"{place}: {method} raised {in_one_line(cause)}") from error


def _cause(error: BaseException) -> BaseException:
    """Return the error of a group that says most: the first of ours, else the first."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_cause(inner) for inner in error.exceptions]
    return next((cause for cause in causes if isinstance(cause, OrchestrionError)), causes[0])


def describe(error: BaseException, seconds: float | None = None) -> str:
    """Return an error and its notes as the record of a turn keeps them, with secrets hidden."""
    if isinstance(error, TimeoutError) and seconds is not None and not error.args:
        return f"no result within {seconds:g} s"
    name, text = type(error).__name__, _text(error)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} ... (cut here; it has {len(text)} characters)"
    described = f"{name}: {text}" if text else name
    if notes := getattr(error, "__notes__", None):
        described += f" ({hidden('; '.join(map(str, notes)))[:LONGEST]})"
    return described


def note_line(error: BaseException, code: Callable[..., Any]) -> None:
    """Note at an error which line of the file of a function or class raised it, as "file:line".

    Nothing is added if no line of that file took part, if the error has a note, or if it is one of
    orchestrion's own: its message is all that a user needs.
    """
    if isinstance(error, OrchestrionError) or getattr(error, "__notes__", None):
        return
    code = unwrap(code)
    function = getattr(code, "__code__", None)
    module = sys.modules.get(getattr(code, "__module__", None) or "")
    file: str = function.co_filename if function else getattr(module, "__file__", None) or ""
    frames = [(f.f_code.co_filename, line) for f, line in walk_tb(error.__traceback__)]
    if lines := [line for name, line in frames if name == file]:
        error.add_note(f"{Path(file).name}:{lines[-1]}")


def in_one_line(error: BaseException) -> str:
    """Return an error in one line of at most a few hundred characters, with secrets hidden."""
    name, text = type(error).__name__, " ".join(_text(error).split())[:_LINE]
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    try:
        return hidden(str(error))
    except Exception:  # the `__str__` of a plugin's exception may raise itself
        return ""


def place_of(config: Config, path: str) -> str:
    """Return how messages name a component: its config path, what it uses, and its supplier."""
    entry = config.definitions[path]
    return f"{path} ({entry.use} of {entry.found.plugin.origin})"
