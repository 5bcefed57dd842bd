"""Open boxes, shared by the tests that leave them as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from orchestrion_sandbox.interface import SandboxError
from orchestrion_sandbox.warm import WarmBox

from tests.plugins.sandbox.scene import strong, without

Boxes = Callable[[str], tuple[asyncio.Runner, WarmBox]]


@pytest.fixture(scope="package")
def boxes() -> Iterator[Boxes]:
    """Gives a backend by name, shipped or weakened, and the event loop that all of them live in."""
    opened: dict[str, WarmBox] = {}
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        def box(name: str) -> tuple[asyncio.Runner, WarmBox]:
            if name not in opened:
                shipped = name in ("namespaces", "landlock")
                try:
                    new = strong(name) if shipped else without(name)
                    opened[name] = runner.run(stack.enter_async_context(new))
                except SandboxError as error:
                    if shipped:
                        pytest.skip(str(error))
                    raise
            return runner, opened[name]

        try:
            yield box
        finally:
            runner.run(stack.aclose())


@pytest.fixture(scope="package")
def runner(boxes: Boxes) -> asyncio.Runner:
    """The event loop that all boxes live in."""
    return boxes("namespaces")[0]


@pytest.fixture(scope="package")
def box(boxes: Boxes) -> WarmBox:
    """The default backend; skips where it cannot work."""
    return boxes("namespaces")[1]
