"""People who are asked in the middle of a run: at the terminal, or through another front end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Literal, Protocol

from attrs import asdict, frozen

from orchestrion import JSON, Answer, CallLimits, Calls, OpenContext, Request

_LONG = 30 * 24 * 3600.0


@frozen
class Question:
    """A question to a person.

    Args:
        kind: `approval` of a tool call, or the text of a whole `turn`.
        agent: the agent that asks.
        text: what the person reads.
        tool: the function that would be called.
        arguments: of the call.
    """

    kind: Literal["approval", "turn"]
    agent: str
    text: str
    tool: str = ""
    arguments: JSON = None


class Person(Protocol):
    """Answers questions: a front end implements it."""

    async def answer(self, question: Question) -> str | None:
        """Return the answer; None if there is none.

        An approval is `yes`; all else is a refusal, and its text the reason that the model is told.
        """
        ...


_present: ContextVar[Person | None] = ContextVar("orchestrion_chat_person", default=None)


@contextmanager
def answered_by(person: Person) -> Iterator[None]:
    """Have a person answer the questions of the runs in this block and its tasks."""
    token = _present.set(person)
    try:
        yield
    finally:
        _present.reset(token)


def is_present() -> bool:
    """Return whether a front end answers questions here."""
    return _present.get() is not None


def at_terminal(ctx: OpenContext) -> bool:
    """Return whether questions go to the terminal: nothing is stored, and there is one.

    A stored run (training) has many episodes at once; only a front end can answer them.
    """
    return ctx.live and ctx.directory is None and sys.stdin is not None and sys.stdin.isatty()


async def ask(question: Question, calls: Calls, terminal: bool) -> str | None:
    """Return a person's answer, on record like a call; None if nobody is there or answers."""

    async def do() -> Answer:
        person = _present.get() or (_Terminal() if terminal else None)
        return Answer(None if person is None else [await person.answer(question)])

    # One question at a time at the terminal. Who answers is no part of the content: a replay has
    # neither a terminal nor a front end.
    limits = CallLimits(concurrency=1 if terminal else None)
    request = Request("person", asdict(question), limits=limits, timeout=_LONG)
    answer = await calls.run(request, do)
    return None if answer.data is None else answer.data[0]


class _Terminal(Person):
    async def answer(self, question: Question) -> str | None:
        import termios

        from orchestrion.cli import note

        file = sys.stdin.fileno()
        with suppress(termios.error):
            termios.tcflush(file, termios.TCIFLUSH)  # typed before it was shown: no answer to it
        note(question.text)
        line, rest = await _line(file)
        if rest:
            note(f"left out, since an answer is one line: {rest!r:.200}")
        return line


async def _line(file: int) -> tuple[str | None, str]:
    """Return the next line and what came with it; None at the end of the input.

    A cancelled call leaves no thread.
    """
    loop, ready, typed = asyncio.get_running_loop(), asyncio.Event(), b""
    loop.add_reader(file, ready.set)
    try:
        while b"\n" not in typed:
            await ready.wait()
            ready.clear()
            read = os.read(file, 65536)
            if not read:
                break
            typed += read
    finally:
        loop.remove_reader(file)
    line, end, rest = typed.decode(errors="replace").partition("\n")
    return line.strip() if line or end else None, rest.strip()
