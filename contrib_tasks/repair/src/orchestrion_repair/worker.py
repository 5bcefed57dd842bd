"""The judge: a process that has candidates run elsewhere and compares what they answer.

It reads jobs on its standard input and writes reports on its standard output, each a length and
JSON. Candidates run behind the wall that its argument names, or, with `fresh`, each in an
interpreter of its own without one, for systems that have no wall to offer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

from orchestrion_sandbox import Mode, SandboxError
from orchestrion_sandbox.inside.plain import decode, encode

from orchestrion_repair.bug import Case, same
from orchestrion_repair.channels import Channel, FreshInterpreters, Gone, Sandboxed, Starter
from orchestrion_repair.child import close_standard_files, run_child

__all__ = ["main", "read_message", "write_message"]

JSON = Any
MOST_USES = 5_000
"""Messages to one shared child before it is replaced, so that it cannot grow for ever."""
_LENGTH = struct.Struct("=Q")
# Behind a wall, a signal that ends a process is its exit code; elsewhere it is negative.
_TIMEOUT_CODES = {
    sign * getattr(signal, name)
    for name in ("SIGKILL", "SIGXCPU", "SIGPROF")
    if hasattr(signal, name)
    for sign in (1, -1)
}


# ---------------------------------------------------------------- trials


class Judge:
    """Runs trials: a program, its cases, and how far to go."""

    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        self._ids = 0
        self._warm: tuple[Mapping[str, Any], Channel] | None = None

    def report(self, trial: Mapping[str, Any], limits: Mapping[str, Any]) -> list[JSON]:
        """An outcome for every case that was run."""
        program = _Program(self, trial, limits)
        outcomes = []
        try:
            for data in trial["cases"]:
                outcome = program.outcome(Case.from_json(data))
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
            return bool(same(decode(reply["value"]), want))
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
        except Gone as gone:
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
        except Gone:
            # What the program gave must not decide who judges it: no other judge is asked.
            self._close_tester()
            return {"error": "BadReply", "lines": [], "passed": False, "apart": True}
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

    An exception that the candidate raised arrives under the candidate's name for it. A value that
    cannot be sent is the tester's own only if it came before anything of the candidate's.
    """
    if error == "NameError":
        return bool(told.get("error") != error)
    return error == "Refused" and not told


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
    if "got" in reply:
        out["got"], out["want"] = _short(reply["got"]), [_short(reply.get("want"))]
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
        close_standard_files()
        run_child(reader, writer)
    (wall,) = arguments
    starter: Starter = FreshInterpreters() if wall == "fresh" else Sandboxed(cast(Mode, wall))
    judge = Judge(starter)
    try:
        for job in _jobs(sys.stdin.buffer):
            reports = [judge.report(trial, job["limits"]) for trial in job["trials"]]
            write_message(sys.stdout.buffer, reports)
    except SandboxError as error:
        # No verdict on anybody: whoever waits for this job sees that its worker is gone.
        sys.exit(f"orchestrion-repair: {error}")
    finally:
        judge.close()


def _jobs(stream: BinaryIO) -> Iterator[JSON]:
    while (job := read_message(stream)) is not None:
        yield job


if __name__ == "__main__":
    main(sys.argv[1:])
