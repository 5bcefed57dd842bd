"""The tests' side of a split: stand-ins for what the program has.

A stand-in holds a number and asks the other side. What decides a test has to be decided here, so
comparing a stand-in with plain data is refused: the program's own `==` would decide, and would
learn what was wanted. Objects whose class the tests asked for by name (the class under test) answer
to all else, and comparisons of two of them are reported as unproven.

An object of any other class can pose as an answer and be another one at each look. That the tests
were given one is reported as unproven, whatever they do with it; so is a class under a name that a
function would have, in lower case. Two things are safe without a
name, because nothing of them can be looked at twice: an iterator, whose items come as plain data
and once each, and a function, which can be called as the function under test itself can.

Exceptions that end a loop of whoever calls (StopIteration and its relatives) come as RuntimeError:
raised in `all(map(f, inputs))`, they would end the test's loop instead of failing it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .errors import builtin, exception, raised
from .line import Line
from .plain import Codec, Malformed, Refused

__all__ = ["Link", "StandIn"]

_ENDS_LOOPS = (StopIteration, StopAsyncIteration)
_FUNCTION = -1  # the number of the class of functions, which no program has
_TYPES = (str, list, dict, set, tuple, int, float, bytes, complex)
_OF_PLAIN = frozenset(name for kind in _TYPES for name in dir(kind))


class Link(Codec):
    """The way to the program, and what came from there so far."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._classes: dict[int, type] = {}
        self._objects: dict[int, Any] = {}
        self._callbacks: list[Callable[..., Any]] = []
        self._streams: dict[int, Stream] = {}
        self._named: set[int] = set()
        self._naming = False  # whether the tests are asking for something by name
        self.unproven: set[str] = set()

    # ------------------------------------------------------------ asking

    def ask(self, request: dict[str, Any]) -> Any:
        """What the program gives, or what it raises."""
        reply = self._line.ask({"relay": request})
        while "callback" in reply:
            reply = self._line.ask({"relay": self._called_back(reply)})
        if "error" in reply:
            raise self._harmless(self._exception(reply), request)
        return self.decode(reply["value"])

    def call(self, request: dict[str, Any], args: Any, named: Any) -> Any:
        """Likewise, with arguments."""
        return self.ask(request | {"args": self.encode(list(args)), "named": self.encode(named)})

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for a function of the program's main module."""

        def stand_in(*args: Any, **named: Any) -> Any:
            return self.call({"call": name}, args, named)

        stand_in.__name__ = stand_in.__qualname__ = name
        return stand_in

    def attribute(self, module: str, name: str) -> Any:
        """Something of a module, asked for by name."""
        self._naming = True
        try:
            value = self.ask({"module": module, "get": name})
        finally:
            self._naming = False
        # A class where the tests name a function would make its objects count as named.
        if isinstance(value, _Class) and name.lstrip("_")[:1].isupper():
            self._named.add(value._number)
        return value

    def on(self, stand_in: Any, name: str, *args: Any, **named: Any) -> Any:
        """Do something with an object."""
        kind = stand_in if isinstance(stand_in, _Class) else type(stand_in)
        value = self.call({"on": stand_in._number, "name": name}, args, named)
        # Asking for an attribute that is not there, as pytest does of functions, shows nothing.
        if name != "__call__" and not self.is_named(kind):
            self.unproven.add(f"{kind.__name__}.{name}")
        return value

    def is_named(self, kind: Any) -> bool:
        """Whether the tests asked for a class by name, or for one that it derives from."""
        return any(getattr(base, "_number", None) in self._named for base in kind.__mro__)

    def _called_back(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._callbacks[call["callback"]]
            args, named = self.decode(call["args"]), self.decode(call["named"])
            return {"value": self.encode(function(*args, **named))}
        except Exception as error:
            return raised(error)

    def _harmless(self, error: BaseException, request: dict[str, Any]) -> BaseException:
        if isinstance(error, _ENDS_LOOPS) and request.get("name") != "__next__":
            return RuntimeError(f"the program raised {type(error).__name__}")
        return error

    def _exception(self, reply: dict[str, Any]) -> BaseException:
        about = reply.get("class")
        if about is None or reply.get("unloaded"):
            return exception(reply)
        kind = self._class(about)
        if not issubclass(kind, Exception):
            raise Malformed("an exception of a class that is none")
        try:
            error = kind(str(reply.get("text", "")))
        except TypeError:  # some need other arguments
            return exception(reply)
        error.__dict__["_number"] = reply.get("n")
        return error

    # ------------------------------------------------------------ values

    def other(self, value: Any) -> Any:
        """A stand-in goes back as its number; a function of the tests can be called from there."""
        if isinstance(value, StandIn | _Class | Stream):
            return {"$": "handle", "v": {"n": value._number}}
        if callable(value) and not isinstance(value, type):
            self._callbacks.append(value)
            return {"$": "handle", "v": {"callback": len(self._callbacks) - 1}}
        raise Refused(f"a {type(value).__name__} of the tests cannot be given to the program")

    def iterable(self, value: Any, depth: int) -> Any:
        """Stand-ins can be gone through, but go back as what they are."""
        if isinstance(value, StandIn | _Class | Stream):
            return self.other(value)
        return super().iterable(value, depth)

    def handle(self, data: Any) -> Any:
        """A stand-in for something of the program."""
        if not isinstance(data, dict) or type(data.get("n")) is not int:
            raise Malformed("a handle without a number")
        if data.get("stream"):
            return self._streams.setdefault(data["n"], Stream(self, data["n"]))
        if data.get("is_class"):
            return self._given(self._class(data))
        kind: Any = self._class(data["class"]) if "class" in data else self._plain_function()
        if not issubclass(kind, StandIn):
            raise Malformed("an object of a class that has none")
        if kind._number != _FUNCTION:
            self._given(kind)
        if data["n"] in self._objects:
            return self._objects[data["n"]]
        stand_in = self._objects[data["n"]] = object.__new__(kind)
        object.__setattr__(stand_in, "_number", data["n"])
        if isinstance(name := data.get("name"), str) and name:
            object.__setattr__(stand_in, "__name__", name)
        return stand_in

    def _given(self, kind: type) -> type:
        """The tests were given an object of a class, or the class."""
        if not self._naming and not self.is_named(kind):
            self.unproven.add(kind.__name__)
        return kind

    def _plain_function(self) -> Any:
        return self._class({"n": _FUNCTION, "name": "function", "bases": []})

    def _class(self, about: Any) -> type:
        if not isinstance(about, dict) or type(about.get("n")) is not int:
            raise Malformed("a class without a number")
        known = self._classes.get(about["n"])
        if known is None:
            known = self._classes[about["n"]] = self._new_class(about)
        return known

    def _new_class(self, about: dict[str, Any]) -> type:
        bases: list[type] = []
        for base in about["bases"]:
            kind = builtin(base) if isinstance(base, str) else self._class(base)
            if kind is None:
                raise Malformed("a base that is no exception")
            bases.append(Exception if kind in _ENDS_LOOPS else kind)
        members: dict[str, Any] = {"_link": self, "__module__": "program"}
        failing = [base for base in bases if issubclass(base, BaseException)]
        if failing:
            members["__getattr__"] = _attribute_of_error
        elif not bases:
            bases = [StandIn]
        kind = _Class(str(about["name"]), tuple(failing or bases), members)
        kind._number = about["n"]
        return kind


class _Class(type):
    """A class of the program: making an object of it, and its attributes, are asked for."""

    _number: int
    _link: Link

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if BaseException in cls.__mro__:
            return super().__call__(*args, **named)
        return cls._link.on(cls, "__call__", *args, **named)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or "_link" not in cls.__dict__:
            raise AttributeError(name)
        return cls._link.on(cls, "__getattr__", name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._link.on(cls, "__iter__"))

    def __len__(cls) -> int:
        return int(cls._link.on(cls, "__len__"))

    def __getitem__(cls, key: Any) -> Any:
        return cls._link.on(cls, "__getitem__", key)

    def __bool__(cls) -> bool:
        return True


def _attribute_of_error(error: Any, name: str) -> Any:
    number = error.__dict__.get("_number")
    if name.startswith("__") or type(number) is not int:
        raise AttributeError(name)
    if not error._link.is_named(type(error)):
        error._link.unproven.add(f"{type(error).__name__}.{name}")
    return error._link.call({"on": number, "name": "__getattr__"}, [name], {})


class Stream:
    """An iterator of the program: every item is asked for once, and its end is the end."""

    def __init__(self, link: Link, number: int) -> None:
        self._link, self._number, self._ended = link, number, False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        try:
            return self._link.call({"on": self._number, "name": "__next__"}, (), {})
        except BaseException:
            self._ended = True
            raise


class StandIn(metaclass=_Class):
    """An object or function of the program."""

    _link: Link
    _number: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OF_PLAIN and not self._link.is_named(type(self)):
            raise Refused(f"an object of the program poses as plain data: .{name}")
        return self._link.on(self, "__getattr__", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.on(self, "__setattr__", name, value)

    def __delattr__(self, name: str) -> None:
        self._link.on(self, "__delattr__", name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._link.on(self, "__call__", *args, **named)

    def __hash__(self) -> int:
        if not self._link.is_named(type(self)):
            self._link.unproven.add(f"{type(self).__name__}.__hash__")
        return hash(self._number)

    def __exit__(self, *error: object) -> None:
        # Whatever it answers, it does not take back an error of the tests.
        self._link.on(self, "__exit__", None, None, None)


def _asking(name: str) -> Callable[..., Any]:
    def asking(self: Any, *args: Any) -> Any:
        return self._link.on(self, name, *args)

    return asking


def _comparing(name: str) -> Callable[..., Any]:
    def comparing(self: Any, other: Any) -> Any:
        link: Link = self._link
        both = isinstance(other, StandIn) and link.is_named(type(other))
        if not both or not link.is_named(type(self)):
            raise Refused("an object of the program cannot be compared with plain data")
        link.unproven.add(f"{type(self).__name__}.{name}")
        return link.on(self, name, other)

    return comparing


def _operating(name: str) -> Callable[..., Any]:
    def operating(self: Any, other: Any) -> Any:
        link: Link = self._link
        if not link.is_named(type(self)):
            raise Refused(f"an object of the program poses as plain data: {name}")
        if name == "__contains__":
            link.unproven.add(f"{type(self).__name__}.{name}")
        return link.on(self, name, other)

    return operating


_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
for (
    _name
) in "len bool iter next str repr abs int float neg pos enter getitem setitem delitem".split():
    setattr(StandIn, f"__{_name}__", _asking(f"__{_name}__"))
for _name in "eq ne lt le gt ge".split():
    setattr(StandIn, f"__{_name}__", _comparing(f"__{_name}__"))
for _name in ("contains", *_BINARY, *(f"r{name}" for name in _BINARY)):
    setattr(StandIn, f"__{_name}__", _operating(f"__{_name}__"))
