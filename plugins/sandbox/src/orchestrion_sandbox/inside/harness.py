"""What answers for a program in a conversation: one line of JSON a request, one a reply.

The harness shares its process with the program, so no reply is believed: the wanted value is never
sent in. What an honest harness does is to repeat the number of the request, which is random, and
to be there when it is told to end.

A payload's `role` says what answers: a "program" (the judged one) or "statements" (tests that are
code, which call the program in the other sandbox).
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Mapping
from typing import Any, NoReturn

from .crossing import ProgramSide, TestsSide, Watching
from .errors import raised
from .line import Line
from .plain import Refused

TEST, FILENAME = "<test>", "<candidate>"


def answer(payload: dict[str, Any], channel: int | None) -> NoReturn:
    """Load the program or tests; answer requests until told to end or the channel closes."""
    assert channel is not None
    line = Line(channel)
    tests = payload.get("role") == "statements"
    side = _Statements(payload, line) if tests else _Program(payload, line)
    while (request := line.receive()) is not None:
        ending = request.get("end")
        line.send({"end": True} if ending else side.answer(request))
        if ending:
            break
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


class _Program:
    """The judged program; loaded at the first request, so that a failure to load is a reply."""

    def __init__(self, payload: Mapping[str, Any], line: Line) -> None:
        self.source: str = payload["source"]
        self.codec = ProgramSide(line, self.answer) if payload.get("objects") else Watching()
        self.namespace: dict[str, Any] | None = None
        self.unloaded: dict[str, Any] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call what is asked for; whatever is raised is a reply too."""
        if self.namespace is None:
            self._load()
        if self.unloaded is not None:
            return self.unloaded
        try:
            reply = {"value": self._call(request)}
        except Refused as error:
            reply = {"error": "Refused", "text": str(error)}
        except Unloaded as error:
            reply = {"error": "Unloaded", "text": str(error), "unloaded": True}
        except BaseException as error:  # SystemExit too: leaving early is a failed case
            reply = raised(error)
        if self.codec.lies:
            reply["lies"] = True
        return reply

    def _load(self) -> None:
        sys.path.insert(0, os.getcwd())
        try:
            self.namespace = _load(self.source, {})
        except BaseException as error:
            self.unloaded = raised(error) | {"unloaded": True}

    def _call(self, request: dict[str, Any]) -> Any:
        assert self.namespace is not None
        codec, what = self.codec, request["call"]
        args, named = codec.decode(request["args"]), codec.decode(request["named"])
        if isinstance(what, int):
            assert isinstance(codec, ProgramSide)
            return codec.encode(codec.call(what, args, named))
        if what not in self.namespace:
            raise Unloaded(f"the program has no {what}")
        return codec.encode(self.namespace[what](*args, **named))


class Unloaded(BaseException):
    """The program cannot be called at all."""


class _Statements:
    """Tests that are code, in one namespace; the program's functions are called in its sandbox."""

    def __init__(self, payload: Mapping[str, Any], line: Line) -> None:
        self.source: str = payload["source"]
        self.side = TestsSide(line)
        self.functions = {name: self.side.function(name) for name in payload["relayed"]}
        self.namespace: dict[str, Any] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a statement."""
        reply: dict[str, Any] = {"value": None}
        try:
            if self.namespace is None:
                self.namespace = _load(self.source, self.functions)
                self.namespace.update(self.functions)
            self.side.unproven.clear()
            exec(compile(request["statement"], TEST, "exec"), self.namespace)
        except BaseException as error:
            reply = raised(error)
        return reply | {"unproven": sorted(self.side.unproven)}


def _load(source: str, more: dict[str, Any]) -> dict[str, Any]:
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    module.__dict__.update(more)
    exec(compile(source, FILENAME, "exec"), module.__dict__)
    return module.__dict__
