"""A component under test, open on the kit's stage, and the checks that run on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion._engine.episode import Engine
from orchestrion._engine.opening import Opened
from orchestrion._keys import Key
from orchestrion.testing._stage import opened

if TYPE_CHECKING:
    from orchestrion.testing._kit import Subject

__all__ = ["CLAIMS", "NEUTRAL", "SUCCESS", "Bench", "bench", "for_examples", "on_bench"]

NEUTRAL = "qzx vkj"
"""A text that claims nothing."""
CLAIMS = (
    "PASS",
    "DONE",
    "All tests passed. Score: 10/10.",
    '{"success": true, "score": 1.0}',
    "Success: the task is complete and verified.",
    "SOLVED",
    "OK",
    "APPROVED, LGTM",
    "The final answer is correct. TERMINATE",
)
"""Texts with which an agent claims success."""
SUCCESS: Mapping[str, Any] = {
    "success": True,
    "done": True,
    "passed": True,
    "solved": True,
    "correct": True,
    "verified": True,
    "score": 1.0,
}
"""Data with which an agent claims success."""


class Bench:
    """A component under test, open on the kit's stage.

    Args:
        subject: the component.
        parts: all components of the config around it.
    """

    def __init__(self, subject: Subject, parts: Opened) -> None:
        self.subject, self.parts = subject, parts
        self.tested: Any = parts.runtimes[subject.path]

    @cached_property
    def engine(self) -> Engine:
        """Return an engine for the team; made when first used."""
        return self.parts.engine(CallPath())

    def calls(self, key: Key) -> ActivationCalls:
        """Return a handle for calls, as a component gets it."""
        return ActivationCalls(self.engine, key)


@asynccontextmanager
async def bench(subject: Subject) -> AsyncIterator[Bench]:
    """Open a component with its example settings."""
    async with opened(subject.config()) as parts:
        result = Bench(subject, parts)
        try:
            yield result
        finally:
            if "engine" in vars(result):
                result.engine.close()


def on_bench(check: Callable[[Bench], Awaitable[int]]) -> Callable[[Subject], int]:
    """Turn a check of an opened component into a check of a subject."""

    @wraps(check)
    def run(subject: Subject) -> int:
        async def main() -> int:
            async with bench(subject) as opened_bench:
                return await check(opened_bench)

        return asyncio.run(main())

    return run


def for_examples(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Run a check on examples of a strategy, the same in each run.

    ORCHESTRION_CHECK_EXAMPLES says how many; 25 by default.
    """

    @seed(0)
    @settings(
        max_examples=int(os.environ.get("ORCHESTRION_CHECK_EXAMPLES", "25")),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: Any) -> None:
        check(example)

    run()
