"""The task `gymnasium`: an environment in which a policy chooses which controller acts next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from attrs import field, frozen

from orchestrion import Meta, OpenContext, Task, UsageError
from orchestrion_gymnasium.outcome import Counts, Returns, Seeds


@frozen
class Gymnasium(Seeds):
    """An environment of Gymnasium; agents are controllers, and what they output is the action.

    A problem is a seed. An agent's turn is one action: its data, that data's "action", or its
    content as JSON. A turn that gives no action changes nothing, and the observation says why.
    Judged is the return of an episode that the environment ended; one that was stopped before is
    worth 0.

    Args:
        environment: its id, such as `CartPole-v1`, or `module:id` for one that a module registers.
        returns: what returns are worth.
        kwargs: settings of the environment.
        horizon: the actions after which it ends an episode; by default its own limit.
        episodes: how many problems each split has.
        seed: what the seeds of all problems are drawn from.
    """

    environment: str
    returns: Returns
    kwargs: dict[str, Any] = field(factory=dict)
    horizon: Annotated[int, Meta(ge=1)] | None = None
    episodes: Counts = Counts()
    seed: int = 0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Yield the task; its environments are closed in the end.

        Raises:
            UsageError: there is no such environment, or it cannot be made, observed or acted in,
                or the run's limit of turns ends episodes before the environment does.
        """
        from orchestrion_gymnasium.running import RunningGymnasium

        running = RunningGymnasium(self, ctx.path)
        if running.horizon is not None and ctx.turns is not None and ctx.turns < running.horizon:
            raise UsageError(
                f"{ctx.path}: an episode of {self.environment} may take {running.horizon} actions, "
                f"but limits.turns is {ctx.turns}; set `limits: {{turns: {running.horizon}}}`, or "
                f"`horizon: {ctx.turns}`"
            )
        try:
            yield running
        finally:
            running.close()
