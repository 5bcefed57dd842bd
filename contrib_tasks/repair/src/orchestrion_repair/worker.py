"""The judge: a process that has candidates run elsewhere and compares what they answer.

It reads jobs on its standard input and writes reports on its standard output, each a length and
JSON. Where the system can fork, a server forked before the first job starts the candidates
(about a millisecond each); elsewhere each candidate is a fresh interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from orchestrion_repair.child import NUMBER, decode, encode, run_child, serve

__all__ = ["main", "read_message", "write_message"]

JSON = Any
MOST_USES = 5_000
"""Messages to one shared child before it is replaced, so that it cannot grow for ever."""
_LENGTH = struct.Struct("=Q")
_TIMEOUT_CODES = {-getattr(signal, name) for name in ("SIGKILL", "SIGXCPU", "SIGPROF") if hasattr(signal, name)}


class _Gone(Exception):
    """The child ended, fell silent or answered what it was not asked."""


class Channel:
    """A conversation with one child: a JSON line each way, capped in size and time."""

    def __init__(
        self,
        reader: BinaryIO,
        writer: BinaryIO,
        finish: Callable[[], int],
        kill: Callable[[], None],
        reply_bytes: int,
    ) -> None:
        self._reader, self._writer, self._finish, self._kill = reader, writer, finish, kill
        self._cap = reply_bytes
        self.uses = 0

    def send(self, *requests: JSON) -> None:
        """Requests, one a line; raises `_Gone` if nobody listens."""
        self.uses += 1
        try:
            self._writer.write(b"".join(json.dumps(r).encode() + b"\n" for r in requests))
            self._writer.flush()
        except OSError as error:
            raise _Gone("closed") from error

    def receive(self) -> JSON:
        """One reply. Anything that is not a JSON object in one line within the limits: `_Gone`."""
        try:
            line = self._reader.readline(self._cap + 1)
            reply = json.loads(line) if line.endswith(b"\n") else None
        except TimeoutError as error:
            self._kill()
            raise _Gone("OutOfTime") from error
        except Exception as error:  # hostile bytes may raise anything; all of it is a failure
            raise _Gone("BadReply") from error
        if isinstance(reply, dict):
            return reply
        raise _Gone("closed" if not line else "BadReply")

    def close(self) -> int:
        """End the conversation; the child's exit code, negative for a signal."""
        for file in (self._writer, self._reader):
            with contextlib.suppress(OSError):
                file.close()
        return self._finish()


class ForkServer:
    """Starts children by forking a small process that has seen no job."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._control, other = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._control.close()
            serve(other)
        other.close()

    def open(self, limits: Mapping[str, Any]) -> Channel:
        """A conversation with a new child."""
        mine, theirs = socket.socketpair()
        try:
            pid = self._fork(theirs)
        except (OSError, EOFError):  # a candidate killed the server: start another, once
            self._restart()
            pid = self._fork(theirs)
        theirs.close()
        mine.settimeout(limits["wall_seconds"])

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        def finish() -> int:
            mine.close()
            return self._wait(pid, limits["wall_seconds"], kill)

        reader, writer = mine.makefile("rb"), mine.makefile("wb")
        return Channel(reader, writer, finish, kill, limits["reply_bytes"])

    def _fork(self, theirs: socket.socket) -> int:
        socket.send_fds(self._control, [NUMBER.pack(0)], [theirs.fileno()])
        return self._number()

    def _wait(self, pid: int, seconds: float, kill: Callable[[], None]) -> int:
        """The child's exit code; a child that does not end once its socket is closed is killed."""
        try:
            self._control.settimeout(seconds)
            self._control.sendall(NUMBER.pack(pid))
            try:
                return self._number()
            except TimeoutError:
                kill()
                return self._number()
            finally:
                self._control.settimeout(None)
        except (OSError, EOFError):
            self._restart()
            return -signal.SIGKILL

    def _number(self) -> int:
        data = self._control.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(data) < NUMBER.size:
            raise EOFError
        return int(NUMBER.unpack(data)[0])

    def _restart(self) -> None:
        """A server that was started late may have seen a job: exec, do not fork."""
        self.close()
        self._control, other = socket.socketpair()
        code = (
            "import socket, sys; from orchestrion_repair.child import serve; "
            "serve(socket.socket(fileno=int(sys.argv[1])))"
        )
        self._pid = subprocess.Popen(
            [sys.executable, "-c", code, str(other.fileno())],
            pass_fds=[other.fileno()],
            stdin=subprocess.DEVNULL,
        ).pid
        other.close()

    def close(self) -> None:
        """End the server."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class FreshInterpreters:
    """Starts each child as an interpreter of its own: for systems that cannot fork."""

    def open(self, limits: Mapping[str, Any]) -> Channel:
        """A conversation with a new child; the wall clock ends it."""
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrion_repair.worker", "child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        clock = threading.Timer(limits["wall_seconds"], process.kill)
        clock.start()

        def finish() -> int:
            code = process.wait()
            clock.cancel()
            return code

        assert process.stdin is not None
        assert process.stdout is not None
        return Channel(process.stdout, process.stdin, finish, process.kill, limits["reply_bytes"])

    def close(self) -> None:
        """Nothing is kept."""


# ---------------------------------------------------------------- trials


class Judge:
    """Runs trials: a program, its cases, and how far to go."""

    def __init__(self, starter: ForkServer | FreshInterpreters) -> None:
        # Not imported before the server was forked, to keep what it forks small.
        from orchestrion_repair.bug import Case, same

        self._starter, self._same, self._case = starter, same, Case.from_json
        self._ids = 0
        self._warm: tuple[Mapping[str, Any], Channel] | None = None

    def report(self, trial: Mapping[str, Any], limits: Mapping[str, Any]) -> list[JSON]:
        """An outcome for every case that was run."""
        program = _Program(self, trial, limits)
        outcomes = []
        try:
            for data in trial["cases"]:
                outcome = program.outcome(self._case(data))
                outcomes.append(outcome)
                if trial["stop"] and not outcome["passed"]:
                    break
        finally:
            program.close()
        return outcomes

    def next_id(self) -> str:
        """An id a candidate cannot know before it is asked."""
        self._ids += 1
        return f"{self._ids}-{os.urandom(6).hex()}"

    def open(self, limits: Mapping[str, Any], alone: bool) -> Channel:
        """A conversation with a child: a new one, or if not `alone` the last that was kept."""
        warm, self._warm = self._warm, None if not alone else self._warm
        if warm is not None and not alone:
            if warm[0] == limits and warm[1].uses < MOST_USES:
                return warm[1]
            warm[1].close()
        return self._starter.open(limits)

    def keep(self, limits: Mapping[str, Any], channel: Channel) -> None:
        """Offer a child that is well for the next program."""
        self._warm = (limits, channel)

    def close(self) -> None:
        """End the child that was kept, and what starts them."""
        if self._warm is not None:
            self._warm[1].close()
        self._starter.close()

    def passes(self, reply: JSON, want: JSON) -> bool:
        """Whether the reply holds the wanted value; whatever it raises while looking is a no."""
        try:
            return bool(self._same(decode(reply["value"]), want))
        except Exception:
            return False


class _Program:
    """One trial in progress: its child, and the tester of its statements."""

    def __init__(self, judge: Judge, trial: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        self._judge, self._trial, self._limits = judge, trial, limits
        self._alone = trial["isolated"] or not may_share(trial["code"] + trial["prelude"])
        self._child: Channel | None = None
        self._tester: Channel | None = None

    def outcome(self, case: Any) -> JSON:
        """What one case gave."""
        if not case.statement:
            reply = self._ask({"call": encode(list(case.args))}, fresh=True)
            return {**_told(reply), "passed": self._judge.passes(reply, case.want), "apart": True}
        if self._trial["split"]:
            with contextlib.suppress(_CannotSplit):
                return self._split(case.statement)
        reply = self._ask({"statement": case.statement}, fresh=True)
        return {**_told(reply), "passed": "value" in reply, "apart": False}

    def _ask(self, request: JSON, fresh: bool) -> JSON:
        """One request to the candidate; a child that is gone gives an error, by name."""
        request_id = self._judge.next_id()
        message = {"id": request_id, "fresh": fresh, **request}
        try:
            if self._child is None:
                self._child = self._judge.open(self._limits, self._alone)
                self._child.send(self._program(self._trial["code"]), message)
            else:
                self._child.send(message)
            reply = self._child.receive()
        except _Gone as gone:
            return {"error": self._end(str(gone))}
        if reply.get("id") != request_id:
            self._end("")
            return {"error": "BadReply"}
        if reply.get("gone") or reply.get("error") == "MemoryError":
            self._end("")  # what it left behind could change what comes next
        return reply

    def _program(self, code: str, tester: bool = False) -> JSON:
        program = {"code": code, "prelude": self._trial["prelude"], "entry": self._trial["entry"]}
        lines = self._trial["lines"] and not tester
        more = {"limits": self._limits, "lines": lines, "tester": tester, "alone": self._alone}
        return {"program": {**program, **more}}

    def _end(self, reason: str) -> str:
        """Close the candidate's child; the name of what ended it."""
        child, self._child = self._child, None
        code = child.close() if child is not None else 0
        if reason not in ("closed", ""):
            return reason
        return "OutOfTime" if code in _TIMEOUT_CODES else "Crash"

    def _split(self, statement: str) -> JSON:
        """The statement in a process without the candidate; its calls are relayed."""
        try:
            told, reply = self._relay(statement)
        except _Gone as gone:
            self._close_tester()
            raise _CannotSplit from gone
        if _is_testers_own(reply.get("error"), told):
            raise _CannotSplit
        outcome = _told(told if "error" in told else reply)
        lines = _told(told)["lines"]
        return {**outcome, "lines": lines, "passed": "value" in reply, "apart": True}

    def _relay(self, statement: str) -> tuple[JSON, JSON]:
        """The candidate's last reply, and the tester's."""
        message = {"id": self._judge.next_id(), "fresh": True, "statement": statement}
        if self._tester is None:
            self._tester = self._judge.open(self._limits, alone=True)
            self._tester.send(self._program("", tester=True))
        self._tester.send(message)
        told: JSON = {}
        while "relay" in (reply := self._tester.receive()):
            request = {"call": reply["relay"], "named": reply["named"]}
            told = self._ask(request, fresh=not told)
            self._tester.send(told if "value" in told else {"error": told["error"]})
        return told, reply

    def _close_tester(self) -> None:
        tester, self._tester = self._tester, None
        if tester is not None:
            tester.close()

    def close(self) -> None:
        """End the tester, and the candidate's process or leave it to the next program."""
        self._close_tester()
        if self._child is not None and not self._alone:
            self._judge.keep(self._limits, self._child)
            self._child = None
        elif self._child is not None:
            self._end("")


_SHARED_MODULES = frozenset(
    "__future__ bisect collections copy dataclasses datetime enum fractions functools heapq "
    "itertools json math operator re statistics string typing".split()
)
_IMPORT = re.compile(r"^\s*(?:from\s+(\w+)|import\s+([\w, ]+))", re.MULTILINE)
_STATE = re.compile(r"\b(?:globals|setattr|delattr|__\w+)\b")


def may_share(code: str) -> bool:
    """Whether a program can leave nothing behind for the next one in its process.

    True for those that import only modules without state and name nothing that could change
    them. Others have a process each, which costs milliseconds and is never wrong.
    """
    imported = {
        name.split()[0]
        for one, many in _IMPORT.findall(code)
        for name in (one or many).split(",")
        if name.strip()
    }
    return imported <= _SHARED_MODULES and not _STATE.search(code.replace("__init__", ""))


class _CannotSplit(Exception):
    """The statement needs more of the program than calls of its entry point."""


def _is_testers_own(error: JSON, told: JSON) -> bool:
    """Whether the tester failed for a reason of its own: a missing name, a value it cannot send.

    An exception that the candidate raised arrives under the candidate's name for it.
    """
    return error in ("NameError", "Refused") and told.get("error") != error


def _told(reply: JSON) -> dict[str, JSON]:
    """What a reply tells about the run, in bounds: it may be hostile."""
    lines = reply.get("lines")
    out: dict[str, JSON] = {"lines": _numbers(lines) if isinstance(lines, list) else []}
    if "value" in reply:
        return {**out, "got": _short(reply["value"])}
    error, text, line = reply.get("error"), reply.get("text", ""), reply.get("line")
    out["error"] = error if isinstance(error, str) and re.fullmatch(r"\w{1,60}", error) else "Error"
    out["text"] = text[:200].encode(errors="replace").decode() if isinstance(text, str) else ""
    out["line"] = line if isinstance(line, int) else None
    return out


def _numbers(items: list[JSON]) -> list[int]:
    return [item for item in items[:10_000] if isinstance(item, int)]


def _short(value: JSON) -> JSON:
    """A value for display and features; "..." if it is long, or cannot stand in a record."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()  # fails for half of a surrogate pair
        long = len(text) > 2_000 or re.search(r"\d{19}", text)
    except (ValueError, RecursionError):
        return "..."
    return "..." if long else value


# ---------------------------------------------------------------- the process


def read_message(stream: BinaryIO) -> JSON | None:
    """One message, or None at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return json.loads(stream.read(_LENGTH.unpack(head)[0]))


def write_message(stream: BinaryIO, message: JSON) -> None:
    """One message."""
    body = json.dumps(message).encode()
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def main(arguments: Sequence[str]) -> None:
    """Serve jobs until standard input ends; with `child`, be one candidate's interpreter."""
    if "child" in arguments:
        reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        from orchestrion_repair.child import _close_standard_files

        _close_standard_files()
        run_child(reader, writer)
    can_fork = hasattr(os, "fork") and hasattr(socket, "send_fds") and "fresh" not in arguments
    starter: ForkServer | FreshInterpreters = ForkServer() if can_fork else FreshInterpreters()
    judge = Judge(starter)
    try:
        for job in _jobs(sys.stdin.buffer):
            reports = [judge.report(trial, job["limits"]) for trial in job["trials"]]
            write_message(sys.stdout.buffer, reports)
    finally:
        judge.close()


def _jobs(stream: BinaryIO) -> Iterator[JSON]:
    while (job := read_message(stream)) is not None:
        yield job


if __name__ == "__main__":
    main(sys.argv[1:])
