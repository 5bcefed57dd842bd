"""Import what a text such as "package.module:name" names."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from threading import Lock, Timer
from typing import Any

from orchestrion._errors import PluginError, UsageError
from orchestrion._suggest import article, did_you_mean

PATIENCE = 1.0
"""Seconds that an import may take before people begin to wonder."""


class _Aside:
    """Sends what components print to standard error; standard output is for results.

    `redirect_stdout` puts back what it found, which another thread may have redirected meanwhile.
    """

    def __init__(self) -> None:
        self._lock, self._blocks = Lock(), 0
        self._before: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._blocks:
                self._before, sys.stdout = sys.stdout, sys.stderr
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    sys.stdout, self._before = self._before, None


printing_aside = _Aside()


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Keep standard output free, and print `importing WHAT ...` if the block takes a second."""
    timer = Timer(PATIENCE, lambda: print(f"importing {what} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        with printing_aside():
            yield
    finally:
        timer.cancel()


def resolve(path: str) -> Any:
    """Import and return what "package.module:name" or "package.module" names."""
    module, _, attributes = path.partition(":")
    value = import_module(module)
    for attribute in filter(None, attributes.split(".")):
        value = getattr(value, attribute)
    return value


def resolve_here(path: str) -> Any:
    """Import what `path` names, as `python -m` does: from the current folder, too."""
    with printing_aside():
        try:
            return resolve(path)
        except ModuleNotFoundError:
            folder = os.getcwd()
            if folder in sys.path or "" in sys.path:
                raise
            sys.path.append(folder)
            invalidate_caches()
            try:
                return resolve(path)
            except BaseException:
                sys.path.remove(folder)
                raise


def own_class(module: str, name: str, interface: str) -> type | None:
    """Return a class of the user's own, which needs no plugin; None if there is no such module.

    `interface` is that of its kind, as "module:Protocol".

    Raises:
        PluginError: it cannot be imported, or is no class.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        return None
    path = f"{module}:{name}"
    in_notebook = module == "__main__"
    try:
        value = resolve_here(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            return None
        hint = (
            "; it was defined in a notebook or in a script of another process: put the class "
            f"into a module, e.g. my_parts.py, and write `use: my_parts:{name}`"
        )
        reason = reason_of(error) + (hint if in_notebook else "")
        raise PluginError(f"{path} cannot be imported: {reason}") from error
    if not isinstance(value, type):
        raise PluginError(
            f"{path} is {article(type(value).__name__)}, not a class; write an attrs class with "
            f"the methods of `{interface.partition(':')[2]}`, see 'A class of your own' "
            "in docs/python.md"
        )
    if in_notebook:
        warnings.warn(
            f"{path} is defined in a notebook or script: this process can train it, but a later "
            "`orchestrion run` or `resume` cannot load it; put the class into a module for that",
            stacklevel=2,
        )
    return value


def reason_of(exc: BaseException) -> str:
    """Return an exception in one line, with the place where it was raised."""
    import traceback

    text = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
    frames = traceback.extract_tb(exc.__traceback__)
    last = frames[-1] if frames else None
    # Places in the import machinery or in the loader of plugins are of no use.
    own_files = ("<", os.path.dirname(__file__) + os.sep)
    if last and not last.filename.startswith(own_files) and "pluggy" not in last.filename:
        text += f" ({last.filename}, line {last.lineno})"
    return " ".join(text.split())


def load_object(path: str, where: str) -> Any:
    """Return what `path` ("package.module:name") names, installed or in the current folder.

    Raises:
        UsageError: it cannot be imported; names the setting, `where`.
    """
    try:
        return resolve_here(path)
    except Exception as error:  # whatever the module does
        module, _, name = path.partition(":")
        hint = ""
        if isinstance(error, ModuleNotFoundError):
            hint = "; its module must be installed, or stand in the folder of the command"
            if module.endswith(".py"):
                hint = f"; name the module without .py: {module.removesuffix('.py')}:{name}"
        elif isinstance(error, AttributeError) and (loaded := sys.modules.get(module)) is not None:
            near = did_you_mean(name, dir(loaded))
            hint = f"; the module is {getattr(loaded, '__file__', 'built in')}{near}"
        raise UsageError(
            f"{where}: cannot load {path!r}: {type(error).__name__}: {error}{hint}"
        ) from error


def load_function(path: str, where: str, given: int | None = None) -> Callable[..., Any]:
    """Return the callable at "package.module:name"; see `load_object`.

    Args:
        path: "package.module:name".
        where: the setting that names it.
        given: with how many arguments it will be called.

    Raises:
        UsageError: it cannot be imported, or cannot be called like this.
    """
    target = load_object(path, where)
    if not callable(target):
        raise UsageError(f"{where}: {path!r} is {article(type(target).__name__)}, not a function")
    if given is not None and (reason := _misfit(target, given)):
        raise UsageError(f"{where}: {path!r} {reason}")
    return target  # type: ignore[no-any-return]


def _misfit(function: Callable[..., Any], given: int) -> str:
    """Return why a function cannot be called with so many arguments; "" if nothing says so."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # that of some functions written in C
        return ""
    try:
        signature.bind(*[None] * given)
        return ""
    except TypeError as error:
        code = getattr(inspect.unwrap(function), "__code__", None)
        place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
        arguments = "1 argument" if given == 1 else f"{given} arguments"
        return f"cannot be called with {arguments}: {error}{place}"
