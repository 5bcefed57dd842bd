"""A process, or a part of its time, in which nothing may be reached over the network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

from orchestrion._errors import OrchestrionError

_EVENTS = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"}
_forbidding: list[tuple[type[OrchestrionError], str]] = []
_hooked = False


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: no proxy can reach it, since to it that is itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_local(host: str) -> bool:
    """Return whether only this machine can reach a server at a host; unlike 0.0.0.0."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def no_network(error: type[OrchestrionError], why: str) -> Iterator[None]:
    """Refuse connections and look-ups of this process, whoever tries.

    Sockets of the file system, which programs on one machine talk by, are left alone; so are
    processes that were started.
    """
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_refuse)  # for good: there is no way to take one back
    _forbidding.append((error, why))
    try:
        yield
    finally:
        _forbidding.pop()


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if not _forbidding or event not in _EVENTS:
        return
    if event == "socket.getaddrinfo":
        where = args[0]
    elif isinstance(args[1], tuple):
        where = args[1][0]
    else:  # a path, or a kernel interface
        return
    error, why = _forbidding[-1]
    where = where.decode(errors="replace") if isinstance(where, bytes) else where
    raise error(f"{why}, and something tried to reach {where}")
