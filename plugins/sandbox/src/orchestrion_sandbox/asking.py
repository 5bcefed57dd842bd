"""Asking a judged program, and reading what it says: untrusted bytes, whatever they look like."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from orchestrion_sandbox.compare import Outside
from orchestrion_sandbox.errors import ConversationEnded
from orchestrion_sandbox.inside.plain import Malformed, crowded
from orchestrion_sandbox.interface import Conversation, Result
from orchestrion_sandbox.verdict import CaseOutcome

__all__ = [
    "MOST_SHOWN",
    "Asked",
    "Forged",
    "Relay",
    "Reply",
    "aside",
    "brought_down",
    "for_the_other_side",
    "printable",
    "raised",
]

Reply = Mapping[str, Any]
Relay = Callable[[Reply], Awaitable[Reply]]

_T = TypeVar("_T")

MOST_SHOWN = 200
_LARGE = 1 << 14
_MOST_KEYS = 32  # of one object; `encode` makes none with more than two, a reply has a few
_MOST_DIGITS = 1300  # `encode` writes longer numbers in another way
_END_SECONDS = 2.0
_NAMES = {
    "timeout": "OutOfTime",
    "cpu": "OutOfTime",
    "memory": "OutOfMemory",
    "flood": "TooMuchOutput",
    "crashed": "Crashed",
}


class Forged(Exception):
    """Something only said to sway the judge."""


class Asked:
    """A program in a conversation, asked under numbers it cannot guess."""

    def __init__(self, run: Conversation) -> None:
        self.run = run
        self.lies = False
        self.size = 0  # of the last reply

    async def ask(self, request: Reply, relay: Relay | None = None) -> Reply:
        """Its reply to this request, and to no other.

        `relay` answers what it asks of the other side before it replies.

        Raises:
            ConversationEnded: if it ended or did not answer in time.
            Forged: if what it said is no reply to the request.
        """
        number = secrets.token_hex(8)
        line = json.dumps({"id": number, **request}).encode()
        while True:
            said = await self.run.ask(line)
            self.size = len(said)
            reply = await aside(self.size, read, said, number)
            self.lies = self.lies or reply.get("lies") is True
            if relay is None or "relay" not in reply:
                return reply
            line = json.dumps({"id": number, **await relay(reply["relay"])}).encode()

    async def end(self) -> None:
        """It must still be there when told to end, and have nothing more to say.

        Raises:
            Forged: if not.
        """
        try:
            reply = await self._ended()
        except ConversationEnded as error:
            raise Forged(f"it was gone before it was told to end: {error}") from None
        if reply.get("end") is not True or self.run.said_more():
            raise Forged("it went on after it was told to end")
        if self.lies:
            raise Forged("it gave a value that claims to be equal to everything")

    async def _ended(self) -> Reply:
        number = secrets.token_hex(8)
        line = json.dumps({"id": number, "end": True}).encode()
        return read(await self.run.ask(line, _END_SECONDS), number)


async def aside(size: int, function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function with something of so many bytes, on another thread if they are many.

    What comes out of a sandbox is bounded, and still too much to go through while others wait.
    """
    if size < _LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def read(line: bytes, number: str) -> Reply:
    """A reply, if it is one to the request of this number.

    Raises:
        Forged: for anything else.
    """
    try:
        reply: Any = None if crowded(line) else _JSON.decode(line.decode())
        right = isinstance(reply, dict) and reply.get("id") == number
    except Exception:  # whatever hostile bytes make a parser raise
        right = False
    if not right:
        raise Forged("it answered something it was not asked")
    return reply  # type: ignore[no-any-return]


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MOST_KEYS:
        raise ValueError("more keys than a reply has")
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number of more digits than a reply has")
    return int(digits)


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer)


class _Shape(Outside):
    def handle(self, data: Any) -> Any:
        """Anything that could be one; whether it is known is for the other side to say."""
        if type(data) is not dict:
            raise Malformed("a handle that is no object")
        return object()


_SHAPE = _Shape()
_PASSED_ON = frozenset("value error kinds text unloaded class n callback args named".split())


def for_the_other_side(reply: Reply) -> Reply:
    """What of a program's reply is passed on to the tests.

    Raises:
        Forged: if no honest program can have said it.
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
    """The outcome of a case that the program did not survive.

    Raises:
        Forged: if it left on purpose, as if all were well.
    """
    if result.status == "ok":
        raise Forged("it ended itself, with exit code 0, instead of answering")
    if result.status == "protocol":
        raise Forged(result.reason)
    name = _NAMES.get(result.status, "Gone")
    return CaseOutcome(False, name, result.reason or str(error))


def raised(reply: Reply) -> CaseOutcome | None:
    """How a case went that gave no value."""
    if "error" not in reply:
        return None
    name = reply["error"]
    if not isinstance(name, str) or not name.isidentifier():
        name = "Refused"
    text = reply.get("text")
    return CaseOutcome(False, name[:MOST_SHOWN], printable(text if isinstance(text, str) else ""))


def printable(text: str) -> str:
    """Text of a program, cut, and with nothing in it that a terminal or a file could choke on."""
    cut = text[:MOST_SHOWN]
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in cut
    )
