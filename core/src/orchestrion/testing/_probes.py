"""Refuse the network to plugin code, and detect what it changes."""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any

from orchestrion._engine.calls import ActivationCalls
from orchestrion._keys import Key
from orchestrion._records import Trajectory

__all__ = ["offline", "snapshot", "unchanged"]


class _Network:
    """Whether the network is watched, and the attempts to use it."""

    installed = False
    watching = False
    calls = 0
    """Running calls through `calls.run`: these may use the network."""
    attempts: list[str] = []  # noqa: RUF012  one watcher a process


_EVENTS = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _Network.watching or event not in _EVENTS or _Network.calls:
        return
    first = arguments[0]
    if isinstance(first, socket.socket):
        if first.family not in (socket.AF_INET, socket.AF_INET6):
            return
        first = arguments[1]
    address = first if isinstance(first, str) else "{}:{}".format(*first[:2])
    _Network.attempts.append(address)
    raise ConnectionRefusedError(f"{address}: the conformance kit allows no network here")


@contextmanager
def offline(what: str) -> Iterator[None]:
    """Refuse the network outside `calls.run`, and fail if it was used.

    Args:
        what: whose code runs, as the message names it.
    """
    if not _Network.installed:
        sys.addaudithook(_audit)
        _Network.installed = True
    plain = ActivationCalls.run

    async def run(self: ActivationCalls, *args: Any, **kwargs: Any) -> Any:
        _Network.calls += 1
        try:
            return await plain(self, *args, **kwargs)
        finally:
            _Network.calls -= 1

    ActivationCalls.run = run  # type: ignore[method-assign]
    _Network.attempts.clear()
    _Network.watching = True
    try:
        yield
    finally:
        _Network.watching = False
        ActivationCalls.run = plain  # type: ignore[method-assign]
        attempts = sorted(set(_Network.attempts))
        assert not attempts, (
            f"{what} uses the network ({', '.join(attempts)}) outside `calls.run`, where nothing "
            "is recorded, limited or paid for; do it in the `do` of calls.run(request, do)"
        )


def snapshot(value: Any, depth: int = 24) -> Any:
    """Return a value as plain, comparable data, whatever it is made of; NaN equals NaN.

    Two snapshots of one object differ exactly if something in it changed.
    """
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if depth == 0:
        return type(value).__name__
    if isinstance(value, Mapping):
        pairs = [(snapshot(k, depth - 1), snapshot(v, depth - 1)) for k, v in value.items()]
        return ("mapping", tuple(sorted(pairs, key=repr)))
    if isinstance(value, Trajectory):
        return ("trajectory", tuple(snapshot(turn, depth - 1) for turn in value.turns))
    if isinstance(value, Sequence):
        # A list and a tuple are the same array once they are JSON.
        return tuple(snapshot(item, depth - 1) for item in value)
    if isinstance(value, AbstractSet):
        return ("set", tuple(sorted(repr(snapshot(item, depth - 1)) for item in value)))
    if isinstance(value, Key):
        return ("key", value.digest)
    if callable(getattr(value, "tobytes", None)):
        return ("array", str(getattr(value, "dtype", "")), value.tobytes())
    if callable(getattr(value, "detach", None)):
        return ("tensor", value.detach().cpu().numpy().tobytes())
    return (type(value).__qualname__, tuple(_fields(value, depth)))


def _fields(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    names += list(getattr(value, "__dict__", ()))
    for name in getattr(value, "__struct_fields__", names):
        if isinstance(name, str) and name not in ("__weakref__", "__dict__"):
            yield name, snapshot(getattr(value, name, None), depth - 1)


@contextmanager
def unchanged(value: Any, message: str) -> Iterator[None]:
    """Fail with a message if the value is changed meanwhile."""
    before = snapshot(value)
    yield
    assert snapshot(value) == before, message
