"""What crosses between tests and the program, each in its own sandbox, besides plain data.

A function of either side can be called from the other. An iterator of the program gives its items
one at a time, and each once. An exception arrives as a class of its name below its built-in bases.
Any other object stays where it is: it could have another value each time it is read. A reply that
would have contained such an object is `Refused`, and the statement that asked for it proves
nothing, whatever it does about the error.

Exceptions that end a loop of the caller (StopIteration, StopAsyncIteration) arrive as RuntimeError:
raised in `all(map(f, inputs))` they would end the test's loop instead of failing it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .errors import exception, raised
from .line import Line
from .plain import Codec, Malformed, Refused

_END_LOOPS = (StopIteration, StopAsyncIteration)


def _handle(data: dict[str, Any]) -> dict[str, Any]:
    return {"$": "handle", "v": data}


class Watching(Codec):
    """Plain data only. Sets `lies` if a value claims to be equal to everything."""

    lies = False

    def odd(self, value: Any) -> None:
        """Compare with an object that is equal to nothing else."""
        with contextlib.suppress(BaseException):
            if (value == object()) is True:  # a query builder's expression is not True
                self.lies = True


class ProgramSide(Watching):
    """The program's functions and iterators get numbers, by which the tests call them."""

    def __init__(self, line: Line, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._line, self._answer = line, answer
        self._kept: list[Any] = []  # also keeps every `id` below unique
        self._numbers: dict[int, int] = {}

    def other(self, value: Any) -> Any:
        """Encode a function as its number.

        Raises:
            Refused: for any other object.
        """
        if isinstance(value, type) or not (callable(value) and hasattr(value, "__name__")):
            return super().other(value)
        return _handle({"n": self._number(value)})

    def iterable(self, value: Any, depth: int) -> Any:
        """Encode an iterator as its number, and all items of anything else."""
        if not hasattr(type(value), "__next__"):
            return super().iterable(value, depth)
        return _handle({"n": self._number(value), "iterator": True})

    def _number(self, value: Any) -> int:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._kept)
            self._kept.append(value)
        return self._numbers[id(value)]

    def handle(self, data: Any) -> Any:
        """Return a value of this side, or a function that calls one of the tests."""
        return self._callback(data["callback"]) if "callback" in data else self._kept[data["n"]]

    def call(self, number: int, args: list[Any], named: dict[str, Any]) -> Any:
        """Call a function, or get the next item of an iterator."""
        value = self._kept[number]
        return next(value) if hasattr(type(value), "__next__") else value(*args, **named)

    def _callback(self, number: int) -> Callable[..., Any]:
        def callback(*args: Any, **named: Any) -> Any:
            request = {"args": self.encode(list(args)), "named": self.encode(named)}
            reply = self._line.ask({"callback": number, **request})
            while "call" in reply:  # the function calls the program
                reply = self._line.ask(self._answer(reply))
            if "error" in reply:
                raise exception(reply)
            return self.decode(reply["value"])

        return callback


class TestsSide(Codec):
    """Calls the program for the tests; `unproven` collects what was refused."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._remote: dict[int, Function | Items] = {}
        self._callbacks: list[Callable[..., Any]] = []
        self.unproven: set[str] = set()

    def call(self, what: str | int, args: Any, named: Any) -> Any:
        """Call a function of the program by name, or a function or iterator by number.

        Raises:
            BaseException: what the program raised, see `errors.exception`.
        """
        request = {"call": what, "args": self.encode(list(args)), "named": self.encode(named)}
        reply = self._line.ask({"relay": request})
        while "callback" in reply:
            reply = self._line.ask({"relay": self._called_back(reply)})
        if "error" not in reply:
            return self.decode(reply["value"])
        if reply["error"] == "Refused" and "kinds" not in reply:  # by the codec
            self.unproven.add(str(reply.get("text")))
        error = exception(reply)
        at_end = isinstance(self._remote.get(what), Items) if isinstance(what, int) else False
        if isinstance(error, _END_LOOPS) and not at_end:
            error = RuntimeError(f"the program raised {type(error).__name__}")
        raise error

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function that calls the program's function of this name."""

        def stand_in(*args: Any, **named: Any) -> Any:
            return self.call(name, args, named)

        stand_in.__name__ = stand_in.__qualname__ = name
        return stand_in

    def _called_back(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._callbacks[call["callback"]]
            args, named = self.decode(call["args"]), self.decode(call["named"])
            return {"value": self.encode(function(*args, **named))}
        except Exception as error:
            return raised(error)

    def other(self, value: Any) -> Any:
        """Encode a function of either side, or an iterator of the program.

        Raises:
            Refused: for any other object.
        """
        if isinstance(value, Function | Items):
            return _handle({"n": value.number})
        if callable(value) and not isinstance(value, type):
            self._callbacks.append(value)
            return _handle({"callback": len(self._callbacks) - 1})
        raise Refused(f"a {type(value).__name__} of the tests cannot be given to the program")

    def iterable(self, value: Any, depth: int) -> Any:
        """Encode an iterator of the program as what it is, and all items of anything else."""
        return self.other(value) if isinstance(value, Items) else super().iterable(value, depth)

    def handle(self, data: Any) -> Any:
        """Return what stands for a function or an iterator of the program."""
        if not isinstance(data, dict) or type(data.get("n")) is not int:
            raise Malformed("a handle without a number")
        kind = Items if data.get("iterator") else Function
        return self._remote.setdefault(data["n"], kind(self, data["n"]))


class Items:
    """An iterator of the program: each item is asked for once, and its end is the end."""

    def __init__(self, side: TestsSide, number: int) -> None:
        self._side, self.number, self._ended = side, number, False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            return self._side.call(self.number, (), {})
        except BaseException:
            self._ended = True
            raise


class Function:
    """A function of the program: it can be called, and tells nothing else about itself."""

    def __init__(self, side: TestsSide, number: int) -> None:
        self._side, self.number = side, number

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._side.call(self.number, args, named)

    def _refused(self, *other: object) -> Any:
        self._side.unproven.add("a function was compared with a value")
        raise Refused("a function of the program cannot be compared")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = _refused
