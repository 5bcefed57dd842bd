"""The command line in processes of its own that start in no time.

`python -m orchestrion` spends most of a short command on imports. Here one process has
imported everything, and forks for each command: a real process, with its own exit code,
signals and files, that can be killed. What hangs on a cold start (how little is imported, that
nothing is missing, another hash seed) is for tests that start Python themselves.

The workers of pytest are forked from it too, in a run of all tests: each collects all tests, and
what these import takes most of that time.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, Self

__all__ = ["SHARED", "Command", "put_on_path", "run", "start", "worker"]

SHARED = "WARM_COMMANDS"
"""The environment variable with the address of a process that several test workers share."""
LARGER = "--larger"
"""Has a command serve as the process that forks, with all that tests import."""
_HERE = Path(__file__).resolve()
_PATIENCE = 600.0
"""Seconds that the process gets for its imports."""


class Command:
    """A command that was started; used like a `subprocess.Popen` in text mode.

    Args:
        words: of the command, without `orchestrion`.
        cwd: where it runs.
        env: its environment variables.
        stdout: where its output goes: a file, `subprocess.PIPE` or `subprocess.DEVNULL`.
        stderr: likewise.
        stdin: where its input comes from; by default there is none.
        server: the address of the process that forks; by default that of this test worker.
    """

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[Any] | int | None = subprocess.DEVNULL,
        stderr: IO[Any] | int | None = subprocess.DEVNULL,
        stdin: IO[Any] | None = None,
        server: str = "",
    ) -> None:
        self.args = ["orchestrion", *map(str, words)]
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        order = {
            "words": self.args[1:],
            "cwd": str(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
        }
        with open(os.devnull, "r+b") as null:
            ends: list[int] = []
            files = [(stdin or null).fileno()]
            for name, target in (("stdout", stdout), ("stderr", stderr)):
                if target == subprocess.PIPE:
                    reading, writing = os.pipe()
                    setattr(self, name, open(reading, encoding="utf-8", errors="replace"))  # noqa: SIM115
                    ends.append(writing)
                    files.append(writing)
                elif target is None or target == subprocess.DEVNULL:
                    files.append(null.fileno())
                else:
                    files.append(target if isinstance(target, int) else target.fileno())
            self._link = _connected(server or start())
            body = json.dumps(order).encode()
            socket.send_fds(self._link, [len(body).to_bytes(8, "big")], files)
            self._link.sendall(body)
            for end in ends:
                os.close(end)
        self._answers = self._link.makefile("rb")
        self.pid = int(self._answers.readline())

    def wait(self) -> int:
        """Wait for its end; the exit code, or less than 0 for a signal."""
        if self.returncode is None:
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._link.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None:
            self._link.setblocking(False)
            try:
                ended = self._link.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return None
            finally:
                self._link.setblocking(True)
            assert ended, "the process that starts commands is gone"
            self.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended, and its end not have been told yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """End it with SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        self.wait()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def run(
    *words: str,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    typed: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `typed` is its input."""
    with (
        tempfile.TemporaryFile("w+b") as out,
        tempfile.TemporaryFile("w+b") as err,
        tempfile.TemporaryFile("w+b") as into,
    ):
        into.write(typed.encode())
        into.seek(0)
        command = Command(words, cwd, env, stdout=out, stderr=err, stdin=into)
        code = command.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace").replace("\r\n", "\n"))
    return subprocess.CompletedProcess(command.args, code, *texts)


def worker() -> str:
    """Return a command line for `python -u -c CODE`, of a process with what tests import.

    It is forked from one that the first call starts, which is larger than that for commands.
    """
    return _asking(_start_larger())


def _asking(address: str) -> str:
    return shlex.join([sys.executable, "-IS", str(_HERE), "--ask", address])


@cache
def _start_larger() -> str:
    address = f"{start()}-larger"
    reading, writing = os.pipe()
    with open(reading) as stdin:
        process = Command([LARGER, address], stdout=2, stderr=2, stdin=stdin)

    def end() -> None:
        os.close(writing)  # which it takes for the end
        process.wait()

    atexit.register(end)
    return address


def put_on_path(folder: Path) -> None:
    """Write a program `orchestrion` for shells to find: it has its command carried out here."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "orchestrion"
    program.write_text(f'#!/bin/sh\nexec {_asking(start())} "$@"\n', encoding="utf-8")
    program.chmod(0o755)


def _connected(address: str) -> socket.socket:
    """Connect to the process that forks, as soon as it has imported everything."""
    until = time.monotonic() + _PATIENCE
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(address)
            return link
        except (FileNotFoundError, ConnectionRefusedError):
            link.close()
            assert time.monotonic() < until, "the process that starts commands has failed"
            time.sleep(0.05)


@cache
def start() -> str:
    """Return the address of the process that forks: a shared one, or one that is started here.

    It may still be importing.
    """
    if SHARED in os.environ:
        return os.environ[SHARED]
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    address = f"{folder.name}/socket"
    process = subprocess.Popen([sys.executable, "-P", str(_HERE), address], stdin=subprocess.PIPE)

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()  # which it takes for the end
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return address


# ---------------------------------------------------------------------------- the server


_COLD = {
    "orchestrion_a2a",
    "orchestrion_inspect",
    "orchestrion_langgraph",
    "orchestrion_local",
    "orchestrion_openai_agents",
    "orchestrion_pydantic_ai",
    "orchestrion_remote",
    "orchestrion_sandbox",
}
"""Packages not worth their import: commands seldom use them, and they take long or run inside."""


def _import_all() -> None:
    """Import every module of every member but those that are seldom used."""
    from importlib import import_module
    from pkgutil import walk_packages

    for source in (_HERE.parents[1] / "core/src", *_HERE.parents[1].glob("*/*/src")):
        for init in source.glob("*/__init__.py"):
            package = init.parent.name
            if package in _COLD:
                continue
            for module in walk_packages([str(source / package)], f"{package}."):
                if not module.name.endswith("__main__") and ".testing" not in module.name:
                    import_module(module.name)


def _import_libraries() -> None:
    from importlib import import_module

    for library in _libraries():
        with suppress(Exception):  # it need not be installed
            import_module(library)


def _libraries() -> list[str]:
    """Return what tests import at their top, but for our own."""
    named = re.compile(r'^(?:import |from |\w+ = pytest\.importorskip\(")([\w.]+)', re.M)
    texts = (file.read_text(encoding="utf-8") for file in _HERE.parent.rglob("test_*.py"))
    found = {name for text in texts for name in named.findall(text)}
    own = ("orchestrion", "tests", "docs", "dev", "__future__")
    return sorted(name for name in found if not name.startswith(own))


class _Order:
    """What a forked child is to do."""

    def __init__(self, body: bytes, files: Sequence[int]) -> None:
        order = json.loads(body)
        self.words: list[str] = order["words"]
        self.cwd: str = order["cwd"]
        self.env: dict[str, str] = order["env"]
        self.files = files

    def settle(self, path: Sequence[str]) -> None:
        """Take its folder, variables and files.

        Args:
            path: `sys.path` of a Python that was started without PYTHONPATH.
        """
        import importlib

        from orchestrion._store import faults

        os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(self.env)
        for number, file in enumerate(self.files):
            os.dup2(file, number)
            os.close(file)
        # One that is replaced, and goes, must not close the file of its successor.
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, name in ((1, "stdout"), (2, "stderr")):
            stream = open(number, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
            for place in (name, f"__{name}__"):
                setattr(sys, place, stream)
        beside = [part for part in self.env.get("PYTHONPATH", "").split(os.pathsep) if part]
        sys.path[:] = [self.cwd, *beside, *path]
        sys.path_importer_cache.clear()
        importlib.invalidate_caches()
        faults._active = faults._from_environment()  # which it read when it was imported

    def carry_out(self) -> None:
        """Run the command, as `python -m orchestrion` would have, or Python itself."""
        import runpy

        if self.words[:2] == ["-u", "-c"]:
            self._be_python()
        else:
            sys.argv[:] = ["orchestrion", *self.words]
            runpy.run_module("orchestrion", run_name="__main__", alter_sys=True)

    def _be_python(self) -> None:
        """Carry out `python -u -c CODE`, as which pytest-xdist starts a worker."""
        from _pytest.assertion.rewrite import AssertionRewritingHook

        # It would warn of each plugin's libraries that they were imported before it came.
        AssertionRewritingHook._warn_already_imported = lambda *_: None  # type: ignore[method-assign]
        sys.argv[:] = ["-c"]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(self.words[2], main.__dict__)


def _serve(address: str) -> _Order | None:
    """Start a child for each order; returns in a child, and at the end."""
    import selectors

    waking, woken = socket.socketpair()
    for end in (waking, woken):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(address)
        listener.listen(64)
        for stream in (sys.stdin, listener, waking):
            selector.register(stream, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if waking in ready:
                waking.recv(4096)
                _tell_of_the_dead(running)
            if sys.stdin in ready:  # which its starter has closed
                return None
            if listener in ready:
                link, _ = listener.accept()
                order = _received(link)
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for other in (waking, woken, link, *running.values()):
                        other.close()
                    return order
                running[pid] = link
                for file in order.files:
                    os.close(file)
                link.sendall(b"%d\n" % pid)


def _received(link: socket.socket) -> _Order:
    head, files, _, _ = socket.recv_fds(link, 8, 3)
    with link.makefile("rb") as stream:
        return _Order(stream.read(int.from_bytes(head, "big")), files)


def _tell_of_the_dead(running: dict[int, socket.socket]) -> None:
    """Send the exit codes of children that have ended to whoever waits for them."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            link = running.pop(pid)
            with link, suppress(OSError):
                link.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _main() -> None:
    plain, address = list(sys.path), sys.argv[1]
    gc.set_threshold(50_000, 20, 100)  # see tests/conftest.py
    _imported(_import_all)
    while order := _serve(address):
        order.settle(plain)
        if order.words[0] != LARGER:
            try:
                order.carry_out()
                _end(0)
            except SystemExit as end:
                _end(end.code)
        _imported(_import_libraries)
        address = order.words[1]


def _imported(work: Callable[[], None]) -> None:
    """Import what stays; its warnings are those of the tests that import it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()
    gc.freeze()


def _end(code: str | int | None) -> None:
    """End as Python does, but do not take apart all that was imported, which takes longest."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _ask(server: str, *words: str) -> int:
    command = Command(words, None, None, stdout=1, stderr=2, stdin=sys.stdin, server=server)

    def pass_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(command.pid, number)

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "--ask":
        sys.exit(_ask(*sys.argv[2:]))
    _main()
