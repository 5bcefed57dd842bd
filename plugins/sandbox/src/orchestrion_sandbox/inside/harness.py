"""What answers for a program in a conversation: one line of JSON a request, one a reply.

The harness shares the process with the program, so nothing it says is believed: what was wanted
was never sent in. What it does for honesty is to say which request it answers (the number is
random), and to be there when it is told to end.

A payload's `role` says what it is: a "program" (the judged one), "statements" (tests that are
code) or "pytest" (tests that are files); the latter two call the program on the other side.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Mapping
from typing import Any, NoReturn

from .errors import FILENAME, raised
from .line import Line
from .objects import Objects, Watching
from .plain import Refused
from .standins import Link

__all__ = ["answer"]

TEST = "<test>"


def answer(payload: dict[str, Any], channel: int | None) -> NoReturn:
    """Load what is to be asked and answer, until told to end or until nobody asks any more."""
    assert channel is not None
    line = Line(channel)
    role = payload.get("role", "program")
    side: Any
    if role == "program":
        side = _Program(payload, line)
    elif role == "statements":
        side = _Statements(payload, line)
    else:
        from .suite import Suite

        side = Suite(payload, line)
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
    """The judged program; loaded at the first request, so that a failure is an answer."""

    def __init__(self, payload: Mapping[str, Any], line: Line) -> None:
        self.source: str = payload["source"]
        self.codec = Watching()
        if payload.get("objects"):
            self.codec = Objects(line, payload["first"], self.answer)
        self.namespace: dict[str, Any] | None = None
        self.unloaded: dict[str, Any] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; whatever is raised is an answer too."""
        if self.namespace is None:
            self._load()
        if self.unloaded is not None:
            return self.unloaded
        try:
            reply = {"value": self._done(request)}
        except Refused as error:
            reply = {"error": "Refused", "text": str(error)}
        except Unloaded as error:
            reply = {"error": "Unloaded", "text": str(error), "unloaded": True}
        except BaseException as error:
            # SystemExit and KeyboardInterrupt too: leaving early is a failed case.
            reply = raised(error) | self.codec.more(error)
        if self.codec.lies:
            reply["lies"] = True
        return reply

    def _load(self) -> None:
        sys.path.insert(0, os.getcwd())
        try:
            self.namespace = _load(self.source, {})
        except BaseException as error:
            self.unloaded = raised(error) | {"unloaded": True}

    def _done(self, request: dict[str, Any]) -> Any:
        assert self.namespace is not None
        codec = self.codec
        if "module" in request:
            try:
                module = importlib.import_module(request["module"])
            except BaseException as error:
                raise Unloaded(f"{type(error).__name__}: {error}") from error
            if request["get"] == "__all__":
                public = [name for name in vars(module) if not name.startswith("_")]
                return codec.encode(getattr(module, "__all__", public))
            return codec.name(getattr(module, request["get"]))
        args = codec.decode(request["args"])
        named = codec.decode(request["named"])
        if "on" in request:
            return codec.on(request["on"], request["name"], args, named)
        name = request["call"]
        if name not in self.namespace:
            raise Unloaded(f"the program has no {name}")
        return codec.encode(self.namespace[name](*args, **named))


class Unloaded(BaseException):
    """The program cannot be asked at all."""


class _Statements:
    """Tests that are code, in one namespace; names of the program are stand-ins."""

    def __init__(self, payload: Mapping[str, Any], line: Line) -> None:
        self.source: str = payload["source"]
        link = Link(line)
        self.link = link
        self.elsewhere = {name: link.function(name) for name in payload["relayed"]}
        self.namespace: dict[str, Any] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a statement."""
        try:
            if self.namespace is None:
                self.namespace = _load(self.source, self.elsewhere)
                self.namespace.update(self.elsewhere)
            self.link.unproven.clear()
            exec(compile(request["statement"], TEST, "exec"), self.namespace)
        except BaseException as error:
            return raised(error) | {"unproven": sorted(self.link.unproven)}
        return {"value": None, "unproven": sorted(self.link.unproven)}


def _load(source: str, more: dict[str, Any]) -> dict[str, Any]:
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    module.__dict__.update(more)
    exec(compile(source, FILENAME, "exec"), module.__dict__)
    return module.__dict__
