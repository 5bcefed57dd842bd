"""Watch and refuse network access of this process; tell local hosts from others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from ipaddress import ip_address
from typing import Any, NoReturn

from orchestrion._errors import OrchestrionError

_EVENTS = {
    f"socket.{name}" for name in ("connect", "sendto", "sendmsg", "getaddrinfo", "gethostbyname")
}
_callbacks: list[Callable[[str], None]] = []
"""The last of these is called with the host of each attempt; what it raises ends the attempt."""
_hooked = False


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, which no proxy on another machine can reach."""
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
def attempts(tell: Callable[[str], None]) -> Iterator[None]:
    """Call a function with each host that this process wants to reach; it may raise.

    Sockets of the file system, which programs on one machine talk by, are left alone; so are
    processes that were started.
    """
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_tell)  # for good: there is no way to take one back
    _callbacks.append(tell)
    try:
        yield
    finally:
        _callbacks.pop()


def no_network(error: type[OrchestrionError], why: str) -> AbstractContextManager[None]:
    """Refuse connections and look-ups of this process, whoever tries; see `attempts`."""

    def refuse(where: str) -> NoReturn:
        raise error(f"{why}, and something tried to reach {where}")

    return attempts(refuse)


def _tell(event: str, args: tuple[Any, ...]) -> None:
    if not _callbacks or event not in _EVENTS:
        return
    if event.startswith("socket.get"):
        where = args[0]
    elif isinstance(args[1], tuple):
        where = args[1][0]
    else:  # a path, or a kernel interface
        return
    _callbacks[-1](where.decode(errors="replace") if isinstance(where, bytes) else str(where))
