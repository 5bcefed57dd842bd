"""Let a function, or the team's task, score answers beside their users."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from orchestrion import Key, Problem, in_thread, load_function
from orchestrion.runs import TeamAnswer

CHECKS = 64
"""Limit of concurrent verifications; answers beyond it are not verified."""
CLOSING = 5.0
"""Seconds that verifications get when the server stops."""


class Verifier:
    """Scores a share of the answers.

    Args:
        verify: see `UseSettings`; None verifies nothing.
        share: of the answers.
        give: called with a request's id and its score.
        note: called with what a person should know.

    Raises:
        UsageError: the function cannot be loaded.
    """

    def __init__(
        self,
        verify: str | None,
        share: float,
        give: Callable[[str, float], Awaitable[None]],
        note: Callable[[str], None],
    ) -> None:
        self._share = share if verify else 0.0
        self._check = None
        if verify not in (None, "task"):
            self._check = load_function(verify, "--verify", given=2)
        self._give, self._note = give, note
        self._work: set[asyncio.Task[None]] = set()

    def answered(self, identity: str, problem: Problem, answer: TeamAnswer, key: Key) -> None:
        """Verify the answer to a request, if the draw by its key says so."""
        if len(self._work) < CHECKS and key.child("verify").uniform() < self._share:
            work = asyncio.create_task(self._verify(identity, problem, answer))
            self._work.add(work)
            work.add_done_callback(self._work.discard)

    async def close(self) -> None:
        """Wait for verifications, for a while."""
        if self._work:
            _, late = await asyncio.wait(self._work, timeout=CLOSING)
            for work in late:
                work.cancel()

    async def _verify(self, identity: str, problem: Problem, answer: TeamAnswer) -> None:
        """Give a score; a verifier that fails says nothing."""
        try:
            if self._check is None:
                scores = answer.episode.scores
                score = scores.value if scores is not None else None
            elif inspect.iscoroutinefunction(self._check):
                score = await self._check(problem.text, answer.text or "")
            else:
                score = await in_thread(self._check, problem.text, answer.text or "")
            if score is None:
                return
            if not 0 <= (number := float(score)) <= 1:
                raise ValueError(f"the score {number:g} is not between 0 and 1")
            await self._give(identity, number)
        except Exception as error:
            self._note(f"--verify: {type(error).__name__}: {error}")
