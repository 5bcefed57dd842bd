"""Requests to a judged program and its replies: untrusted bytes, whatever they look like."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from orchestrion_sandbox.compare import Outside
from orchestrion_sandbox.inside.plain import Malformed, crowded
from orchestrion_sandbox.interface import ConversationEnded, Result
from orchestrion_sandbox.supervising import SupervisedRun
from orchestrion_sandbox.verdict import CaseOutcome

Reply = Mapping[str, Any]
Relay = Callable[[Reply], Awaitable[Reply]]

_T = TypeVar("_T")

MAX_TEXT = 200
_LARGE = 1 << 14
_MAX_KEYS = 32  # of one object; `encode` makes none with more than two, a reply has a few
_MAX_DIGITS = 1300  # `encode` writes longer numbers in another way
_END_SECONDS = 2.0
_ERRORS = {
    "timeout": "OutOfTime",
    "cpu": "OutOfTime",
    "memory": "OutOfMemory",
    "flood": "TooMuchOutput",
    "crashed": "Crashed",
}


class Forged(Exception):
    """The program sent something that can only be meant to deceive the judge."""


class Dialogue:
    """Requests to one run, under numbers that the program cannot guess."""

    def __init__(self, run: SupervisedRun) -> None:
        self.run = run
        self.lies = False
        self.size = 0  # bytes of the last reply

    async def ask(self, request: Reply, relay: Relay | None = None) -> Reply:
        """Return the reply to this request; `relay` answers what the run asks before it replies.

        Raises:
            ConversationEnded: if it ended or did not answer in time.
            Forged: if what it sent is no reply to the request.
        """
        number = secrets.token_hex(8)
        message = request
        while True:
            line = await self.run.ask(json.dumps({"id": number, **message}).encode())
            self.size = len(line)
            reply = await in_thread_if_large(self.size, read, line, number)
            self.lies = self.lies or reply.get("lies") is True
            if relay is None or "relay" not in reply:
                return reply
            message = await relay(reply["relay"])

    async def end(self) -> None:
        """Tell the run to end; it must still be there, and have nothing more to say.

        Raises:
            Forged: if not.
        """
        number = secrets.token_hex(8)
        line = json.dumps({"id": number, "end": True}).encode()
        try:
            reply = read(await self.run.ask(line, _END_SECONDS), number)
        except ConversationEnded as error:
            raise Forged(f"it was gone before it was told to end: {error}") from None
        if reply.get("end") is not True or await self.run.said_more():
            raise Forged("it went on after it was told to end")
        if self.lies:
            raise Forged("it gave a value that claims to be equal to everything")


async def in_thread_if_large(size: int, function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that reads `size` bytes, in another thread if that would delay other runs."""
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def read(line: bytes, number: str) -> Reply:
    """Return a line as the reply to the request of this number.

    Raises:
        Forged: for anything else.
    """
    try:
        reply: Any = None if crowded(line) else _JSON.decode(line.decode())
        if isinstance(reply, dict) and reply.get("id") == number:
            return reply
    except Exception:  # whatever hostile bytes make a parser raise
        pass
    raise Forged("it answered something it was not asked")


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MAX_KEYS:
        raise ValueError("more keys than a reply has")
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key twice")
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number of more digits than a reply has")
    return int(digits)


_JSON = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_int=_integer
)


class _Shape(Outside):
    def handle(self, data: Any) -> Any:
        """Accept anything that could be a handle; the other side knows which there are."""
        if type(data) is not dict:
            raise Malformed("a handle that is no object")
        return object()


_SHAPE = _Shape()
_PASSED_ON = frozenset("value error kinds text unloaded callback args named".split())


def to_pass_on(reply: Reply) -> Reply:
    """Return the part of a program's reply that is passed on to the tests.

    Raises:
        Forged: if no honest program can have sent it.
    """
    passed = {name: reply[name] for name in reply.keys() & _PASSED_ON}
    kinds = {"value", "error", "callback"} & passed.keys()
    try:
        for name in ("value", "args", "named"):
            _SHAPE.decode(passed.get(name))
    except (Malformed, RecursionError):
        kinds = set()
    if len(kinds) != 1:
        raise Forged("it answered what no program can answer")
    return passed


def brought_down(result: Result, error: Exception) -> CaseOutcome:
    """Return the outcome of a case that the program did not survive.

    Raises:
        Forged: if it left on purpose, as if all were well.
    """
    if result.status == "ok":
        raise Forged("it ended itself, with exit code 0, instead of answering")
    if result.status == "protocol":
        raise Forged(result.reason)
    return CaseOutcome(False, _ERRORS.get(result.status, "Gone"), result.reason or str(error))


def raised(reply: Reply) -> CaseOutcome | None:
    """Return the outcome of a case that raised an exception; None if it returned a value."""
    if "error" not in reply:
        return None
    name, text = reply["error"], reply.get("text")
    if not isinstance(name, str) or not name.isidentifier():
        name = "Refused"
    return CaseOutcome(False, name[:MAX_TEXT], printable(text if isinstance(text, str) else ""))


def printable(text: str) -> str:
    """Return text of a program, cut, without characters that a terminal or a file may not take."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for c in text[:MAX_TEXT]
    )
