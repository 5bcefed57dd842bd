"""Runs a program inside the sandbox, bounded by a number of steps.

The sandbox is given the source of this module: it may import only the standard library and what the
sandbox has. Two kinds of processes use it. A verdict makes a `Subject` the program that the
sandbox's judge calls. A search (`answer`) runs thousands of programs in one process, one after the
other, and reports what each test gave and which lines it ran. Wanted values never enter either.

A program is rewritten so that `FUEL` is called at the start of every loop body and function body.
When it runs out the run is over: that bounds a program that never ends by a number of steps, which
no clock, load or machine can change. `LINE` is called before every statement with its first line.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import itertools
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from orchestrion_sandbox.inside.plain import Refused, decode, encode

from orchestrion_repair.probes import AFTER, BEFORE, Probes, TooManyLooks

__all__ = ["FUEL", "LINE", "PRELOAD", "Subject", "answer", "instrument", "is_text", "plain"]

FILENAME = "<candidate>"
FUEL, LINE = "__fuel__", "__line__"
FRAMES = 990
"""How many frames a program may have, whatever called it."""
MOST_ITEMS = 100_000
"""An iterator's result is cut here; no case wants that much."""
PRELOAD = tuple(
    "bisect collections copy dataclasses datetime decimal fractions functools heapq itertools "
    "math operator re statistics string typing".split()
)
"""Modules that programs often need: imported once, before the first process is started."""
_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class OutOfSteps(BaseException):
    """The program did not end within its number of steps."""


class Subject:
    """A program that is started anew for each test.

    Args:
        code: the program.
        entry_point: the function that is called.
        prelude: source that is run after the program, in its namespace.
        steps: loop rounds and function calls of one call.
        lines: whether to note the lines that run, in `covered`.
        abandon: ends the process of a program that goes on although it is out of steps.
        sites: what the probes in the program look at, see `probes.py`.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the source cannot be compiled.
    """

    def __init__(
        self,
        code: str,
        entry_point: str,
        prelude: str,
        steps: int,
        lines: bool = False,
        abandon: Callable[[], NoReturn] = lambda: os._exit(71),
        sites: Sequence[Any] = (),
    ) -> None:
        self.code, self.lines = code, lines
        tree = instrument(ast.parse(code, FILENAME), lines)
        self.programs = [compile(tree, FILENAME, "exec")]
        if prelude:
            self.programs.append(compile(prelude, "<prelude>", "exec"))
        self.entry_point, self.steps, self.abandon = entry_point, steps, abandon
        self.covered: set[int] = set()
        self.probes = Probes(sites)
        self.namespace: dict[str, Any] = {}

    def start(self) -> None:
        """Run the program in a new namespace. It draws the same random numbers each time."""
        time.sleep = lambda seconds: None  # nothing is won by waiting
        sys.stdout = sys.stderr = _Sink()
        self.namespace = {"__name__": "candidate", "__builtins__": __builtins__}
        self.namespace[LINE] = self.covered.add
        self.namespace[BEFORE], self.namespace[AFTER] = self.probes.before, self.probes.after
        random.seed(0)
        self._refuel()
        for program in self.programs:
            exec(program, self.namespace)

    def call(self, *args: Any, **named: Any) -> Any:
        """Call the entry point of the program as it was started last."""
        if not self.namespace:
            self.start()
        self._refuel()
        return self.namespace[self.entry_point](*args, **named)

    def call_anew(self, *args: Any) -> Any:
        """Start the program and call it; the result as JSON would hold it."""
        self.start()
        return plain(decode(encode(self.call(*args))))

    def execute_anew(self, statement: str) -> dict[str, Any]:
        """Start the program and run a statement in its namespace.

        Of an assert that fails and compares two values, these are returned as `got` and `want`;
        otherwise nothing.
        """
        self.start()
        self._refuel()
        tree = ast.parse(statement)
        match tree.body:
            case [ast.Assert(ast.Compare(left, [ast.Eq()], [right]))]:
                got, want = (self._value(part) for part in (left, right))
                if got == want:  # as the assert has it; `!=` may differ
                    return {}
                try:
                    return {"got": encode(got), "want": encode(want)}
                except Exception:
                    return {"got": "...", "want": "..."}
        exec(compile(tree, "<test>", "exec"), self.namespace)
        return {}

    def passes_anew(self, statement: str) -> bool:
        """Start the program and return whether a statement finds no mistake."""
        return not self.execute_anew(statement)

    def _value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<test>", "eval"), self.namespace)  # noqa: S307

    def without_probes(self) -> Subject:
        """Return the same program, in which nothing is looked at."""
        tree = _WithoutProbes().visit(ast.parse(self.code, FILENAME))
        plain = copy.copy(self)
        program = compile(instrument(tree, self.lines), FILENAME, "exec")
        plain.programs = [program, *self.programs[1:]]
        plain.probes = Probes(())
        return plain

    def _refuel(self) -> None:
        """Count steps for each call alone, so that the order of tests changes nothing."""
        self.namespace[FUEL] = _fuel(self.steps, self.abandon)
        depth = 0
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            depth, frame = depth + 1, frame.f_back
        sys.setrecursionlimit(depth + FRAMES)


def _fuel(steps: int, abandon: Callable[[], NoReturn]) -> Callable[[], bool]:
    """Return a function that is true `steps` times, then raises; it costs about 30 ns.

    A program that catches even that 50 times and goes on is abandoned with its process.
    """
    last = iter([True] * 50)

    def end() -> bool:
        if next(last, False):
            raise OutOfSteps("no end in sight")
        abandon()

    return itertools.chain(itertools.repeat(True, steps), iter(end, None)).__next__


class _WithoutProbes(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name(name), [_, _, own]) if name == AFTER:
                return own
        return node


class _Sink(io.TextIOBase):
    """Swallows what programs print."""

    def write(self, text: str) -> int:
        return len(text)


# ---------------------------------------------------------------- search


def answer(payload: Mapping[str, Any], channel: int) -> NoReturn:
    """Run programs and their tests until the other side closes; one line of JSON each way.

    A request has `id`, and `call` (encoded arguments) or `statement`. With `program` it also brings
    the next program: `code`, `entry_point`, `prelude`, `steps`, `lines` and `cpu_seconds`, or None
    where the sandbox limits these already. A reply has the `id`, `lines` if they were wanted, and
    `value` or `error`; `gone` says that the process ends with it.
    """
    with contextlib.suppress(BaseException), socket.socket(fileno=channel) as connection:
        search = _Search(connection)
        for line in connection.makefile("rb"):
            search.answer(json.loads(line))
    os._exit(0)


class _Search:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.id, self.lines = 0, False
        self.cpu_seconds: float | None = None
        self.subject: Subject | None = None
        self.unfit: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> None:
        self.id = request["id"]
        if "program" in request:
            self._load(**request["program"])
        elif self.cpu_seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, self.cpu_seconds)
        if self.subject is None:
            self._send(self.unfit)
            return
        self.subject.probes.clear()
        reply = self._run(self.subject, request)
        if not self.subject.probes.too_many:
            self._send(reply)
            return
        probed, self.subject = self.subject, self.subject.without_probes()
        self._send(self._run(self.subject, request))
        self.subject = probed

    def _load(self, cpu_seconds: float | None, lines: bool, **program: Any) -> None:
        self.subject, self.lines, self.cpu_seconds = None, lines, cpu_seconds
        if cpu_seconds is not None:  # its end is a signal
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        try:
            self.subject = Subject(**program, lines=lines, abandon=self._abandon)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.unfit = {"error": type(error).__name__, "line": getattr(error, "lineno", None)}

    def _run(self, subject: Subject, request: dict[str, Any]) -> dict[str, Any]:
        subject.covered.clear()
        try:
            if "statement" in request:
                differing = subject.execute_anew(request["statement"])
                return {"error": "AssertionError", **differing} if differing else {"value": None}
            subject.start()
            return {"value": encode(subject.call(*decode(request["call"])))}
        except Refused as error:
            return {"error": "Refused", "text": str(error)}
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: leaving early is a failed test.
            name = type(error).__name__
            return {"error": name, "line": _line_of(error), "text": _text(error)}

    def _send(self, reply: dict[str, Any]) -> None:
        if self.lines and self.subject is not None:
            same = self.subject.probes.same(reply.get("error", ""))
            reply = {**reply, "lines": sorted(self.subject.covered), "same": same}
        try:
            text = json.dumps({"id": self.id, **reply})
        except (ValueError, TypeError, RecursionError):  # e.g. an int of 5,000 digits
            text = json.dumps({"id": self.id, "error": "Refused", "text": "no JSON form"})
        self.connection.sendall(text.encode() + b"\n")

    def _abandon(self) -> NoReturn:
        caught = self.subject is not None and self.subject.probes.too_many
        self._send({"error": TooManyLooks.__name__ if caught else "OutOfSteps", "gone": True})
        os._exit(71)


def _line_of(error: BaseException) -> int | None:
    """Return the innermost line of the program that was running when `error` was raised."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == FILENAME]
    return lines[-1] if lines else None


def _text(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except BaseException:
        return ""


# ---------------------------------------------------------------- results as JSON


def plain(value: Any) -> Any:
    """Return a result as JSON would hold it.

    Tuples, iterators, ranges and views become lists, sets sorted lists, keys strings. What JSON
    has no form for stays as it is, and is then equal to no wanted value.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else repr(k): plain(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        items = [plain(item) for item in value]
        try:
            return sorted(items)
        except TypeError:  # mixed types: any order will do, as long as it is always the same
            return sorted(items, key=repr)
    if isinstance(value, Iterable) and not isinstance(value, type):
        return [plain(item) for item in itertools.islice(value, MOST_ITEMS)]
    return value


# ---------------------------------------------------------------- counting and following


def instrument(tree: ast.Module, lines: bool = False) -> ast.Module:
    """Return `tree`, changed: it calls `FUEL`, and `LINE` if `lines`, by its lines as written."""
    _instrument_block(tree.body, lines)
    return tree


def _instrument_block(block: list[ast.stmt], lines: bool) -> None:
    for node in block:
        for name in ("body", "orelse", "finalbody"):
            _instrument_block(getattr(node, name, []), lines)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            _instrument_block(part.body, lines)
        # After the lines of the inner blocks, so that no line call stands for fuel.
        if isinstance(node, _LOOPS):
            node.body.insert(0, _call(FUEL, node))
        elif isinstance(node, _FUNCTIONS):
            node.body.insert(int(is_text(node.body[0])), _call(FUEL, node))
    if lines:
        block[:] = [new for old in block for new in _with_line(old)]


def _with_line(node: ast.stmt) -> tuple[ast.stmt, ...]:
    if is_text(node) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
        return (node,)
    return _call(LINE, node, node.lineno), node


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is documentation."""
    match node:
        case ast.Expr(ast.Constant(str())):
            return True
    return False


def _call(name: str, where: ast.stmt, *arguments: int) -> ast.Expr:
    call = ast.Call(ast.Name(name, ast.Load()), [ast.Constant(value) for value in arguments], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), where))
