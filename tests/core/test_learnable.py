"""A session says what can be learned, as it is and as it will be."""

from __future__ import annotations

import asyncio

from attrs import frozen

from orchestrion import Agent, Calls, Component, Job, Key, Output, View, hookimpl, learnable
from orchestrion._engine.calls import CallPath
from orchestrion._plugins import Plugins
from orchestrion._session import EngineSession
from orchestrion.config import from_data
from orchestrion.testing._stage import NAME, Stage, building, opened


@frozen
class Learner(Agent):
    """Says what it was taught.

    Args:
        text: what that is.
        loud: how it says so.
    """

    text: str = learnable("nothing")
    loud: bool = False

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """The text."""
        return Output(self.text)


class Supplies:
    """The agent as a plugin."""

    @hookimpl
    def orchestrion_agents(self) -> list[Component]:
        """One."""
        return [Component("learner", f"{__name__}:Learner", "says what it was taught")]


def test_a_session_gives_learnable_settings_with_what_was_adopted() -> None:
    plugins = Plugins()
    plugins.register(Stage(), NAME)
    plugins.register(Supplies(), "supplies")
    config = from_data(
        {
            "seed": 1,
            "task": {"use": "kit-task"},
            "agents": {"a": {"use": "learner"}},
            "policy": {"use": "kit-policy"},
        },
        plugins=plugins,
    )

    async def main() -> None:
        async with opened(config) as one:
            engine = one.engine(CallPath())
            session = EngineSession(engine, "s", Key(1), Key(2), build=building(config))
            assert session.learnable() == {"agents.a.text": "nothing"}
            async with session.build({"agents.a.text": "a trial"}) as inner:
                assert inner.learnable() == {"agents.a.text": "a trial"}
                jobs = [Job(problem, Key(3)) for problem in inner.problems()]
                assert len(await inner.rollout(jobs)) == len(jobs) > 0
            assert session.trained_on == len(session.episodes) == len(jobs)
            session.adopt({"agents.a.text": "something"})
            assert session.learnable() == {"agents.a.text": "something"}
            engine.close()

    asyncio.run(main())
