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

    What is sent at one moment goes as one message, with each part packed alone: one that cannot be
    sent or read is no fault of the others. A question that is cancelled is cancelled on the
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
        self._outgoing: list[tuple[str, int, bytes]] = []
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
            UnsendableError: an argument, or the answer, cannot be sent or read.
        """
        if self._lost is not None:
            raise LinkLost(*self._lost.args)
        question = _sendable((name, arguments), "what it needs")
        self._number = number = self._number + 1
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._post("ask", number, question)
        try:
            return await answer
        except asyncio.CancelledError:
            self._post("cancel", number)
            raise
        finally:
            self._asked.pop(number, None)

    def tell(self, *message: Any) -> None:
        """Tell the other side something that needs no answer; may be called in any thread."""
        data = pack(message)
        if threading.get_ident() == self._thread:
            self._post("tell", 0, data)
        elif self._lost is None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._post, "tell", 0, data)

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

    def _take(self, kind: str, number: int, data: bytes) -> None:
        if kind == "tell":
            self._told(*unpack(data))
        elif kind == "cancel":
            if number in self._answering:
                self._answering[number].cancel()
        elif kind == "ask":
            try:
                name, arguments = unpack(data)
            except Exception as error:
                self._post("error", number, pack(_made_of(error)))
                return
            coroutine, context = self._do(name, *arguments)
            task = asyncio.get_running_loop().create_task(coroutine, context=context)
            self._answering[number] = task
            task.add_done_callback(partial(self._answer, number))
        # A question that was cancelled here may be answered all the same.
        elif (answer := self._asked.get(number)) is not None and not answer.done():
            try:
                content = unpack(data)
            except Exception as error:
                text = f"its result cannot be read: {describe(error)}"
                answer.set_exception(UnsendableError(text))
                return
            if kind == "answer":
                answer.set_result(content)
            else:
                error_class, arguments = content
                answer.set_exception(error_class(*arguments))

    def _answer(self, number: int, task: asyncio.Task[Any]) -> None:
        del self._answering[number]
        try:
            if task.cancelled():
                raise RunError("cancelled from within")
            self._post("answer", number, _sendable(task.result(), "its result"))
        except BaseException as error:
            self._post("error", number, pack(_made_of(error)))

    def _post(self, kind: str, number: int, data: bytes = b"") -> None:
        if self._lost is not None:
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append((kind, number, data))

    def _flush(self) -> None:
        messages, self._outgoing = self._outgoing, []
        self._link.send(pack(messages))


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


def _sendable(value: Any, what: str) -> bytes:
    """Return a value as bytes; raise `UnsendableError` if it cannot be sent."""
    try:
        return pack(value)
    except Exception as error:
        text = f"{what} cannot be sent to another process: {in_one_line(error)}"
        raise UnsendableError(text) from None


_SENT = {
    kind
    for kind in (RaisedError, UnsendableError, *vars(_errors).values())
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not ConfigError
}
"""Errors that are raised on the other side as they are here."""


def _made_of(error: BaseException) -> tuple[type[BaseException], tuple[Any, ...]]:
    """Return what makes an error on the other side: its class, and the arguments."""
    if isinstance(error, CallError):
        return CallError, (str(error), error.fault, error.retry_after, error.spent)
    if type(error) in _SENT:
        return type(error), (str(error),)
    return RunError, (str(error) if isinstance(error, OrchestrionError) else describe(error),)
