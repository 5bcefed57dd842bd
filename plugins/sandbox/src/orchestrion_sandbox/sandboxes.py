"""The backends as components, and how one is chosen.

A backend is chosen by trying, once, and said wherever a result is: there is no silent step down.
`auto` takes the best that works here and holds the level asked for, or says why none does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, cast

from attrs import field, frozen

from orchestrion import Meta, OpenContext, UsageError
from orchestrion_sandbox.cold import Cold
from orchestrion_sandbox.errors import SandboxError
from orchestrion_sandbox.interface import PLAIN, Box, Profile, Sandbox
from orchestrion_sandbox.launching import Mode

if TYPE_CHECKING:
    from orchestrion_sandbox.warm import WarmBox

__all__ = [
    "Auto",
    "Bubblewrap",
    "Engine",
    "Landlock",
    "Namespaces",
    "Subprocess",
    "choose",
    "require",
]


@frozen
class Warm:
    """The runtime of a backend that forks a warm interpreter for every run."""

    name: str
    mode: Mode

    def open(self, profile: Profile = PLAIN) -> AbstractAsyncContextManager[WarmBox]:
        """Start the interpreter behind its wall."""
        from orchestrion_sandbox.warm import WarmBox

        return WarmBox.opened(self.name, self.mode, profile)


@frozen
class Best:
    """The runtime of `auto`: the first backend that works, of those that hold `level`."""

    level: int = 3

    @asynccontextmanager
    async def open(self, profile: Profile = PLAIN) -> AsyncIterator[Box]:
        """Open the best backend that works here.

        Raises:
            SandboxError: with the reason of every backend that does not.
        """
        async with AsyncExitStack() as stack:
            yield await self._first(stack, profile)

    async def _first(self, stack: AsyncExitStack, profile: Profile) -> Box:
        reasons = []
        for name in _ORDER:
            if _LEVELS[name] < self.level:
                continue
            try:
                return await stack.enter_async_context(_runtime(name).open(profile))
            except SandboxError as error:
                reasons.append(str(error))
        raise SandboxError(
            f"no sandbox of level {self.level} works here: {'; '.join(reasons)}. "
            "`orchestrion doctor` tells more; a config that accepts less says so with "
            "`sandbox: {use: auto, level: 2}`, or, to run programs unprotected, "
            "`sandbox: {use: subprocess, unsafe_local: true}`"
        )


_ORDER = ("namespaces", "bwrap", "landlock")
_LEVELS = {"namespaces": 3, "bwrap": 3, "landlock": 2}


def _runtime(name: str) -> Sandbox:
    if name == "bwrap":
        return Cold("bwrap", 3)
    return Warm(name, cast(Mode, name))


@frozen
class Auto:
    """The best backend that works on this machine.

    Args:
        level: the least it has to hold: 3 a view of the machine with nothing in it, 2 barred
            system calls and files.
    """

    level: Annotated[int, Meta(ge=2, le=3)] = 3

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """The choice is made when a task opens a box."""
        yield Best(self.level)


@frozen
class Namespaces:
    """Linux namespaces around a warm interpreter, one fork and fresh namespaces a run. Level 3."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Needs Linux 5.14 and user namespaces, or root."""
        yield Warm("namespaces", "namespaces")


@frozen
class Landlock:
    """Landlock and seccomp, for where namespaces are barred; no processes, no files. Level 2."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Needs Linux 5.13."""
        yield Warm("landlock", "landlock")


@frozen
class Bubblewrap:
    """Bubblewrap, a new interpreter for every run. Level 3."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Needs the program `bwrap`, and user namespaces."""
        yield Cold("bwrap", 3)


@frozen
class Engine:
    """A container for every run. Level 3, or 4 with a runtime that gives each a kernel.

    Args:
        engine: the program that is called.
        image: has `python3`, version 3.11 or newer; fetched by the engine if it is not there.
        runtime: of the engine, e.g. `runsc`; without one, the engine's own.
    """

    engine: Literal["docker", "podman"] = "docker"
    image: str = "python:3.13-slim"
    runtime: str = ""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Needs a running engine."""
        yield Cold(self.engine, 4 if self.runtime == "runsc" else 3, self.image, self.runtime)


@frozen
class Subprocess:
    """No sandbox: limits against accidents, and nothing else. Results are marked. Level 1.

    Args:
        unsafe_local: has to be true: programs can read your files and reach the network.
    """

    unsafe_local: bool = field(default=False)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Refuses unless told that it is understood."""
        yield _unsafe(self.unsafe_local, ctx.path)


def _unsafe(unsafe_local: bool, where: str = "subprocess") -> Warm:
    if not unsafe_local:
        raise UsageError(
            f"{where}: 'subprocess' is no sandbox: programs can read your files and reach the "
            "network. If that is meant, set unsafe_local: true"
        )
    return Warm("subprocess", "unconfined")


def choose(name: str = "auto", *, level: int = 3, unsafe_local: bool = False) -> Sandbox:
    """A sandbox by the name of its backend, for use without a config.

    Args:
        name: "auto", "namespaces", "bwrap", "landlock" or "subprocess".
        level: the least that "auto" has to hold.
        unsafe_local: needed for "subprocess".

    Raises:
        UsageError: for another name, or "subprocess" without `unsafe_local`.
    """
    known: dict[str, Callable[[], Sandbox]] = {
        "auto": lambda: Best(level),
        **{backend: partial(_runtime, backend) for backend in _ORDER},
        "subprocess": lambda: _unsafe(unsafe_local),
    }
    if name not in known:
        raise UsageError(f"no sandbox is named {name!r}; there are {', '.join(known)}")
    return known[name]()


def require(box: Box, level: int, who: str) -> None:
    """See that a box holds what a task asks for. One without any protection was asked for by name.

    Raises:
        SandboxError: if it holds less.
    """
    if 1 < box.level < level:
        raise SandboxError(
            f"{who} needs a sandbox of level {level}, and {box.backend!r} holds level {box.level}"
        )
