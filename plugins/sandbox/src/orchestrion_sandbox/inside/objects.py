"""The program's side of a split: what is no plain data stays here and gets a number."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

from .errors import builtin, exception
from .line import Line
from .plain import Codec, Refused

__all__ = ["Objects", "Watching"]


class Watching(Codec):
    """Only plain data crosses; values that claim to be equal to everything are noticed."""

    lies = False

    def other(self, value: Any) -> Any:
        """Refused."""
        self.odd(value)
        return super().other(value)

    def odd(self, value: Any) -> None:
        """Is it equal to something that nothing is equal to?"""
        with contextlib.suppress(BaseException):
            if (value == object()) is True:  # not an expression that a query is made of
                self.lies = True

    def name(self, value: Any) -> Any:
        """The encoding of what was asked for by name."""
        return self.encode(value)

    def more(self, error: BaseException) -> dict[str, Any]:
        """What else to say of an exception."""
        return {}

    def on(self, number: int, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        """No objects, so nothing to do."""
        raise Refused("there are no objects here")


class Objects(Watching):
    """Values cross as plain data if they are, and by number if not."""

    def __init__(
        self, line: Line, first: int, answer: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        self._line, self._answer = line, answer
        self._next = first
        self._kept: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._named: set[type] = set()

    def name(self, value: Any) -> Any:
        """The encoding of what the tests asked for by name; a class stays the class of objects."""
        if isinstance(value, type):
            self._named.add(value)
        return self.encode(value)

    # ------------------------------------------------------------ out

    def other(self, value: Any) -> Any:
        """Its number, and what a stand-in has to look like."""
        self.odd(value)
        if isinstance(value, type):
            return {"$": "handle", "v": self._class(value)}
        name = getattr(value, "__name__", "")
        about = {"n": self._number(value), "name": name if type(name) is str else ""}
        if not (callable(value) and hasattr(value, "__name__")):
            about["class"] = self._class(type(value))
        return {"$": "handle", "v": about}

    def iterable(self, value: Any, depth: int) -> Any:
        """An iterator is gone through from the other side; anything else is gone through here.

        Objects of a class that the tests know by name stay objects.
        """
        if not self._named.isdisjoint(type(value).__mro__):
            return self.other(value)
        if hasattr(type(value), "__next__"):
            self.odd(value)
            return {"$": "handle", "v": {"n": self._number(value), "stream": True}}
        return super().iterable(value, depth)

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = self._next
            self._next += 1
            self._kept[number] = value
        return number

    def _class(self, kind: type) -> dict[str, Any]:
        bases: list[Any] = []
        for base in kind.__bases__:
            if builtin(base.__name__) is base:
                bases.append(base.__name__)
            elif base is not object:
                bases.append(self._class(base))
        return {"n": self._number(kind), "name": kind.__name__, "bases": bases, "is_class": True}

    def more(self, error: BaseException) -> dict[str, Any]:
        """The class of an exception that is not built in."""
        kind = type(error)
        if builtin(kind.__name__) is kind or not isinstance(error, Exception):
            return {}
        return {"class": self._class(kind), "n": self._number(error)}

    # ------------------------------------------------------------ in

    def handle(self, data: Any) -> Any:
        """An object of this side, or a function of the other."""
        if "callback" in data:
            return self._callback(data["callback"])
        return self._kept[data["n"]]

    def on(self, number: int, name: str, args: list[Any], named: dict[str, Any]) -> Any:
        """Do something with an object; the encoded result."""
        if number not in self._kept:
            raise Refused("the program was started anew, and its objects are gone")
        value = self._kept[number]
        operation = _OPERATIONS.get(name)
        if operation is None:
            raise Refused(f"nothing to do called {name}")
        result = operation(value, *args, **named)
        if isinstance(value, type) and name == "__call__":
            return self.other(result)  # an object stays one, even if it derives from a list
        return self.encode(result)

    def _callback(self, number: int) -> Callable[..., Any]:
        def callback(*args: Any, **named: Any) -> Any:
            request = {"args": self.encode(list(args)), "named": self.encode(named)}
            reply = self._line.ask({"callback": number, **request})
            while "args" in reply or "module" in reply:  # the function calls the program
                reply = self._line.ask(self._answer(reply))
            if "error" in reply:
                raise exception(reply)
            return self.decode(reply["value"])

        return callback


def _call(function: Any, *args: Any, **named: Any) -> Any:
    return function(*args, **named)


def _special(name: str) -> Callable[..., Any]:
    return lambda value, *args: getattr(type(value), name)(value, *args)


_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "__call__": _call,
    "__getattr__": getattr,
    "__setattr__": setattr,
    "__delattr__": delattr,
    "__len__": len,
    "__bool__": bool,
    "__iter__": iter,
    "__next__": next,
    "__str__": str,
    "__repr__": repr,
    "__abs__": abs,
    "__int__": int,
    "__float__": float,
    "__neg__": operator.neg,
    "__pos__": operator.pos,
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__delitem__": operator.delitem,
    "__contains__": operator.contains,
    "__enter__": _special("__enter__"),
    "__exit__": _special("__exit__"),
    **{f"__{name}__": getattr(operator, f"__{name}__") for name in "eq ne lt le gt ge".split()},
    **{f"__{name}__": getattr(operator, f"__{name}__") for name in _BINARY},
    **{
        f"__r{name}__": (lambda f: lambda value, other: f(other, value))(
            getattr(operator, f"__{name}__")
        )
        for name in _BINARY
    },
}
