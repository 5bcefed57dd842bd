"""Two processes that ask each other to do things, over a link of an executor."""

from __future__ import annotations

import asyncio
import copyreg
import pickle
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from io import BytesIO
from typing import Any, NoReturn

from orchestrion import _errors
from orchestrion._errors import CallError, ConfigError, OrchestrionError, RunError
from orchestrion._executors import Link, LinkLost
from orchestrion._guards import describe, in_one_line
from orchestrion._readonly import ReadOnlyDict, ReadOnlyList


class UnsendableError(Exception):
    """Something cannot be sent to another process."""


class RaisedError(Exception):
    """Stands for an error that the other process keeps; the text is for those who do not."""


class Peer:
    """This process's end of a conversation: each side asks the other, and answers.

    What is sent at one moment goes as one message. A question that is cancelled is cancelled on the
    other side as well. `do` is called with the name and the arguments of a question, and returns
    the coroutine that answers it, and the context to run that in; `told` is called with what needs
    no answer.
    """

    def __init__(
        self,
        link: Link,
        do: Callable[..., tuple[Coroutine[Any, Any, Any], Context | None]],
        told: Callable[..., None] = lambda *message: None,
    ) -> None:
        self._link, self._do, self._told = link, do, told
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._answering: dict[int, asyncio.Task[Any]] = {}
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._number = 0
        self._outgoing: list[tuple[Any, ...]] = []
        self._lost: LinkLost | None = None

    @property
    def lost(self) -> bool:
        """Whether the other side is gone."""
        return self._lost is not None

    async def ask(self, name: str, *arguments: Any) -> Any:
        """Return what the other side answers.

        Raises:
            LinkLost: it is gone.
            OrchestrionError: as the other side raised it.
            RaisedError: it keeps the error.
            RunError: it raised another error.
            UnsendableError: an argument, or the answer, cannot be sent.
        """
        if self._lost is not None:
            raise LinkLost(*self._lost.args)
        self._number = number = self._number + 1
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._post(("ask", number, name, arguments))
        try:
            return await answer
        except asyncio.CancelledError:
            self._post(("cancel", number))
            raise
        finally:
            self._asked.pop(number, None)

    def tell(self, *message: Any) -> None:
        """Tell the other side something that needs no answer; may be called in any thread."""
        if threading.get_ident() == self._thread:
            self._post(("tell", *message))
        elif self._lost is None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._post, ("tell", *message))

    async def serve(self) -> NoReturn:
        """Answer until the other side is gone, or the caller is cancelled.

        Raises:
            LinkLost: it is gone; all questions have ended when this is raised.
        """
        try:
            while True:
                for message in unpack(await self._link.receive()):
                    self._take(*message)
        except LinkLost as error:
            self._lost = error
            raise
        finally:
            self._lost = self._lost or LinkLost("closed")
            tasks = list(self._answering.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(LinkLost(*self._lost.args))
                    answer.exception()  # whoever asked may be cancelled before it looks

    def _take(self, kind: str, *message: Any) -> None:
        if kind == "tell":
            self._told(*message)
            return
        number = message[0]
        if kind == "ask":
            coroutine, context = self._do(message[1], *message[2])
            task = asyncio.get_running_loop().create_task(coroutine, context=context)
            self._answering[number] = task
            task.add_done_callback(partial(self._answer, number))
        elif kind == "cancel":
            if number in self._answering:
                self._answering[number].cancel()
        else:
            # A question that was cancelled here may be answered all the same.
            answer = self._asked.get(number)
            if answer is not None and not answer.done():
                if kind == "answer":
                    answer.set_result(message[1])
                else:
                    kind_of, arguments = message[1:]
                    answer.set_exception(kind_of(*arguments))

    def _answer(self, number: int, task: asyncio.Task[Any]) -> None:
        del self._answering[number]
        if task.cancelled():
            self._post(("error", number, RunError, ("cancelled from within",)))
        elif (error := task.exception()) is not None:
            self._post(("error", number, *_packed(error)))
        else:
            self._post(("answer", number, task.result()))

    def _post(self, message: tuple[Any, ...]) -> None:
        if self._lost is not None:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(message)

    def _flush(self) -> None:
        messages, self._outgoing = self._outgoing, []
        try:
            data = pack(messages)
        except Exception:
            # One of them: it alone fails.
            data = pack([message for each in messages for message in self._sendable(each)])
        self._link.send(data)

    def _sendable(self, message: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the message; if it cannot be sent, what is to be sent in its place."""
        try:
            pack(message)
        except Exception as error:
            kind, number = message[:2]
            text = f"cannot be sent to another process: {in_one_line(error)}"
            if kind == "answer":
                return [("error", number, UnsendableError, (f"its result {text}",))]
            if kind == "ask" and number in self._asked:
                self._asked[number].set_exception(UnsendableError(f"what it needs {text}"))
            return []
        return [message]


class _Pickler(pickle.Pickler):
    """Keeps data that nobody can change as it is: records need not copy it again."""

    dispatch_table = copyreg.dispatch_table | {
        ReadOnlyDict: lambda value: (ReadOnlyDict, (dict(value),)),
        ReadOnlyList: lambda value: (ReadOnlyList, (list(value),)),
    }


def pack(value: Any) -> bytes:
    """Return a value as bytes for another process of this run; they are never stored."""
    buffer = BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


unpack = pickle.loads
"""Returns the value again."""


_SENT = {
    kind
    for kind in (RaisedError, UnsendableError, *vars(_errors).values())
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not ConfigError
}
"""Errors that are raised on the other side as they are here."""


def _packed(error: BaseException) -> tuple[type[BaseException], tuple[Any, ...]]:
    """Return what makes an error on the other side: its class, and the arguments."""
    if isinstance(error, CallError):
        return CallError, (str(error), error.fault, error.retry_after, error.spent)
    if type(error) in _SENT:
        return type(error), (str(error),)
    return RunError, (str(error) if isinstance(error, OrchestrionError) else describe(error),)
