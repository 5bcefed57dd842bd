"""Episodes that a trainer finishes side by side."""

from __future__ import annotations

import asyncio
from typing import Any

from attrs import frozen

from orchestrion import Calls, Key, Problem, Scores, Trajectory
from orchestrion.session import EngineSession
from orchestrion.testing import Fixed, ListTask, ScriptedAgent, engine_for


@frozen
class Slowest(ListTask):
    """Verifies the first problem last."""

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Later problems wait for fewer turns of the event loop."""
        for _ in range(10 - int(problem.id.rpartition("-")[2])):
            await asyncio.sleep(0)
        return Scores(1.0, True)


def test_finished_episodes_stand_in_the_order_in_which_finishing_began() -> None:
    async def main() -> None:
        engine = engine_for({"a": ScriptedAgent()}, Fixed(["a"]), Slowest(5))
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        branches = [session.begin(one, Key(n)) for n, one in enumerate(session.problems())]
        done = await asyncio.gather(*(session.finish(branch) for branch in branches))
        assert [one.id for one in done] == [f"0/0/{n}" for n in range(5)]
        assert session.episodes == done
        assert session.trained_on == 5

    asyncio.run(main())
