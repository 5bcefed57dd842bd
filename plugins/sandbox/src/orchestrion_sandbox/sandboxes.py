"""The backends as components, and how one is chosen.

`auto` tries the backends once and takes the best that works here and has the level; every result
names the backend it came from. There is no silent step down: if none works, the error says why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal, cast

from attrs import field, frozen

from orchestrion import Meta, OpenContext, UsageError
from orchestrion_sandbox.cold import Cold
from orchestrion_sandbox.interface import PLAIN, Profile, SandboxError
from orchestrion_sandbox.launching import Mode
from orchestrion_sandbox.supervising import Box, Sandbox

if TYPE_CHECKING:
    from orchestrion_sandbox.warm import WarmBox


@frozen
class Warm:
    """The runtime of a backend that forks a warm interpreter for each run."""

    name: str
    mode: Mode

    def open(self, profile: Profile = PLAIN) -> AbstractAsyncContextManager[WarmBox]:
        """Start the interpreter in its sandbox."""
        from orchestrion_sandbox.warm import WarmBox

        return WarmBox.opened(self.name, self.mode, profile)


@frozen
class Best:
    """The runtime of `auto`: the first backend that works and has at least `level`."""

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
        for name in (name for name, level in _LEVELS.items() if level >= self.level):
            try:
                return await stack.enter_async_context(_runtime(name).open(profile))
            except SandboxError as error:
                reasons.append(str(error))
        raise SandboxError(
            f"no sandbox of level {self.level} works here: {'; '.join(reasons)}. "
            "`orchestrion doctor` tells more. To accept less protection, set "
            "`sandbox: {use: auto, level: 2}`, or, to run programs unprotected, "
            "`sandbox: {use: subprocess, unsafe_local: true}`"
        )


_LEVELS = {"namespaces": 3, "bwrap": 3, "landlock": 2}  # in the order in which they are tried


def _runtime(name: str) -> Sandbox:
    if name == "bwrap":
        return Cold("bwrap", 3)
    return Warm(name, cast(Mode, name))


@frozen
class Auto:
    """The best backend that works on this machine.

    Args:
        level: the lowest accepted: 3 an empty view of the machine, 2 blocked system calls and
            files.
    """

    level: Annotated[int, Meta(ge=2, le=3)] = 3

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Yield the runtime, which chooses a backend when a task opens a box."""
        yield Best(self.level)


@frozen
class Namespaces:
    """A warm interpreter in Linux namespaces; each run is a fork in new ones. Level 3."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Yield the runtime, which needs Linux 5.14 and user namespaces, or root."""
        yield Warm("namespaces", "namespaces")


@frozen
class Landlock:
    """Landlock and seccomp, for containers; no processes, no writable files. Level 2."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Yield the runtime, which needs Linux 5.13."""
        yield Warm("landlock", "landlock")


@frozen
class Bubblewrap:
    """Bubblewrap, a new interpreter for each run. Level 3."""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Yield the runtime, which needs the program `bwrap` and user namespaces."""
        yield Cold("bwrap", 3)


@frozen
class Engine:
    """A container for each run. Level 3; 4 with a runtime that gives each its own kernel.

    Args:
        engine: the program to call.
        image: one with `python3`, version 3.11 or newer; the engine fetches it if it is missing.
        runtime: of the engine, e.g. `runsc`; "" is the engine's default.
    """

    engine: Literal["docker", "podman"] = "docker"
    image: str = "python:3.13-slim"
    runtime: str = ""

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Yield the runtime, which needs a running engine."""
        yield Cold(self.engine, 4 if self.runtime == "runsc" else 3, self.image, self.runtime)


@frozen
class Subprocess:
    """No sandbox, only limits against accidents. Results are marked. Level 1.

    Args:
        unsafe_local: must be true: programs can read your files and reach the network.
    """

    unsafe_local: bool = field(default=False)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Sandbox]:
        """Yield the runtime; raise UsageError unless `unsafe_local` is set."""
        yield _unsafe(self.unsafe_local, ctx.path)


def _unsafe(unsafe_local: bool, where: str = "subprocess") -> Warm:
    if not unsafe_local:
        raise UsageError(
            f"{where}: 'subprocess' is no sandbox: programs can read your files and reach the "
            "network. To accept that, set unsafe_local: true"
        )
    return Warm("subprocess", "unconfined")


def choose(name: str = "auto", *, level: int = 3, unsafe_local: bool = False) -> Sandbox:
    """Return a sandbox by the name of its backend, for use without a config.

    Args:
        name: "auto", "namespaces", "bwrap", "landlock" or "subprocess".
        level: the lowest that "auto" accepts.
        unsafe_local: needed for "subprocess".

    Raises:
        UsageError: for another name, or "subprocess" without `unsafe_local`.
    """
    if name == "auto":
        return Best(level)
    if name == "subprocess":
        return _unsafe(unsafe_local)
    if name in _LEVELS:
        return _runtime(name)
    raise UsageError(
        f"no sandbox is named {name!r}; there are auto, {', '.join(_LEVELS)}, subprocess"
    )


def require(box: Box, level: int, who: str) -> None:
    """Check that a box has the level that a task needs; level 1 passes: a user asked for it.

    Raises:
        SandboxError: if its level is lower.
    """
    if 1 < box.level < level:
        raise SandboxError(
            f"{who} needs a sandbox of level {level}, and {box.backend!r} has level {box.level}"
        )
