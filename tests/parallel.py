"""Runs tests in several processes: `-n NUMBER`, and `-n0` for one process.

The tests are collected once; then pytest forks, and hands each child one file after the other.
Nothing is imported twice, and every child begins with what collecting has imported. Where there
is no fork, all tests run in one process.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections import deque
from contextlib import suppress
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest

__all__ = ["Parallel", "add_option", "number_of_processes"]

_ALLOWED = "a number of processes, or auto: one more than there are processors"


def add_option(parser: pytest.Parser) -> None:
    """Add `-n`, which is no long option since it is typed often."""
    group = parser.getgroup("parallel")
    group._addoption("-n", dest="processes", default="auto", help=_ALLOWED)


def number_of_processes(config: pytest.Config) -> int:
    """Return how many children share the tests; 0 if this process runs them itself.

    Raises:
        pytest.UsageError: If `-n` is no number.
    """
    text = config.getoption("processes")
    if text == "auto":
        allowed = getattr(os, "sched_getaffinity", None)
        processors = len(allowed(0)) if allowed else os.cpu_count() or 1
        number = processors + 1  # many tests wait for processes of theirs
    elif text.isdecimal():
        number = int(text)
    else:
        raise pytest.UsageError(f"-n takes {_ALLOWED}; {text!r} is neither")
    return number if hasattr(os, "fork") and not config.getoption("usepdb") else 0


class Parallel:
    """The plugin of the process that hands out files and reports results."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._started = 0
        self._running: dict[Connection, _Child] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests, unless none are to be run or some could not be collected."""
        files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
        count = min(self._processes, len(files))
        if count < 2 or session.testsfailed or session.config.option.collectonly:
            return None
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # tests of several files alternate
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        todo = deque(files)
        try:
            for _ in range(count):
                self._start(session, todo.popleft())
            while self._running:
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)
                    self._handle(session, connection, todo)
        finally:
            for child in self._running.values():  # left over after an interrupt
                os.kill(child.pid, 9)
                os.waitpid(child.pid, 0)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        assert not todo, f"{len(todo)} files were not run"
        return True

    def _start(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        ours, theirs = Pipe()
        self._started += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            for other in (ours, *self._running):
                other.close()
            _run_as_child(session, theirs, self._started, items)
        theirs.close()
        self._running[ours] = _Child(pid, items)

    def _handle(
        self, session: pytest.Session, connection: Connection, todo: deque[list[pytest.Item]]
    ) -> None:
        """Answer one message of a child."""
        child, hook = self._running[connection], session.config.hook
        try:
            kind, content = connection.recv()
        except EOFError:
            self._bury(session, connection, todo)
            return
        if kind == "begins":
            child.test = content
            if child.following and child.following[0].nodeid == content:
                child.items, child.following = child.following, []
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=content)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "ended":
            hook.pytest_runtest_logfinish(nodeid=child.test, location=("", None, ""))
        else:
            assert kind == "next"
            stop = session.shouldfail or session.shouldstop
            child.following = items = [] if stop or not todo else todo.popleft()
            # The child has the same list of tests; it needs their places only.
            place = (session.items.index(items[0]), len(items)) if items else (0, 0)
            with suppress(BrokenPipeError):
                connection.send(place)

    def _bury(
        self, session: pytest.Session, connection: Connection, todo: deque[list[pytest.Item]]
    ) -> None:
        """Take the end of a child: the test that it ran has failed, others run what it left."""
        child = self._running.pop(connection)
        connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if code == 0:
            return
        text = f"the process of this test ended with {code}"
        report = pytest.TestReport(
            child.test,
            (child.test.partition("::")[0], None, child.test),
            {},
            "failed",
            text,
            "call",
        )
        session.config.hook.pytest_runtest_logreport(report=report)
        ran = [item.nodeid for item in child.items].index(child.test) + 1
        todo.extendleft(items for items in (child.following, child.items[ran:]) if items)
        if todo and not (session.shouldfail or session.shouldstop):
            self._start(session, todo.popleft())


class _Child:
    """What is known of a running child."""

    def __init__(self, pid: int, items: list[pytest.Item]) -> None:
        self.pid = pid
        self.items = items  # of the file that it runs
        self.test = items[0].nodeid
        self.following: list[pytest.Item] = []  # a file that it was given and has not begun


class _Sender:
    """The plugin of a child: reports go to the parent."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))


def _run_as_child(
    session: pytest.Session, connection: Connection, number: int, items: list[pytest.Item]
) -> None:
    """Run tests until there are no more; ends the process."""
    code = 1
    try:
        atexit._clear()  # what the parent registered is for the parent to do
        _separate(session.config, number)
        session.config.pluginmanager.register(_Sender(session.config, connection))
        _run_files(session, connection, items)
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


def _separate(config: pytest.Config, number: int) -> None:
    """Give this process what it must not share with the others."""
    plugins: Any = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    capture = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()  # into files of its own
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir()


def _run_files(session: pytest.Session, connection: Connection, items: list[pytest.Item]) -> None:
    """Run the tests of one file after the other."""
    while items:
        following: list[pytest.Item] = []
        for item, after in zip(items, [*items[1:], None], strict=True):
            if after is None:
                # Tearing down stops at what the next test needs: ask before the last one runs.
                connection.send(("next", None))
                place = connection.recv()
                following = session.items[place[0] : sum(place)]
                after = following[0] if following else None
            connection.send(("begins", item.nodeid))
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            connection.send(("ended", None))
            if session.shouldfail or session.shouldstop:
                session._setupstate.teardown_exact(None)
                return
        items = following
