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

    A problem is a seed. An agent's turn is one action: the "action" in its data, all of its data,
    or its content as JSON. A turn without an action changes nothing, and the observation says why.
    The verdict is the value of the return, and 0 if the environment did not end the episode.

    Args:
        environment: its id, such as `CartPole-v1`, or `module:id` for one that a module registers.
        returns: the value of returns.
        kwargs: settings of the environment.
        horizon: the most actions of an episode; by default the environment's own limit.
        episodes: the number of problems of each split.
        seed: of the draws of all problems' seeds.
    """

    environment: str
    returns: Returns
    kwargs: dict[str, Any] = field(factory=dict)
    horizon: Annotated[int, Meta(ge=1)] | None = None
    episodes: Counts = Counts()
    seed: int = 0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Yield the task, and close its environments at the end.

        Raises:
            UsageError: the environment does not exist or cannot be used, or the run's limit of
                turns is lower than the horizon.
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
