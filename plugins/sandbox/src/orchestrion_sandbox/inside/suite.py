"""pytest, inside a sandbox. Its own hook says how each test went; nothing it prints counts."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from .line import Line
from .standins import Link

__all__ = ["PLUGINS_OFF", "Suite", "shared"]

PLUGINS_OFF = (
    "cacheprovider doctest faulthandler junitxml legacypath pastebin stepwise terminal"
).split()
SETTINGS = "settings.ini"
_MOST_TEXT = 2000


class Suite:
    """Tests in one sandbox; what they import of the program lives in another."""

    def __init__(self, payload: Mapping[str, Any], line: Line) -> None:
        self._payload, self._link = payload, Link(line)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Collect the tests, with blanks for the program, or run them."""
        if request["do"] == "collect":
            source: Callable[[str, str], Any] = _blank
        else:
            source = self._link.attribute
        sys.meta_path.append(_Finder(self._payload["modules"], source))
        paths, plugins = self._payload["paths"], self._payload["plugins"]
        return _run(paths, plugins, request["do"], self._link.unproven).report()


def shared(word: str, paths: Sequence[str], plugins: Sequence[str]) -> NoReturn:
    """Run tests in one process with what they test; the report is a line that begins with a word.

    What is reported is the program's word.
    """
    out = os.dup(1)
    recorder = _run(paths, plugins, "run", set())
    os.write(out, f"\n{word}{json.dumps(recorder.report())}\n".encode())
    os._exit(0)


def _run(paths: Sequence[str], plugins: Sequence[str], do: str, unproven: set[str]) -> _Recorder:
    import pytest

    with open(SETTINGS, "w", encoding="utf-8") as file:
        file.write("[pytest]\n")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    pytest.hookimpl(wrapper=True)(_Recorder.pytest_runtestloop)
    recorder = _Recorder(do == "again", unproven)
    arguments = ["-c", SETTINGS, f"--rootdir={os.getcwd()}", "--noconftest"]
    arguments += [f"-pno:{name}" for name in PLUGINS_OFF]
    arguments.append("--import-mode=importlib")
    if do == "collect":
        arguments.append("--collect-only")
    sources = [_plugin(path) for path in plugins]
    pytest.main([*arguments, *paths], plugins=[recorder, *sources])
    return recorder


def _plugin(path: str) -> types.ModuleType:
    """The author's own conftest.py; any other is not looked for."""
    module = types.ModuleType(f"given_{path.replace('/', '_').removesuffix('.py')}")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
    return module


class _Recorder:
    """A plugin that writes down what pytest itself says, and what each test left unproven."""

    def __init__(self, again: bool, unproven: set[str]) -> None:
        self._again, self._marks = again, unproven
        self._unproven: dict[str, list[str]] = {}
        self._collected: list[str] = []
        self._reports: list[list[str]] = []
        self._errors: list[str] = []
        self._exit: int | None = None

    def report(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "collected": self._collected,
            "reports": self._reports,
            "errors": self._errors,
            "exit": self._exit,
            "unproven": self._unproven,
        }

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed or report.skipped:
            self._errors.append(f"{report.nodeid}: {str(report.longrepr)[-_MOST_TEXT:]}")

    def pytest_collection_finish(self, session: Any) -> None:
        self._collected = [item.nodeid for item in session.items]
        for test in self._collected:  # what a module does when it is loaded concerns all tests
            self._unproven[test] = sorted(self._marks)
        self._marks.clear()

    def pytest_runtestloop(self, session: Any) -> Generator[None, Any, Any]:
        """One test once more at the end, for programs that are right only once."""
        result = yield
        if self._again and session.items and not session.config.option.collectonly:
            import secrets

            from _pytest.runner import runtestprotocol

            runtestprotocol(secrets.choice(session.items), nextitem=None)
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr or "")
        self._reports.append([report.nodeid, report.when, outcome, text[:_MOST_TEXT]])
        marks = self._marks.union(self._unproven.get(report.nodeid, ()))
        self._unproven[report.nodeid] = sorted(marks)
        self._marks.clear()

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        self._exit = int(exitstatus)


# ---------------------------------------------------------------- what the tests import


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of the program after all others."""

    def __init__(self, modules: Sequence[str], source: Callable[[str, str], Any]) -> None:
        self._modules, self._source = modules, source

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module whose attributes are asked for."""
        if name not in self._modules:
            return None
        package = any(other.startswith(f"{name}.") for other in self._modules)
        loader = _Loader(self._source)
        return importlib.machinery.ModuleSpec(name, loader, is_package=package)


class _Loader(importlib.abc.Loader):
    def __init__(self, source: Callable[[str, str], Any]) -> None:
        self._source = source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name, self._source)

    def exec_module(self, module: types.ModuleType) -> None:
        self._source(module.__name__, "__name__")  # it has to load


class _Module(types.ModuleType):
    def __init__(self, name: str, source: Callable[[str, str], Any]) -> None:
        super().__init__(name)
        self.__dict__["_source"] = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        return self._source(self.__name__, name)


def _blank(module: str, name: str) -> Blank:
    if name == "__all__":
        raise AttributeError(name)
    return Blank(name)


class Blank:
    """Something of a program that is not there while its tests are collected."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Blank(name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return Blank("blank")

    def __getitem__(self, key: Any) -> Any:
        return Blank("blank")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return ()
