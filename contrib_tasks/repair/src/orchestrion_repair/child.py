"""The process that runs candidates.

The *worker* (`worker.py`) knows the wanted values and compares; each *child* is started behind a
wall (`channels.py`), gets a program and one input at a time over a socket of its own, and answers
with encoded values. Wanted values never enter it.

The sandbox is handed the source of this module: it may import nothing but the standard library,
what the sandbox has, and modules that are handed over with it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NoReturn

from orchestrion_sandbox.inside.plain import Refused, decode, encode

from orchestrion_repair.instrument import FUEL, LINE, instrument

__all__ = ["FILENAME", "PRELOAD", "answer", "close_standard_files", "run_child"]

FILENAME = "<candidate>"
RECURSION = 1000
PRELOAD = (
    "bisect collections copy dataclasses datetime decimal fractions functools heapq itertools "
    "math operator re statistics string typing"
)
"""Modules that programs often need: imported once, before the first child is started."""


def answer(payload: Mapping[str, Any], channel: int) -> NoReturn:
    """In a sandbox: answer what comes over its channel."""
    with socket.socket(fileno=channel) as connection:
        run_child(connection.makefile("rb"), connection.makefile("wb"))


def close_standard_files() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)


def run_child(reader: BinaryIO, writer: BinaryIO) -> NoReturn:
    """Answer requests until the other side closes."""
    time.sleep = lambda seconds: None  # nothing is won by waiting
    try:
        _Child(reader, writer).run()
    except BaseException:
        os._exit(70)
    os._exit(0)


class _Child:
    """Programs and their answers. Requests and replies are one JSON line each.

    A request with `program` brings `code`, `entry`, `prelude`, `limits`, `lines` and has no reply.
    Each other one has `id` and one of `call` (positional arguments) or `statement`; `fresh` asks
    for a new namespace. A `tester` has no code; calls of the entry point are relayed to the other
    side. The limits of the first program hold for the process.
    """

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.reader, self.writer = reader, writer
        self.covered: set[int] = set()
        self.namespace: dict[str, Any] = {}
        self.id: Any = None
        self.limited = False

    def run(self) -> None:
        error: dict[str, Any] | None = None
        for line in iter(self.reader.readline, b""):
            request = json.loads(line)
            if "program" in request:
                error = self._load(request["program"])
                continue
            self.id = request["id"]
            self.covered.clear()
            self._send(error or self._answer(request))

    def _load(self, program: dict[str, Any]) -> dict[str, Any] | None:
        self.entry, self.steps = program["entry"], program["limits"]["steps"]
        self.lines, self.tester = program["lines"], program["tester"]
        self.namespace = {}
        if not self.limited:
            limit_resources(program["limits"], alone=program["alone"])
            forbid_side_effects()
            self.limited = True
        if not program["alone"]:
            restart_clock(program["limits"])
        self.draws = "random" in program["code"] + program["prelude"]
        return self._compile(program["code"], program["prelude"])

    def _compile(self, code: str, prelude: str) -> dict[str, Any] | None:
        try:
            tree = instrument(ast.parse(code, FILENAME), self.lines)
            self.programs = [compile(tree, FILENAME, "exec")]
            if prelude:
                self.programs.append(compile(prelude, "<prelude>", "exec"))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return {"error": type(error).__name__, "line": getattr(error, "lineno", None)}
        return None

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request["fresh"]:
                self._start()
            # Fuel is per case, so that the order of cases changes nothing.
            self.namespace[FUEL] = _fuel(self.steps, self._abandon)
            if "statement" in request:
                return self._state(request["statement"])
            function = self.namespace[self.entry]
            result = function(*decode(request["call"]), **decode(request.get("named", _NO_NAMES)))
            return {"value": encode(result)}
        except Refused as error:
            return {"error": "Refused", "text": str(error)}
        except _Relayed as error:
            return {"error": error.name, "relayed": True}
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: leaving early is a failed test.
            name = "OutOfSteps" if isinstance(error, _OutOfSteps) else type(error).__name__
            return {"error": name, "line": _line_of(error), "text": _text(error)}

    def _state(self, source: str) -> dict[str, Any]:
        """Run a statement; of an assert that compares two values, tell them if they differ."""
        tree = ast.parse(source)
        match tree.body:
            case [ast.Assert(ast.Compare(left, [ast.Eq()], [right]))]:
                got, want = (self._value(part) for part in (left, right))
                if not (got == want):  # noqa: SIM201 - as the assert has it; `!=` may differ
                    return {"error": "AssertionError", **_shown(got, want)}
            case _:
                exec(compile(tree, "<test>", "exec"), self.namespace)
        return {"value": None}

    def _value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<test>", "eval"), self.namespace)  # noqa: S307

    def _start(self) -> None:
        self.namespace = {"__name__": "candidate", "__builtins__": __builtins__}
        self.namespace[FUEL] = _fuel(self.steps, self._abandon)
        self.namespace[LINE] = self.covered.add
        if self.tester:
            self.namespace[self.entry] = self._relay
        sys.setrecursionlimit(RECURSION)
        if self.draws:  # without a seed of its own it draws the same everywhere
            random.seed(0)
        for program in self.programs:
            exec(program, self.namespace)

    def _relay(self, *args: Any, **named: Any) -> Any:
        self._send({"relay": encode(list(args)), "named": encode(named)})
        reply = json.loads(self.reader.readline())
        if "value" in reply:
            return decode(reply["value"])
        raise _exception(reply["error"])

    def _send(self, reply: dict[str, Any]) -> None:
        if self.lines:
            reply["lines"] = sorted(self.covered)
        try:
            text = json.dumps({"id": self.id, **reply})
        except (ValueError, TypeError, RecursionError):  # e.g. an int of 5,000 digits
            text = json.dumps({"id": self.id, "error": "Refused", "text": "no JSON form"})
        self.writer.write(text.encode() + b"\n")
        self.writer.flush()

    def _abandon(self) -> NoReturn:
        self._send({"error": "OutOfSteps", "gone": True})
        os._exit(71)


def _shown(got: Any, want: Any) -> dict[str, Any]:
    try:
        return {"got": encode(got), "want": encode(want)}
    except Exception:
        return {}


class _OutOfSteps(BaseException):
    """The program did not end."""


class _Relayed(Exception):
    """The program raised an exception that has no built-in name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _exception(name: str) -> Exception:
    """What the program raised: a built-in exception by its name, or a stand-in."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # some need other arguments
            return kind("raised by the program")
    return _Relayed(name)


_NO_NAMES: Any = encode({})


def _fuel(steps: int, abandon: Callable[[], NoReturn]) -> Callable[[], bool]:
    """A function that is true `steps` times, then raises; it costs about 30 ns.

    A program that catches even that and goes on is abandoned with its process.
    """
    last = iter([True] * 50)

    def end() -> bool:
        if next(last, False):
            raise _OutOfSteps("no end in sight")
        abandon()

    return itertools.chain(itertools.repeat(True, steps), iter(end, None)).__next__


def _line_of(error: BaseException) -> int | None:
    """The innermost line of the candidate that was running when `error` was raised."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == FILENAME:
            found = line
    return found


def _text(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except BaseException:
        return ""


# ---------------------------------------------------------------- limits


def limit_resources(limits: Mapping[str, Any], alone: bool) -> None:
    """Address space, no files written, no processes; CPU seconds if the process has one program.

    Where the system has no such limits (Windows), nothing: the worker's wall clock is left.
    """
    try:
        import resource
    except ImportError:
        return
    wanted = {
        "RLIMIT_AS": int(limits["memory_mb"]) << 20,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
        "RLIMIT_NPROC": 0,
    }
    if alone:
        wanted["RLIMIT_CPU"] = max(1, int(limits["cpu_seconds"]))
    for name, value in wanted.items():
        # macOS refuses some, for instance an address space below what is mapped already.
        with contextlib.suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), (value, value))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails with an error instead


def restart_clock(limits: Mapping[str, Any]) -> None:
    """CPU seconds of the next program in a process that runs several; its end is a signal."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, float(limits["cpu_seconds"]))


_HARMLESS = (
    "import", "compile", "exec", "object.__getattr__", "object.__setattr__", "object.__delattr__",
    "builtins.id", "marshal.loads", "code.__new__", "function.__new__", "sys._getframe",
    "array.__new__", "sys.excepthook", "sys.unraisablehook", "marshal.load", "marshal.dumps",
)  # fmt: skip


def forbid_side_effects() -> None:
    """Refuse files outside the libraries, processes, signals, sockets, sleeping.

    An audit hook is a guard against accidents and simple tricks, not a sandbox; the verdict does
    not rest on it, because wanted values are never in this process.
    """
    harmless = frozenset(_HARMLESS)
    library = os.path.join(os.path.dirname(os.__file__), "")
    write = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def own(path: object) -> bool:
        # Packages beside the library are not part of it: they may hold the tests.
        barred = ("..", "site-packages", "dist-packages")
        return (
            isinstance(path, str)
            and path.startswith(library)
            and not any(name in path for name in barred)
        )

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in harmless:
            return
        reading = event == "open" and args[1] in (None, "r", "rb") and not (args[2] or 0) & write
        if reading and own(args[0]):
            return
        if event in ("os.listdir", "os.scandir") and own(args[0]):
            return
        raise PermissionError(f"a candidate may not do this: {event}")

    sys.addaudithook(hook)
