"""Episodes that a trainer finishes side by side."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import frozen

from orchestrion import Calls, Job, Key, Problem, Scores, Trajectory
from orchestrion._session import EngineSession
from orchestrion.testing import Fixed, ListTask, ScriptedAgent, engine_for
from tests.coroutines import sync


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


@sync
async def test_finished_episodes_stand_in_the_order_in_which_finishing_began() -> None:
    engine = engine_for({"a": ScriptedAgent()}, Fixed(["a"]), Slowest(5))
    session = EngineSession(engine, "0/0", Key(1), Key(2))
    branches = [session.begin(one, Key(n)) for n, one in enumerate(session.problems())]
    done = await asyncio.gather(*(session.finish(branch) for branch in branches))
    assert [one.id for one in done] == [f"0/0/{n}" for n in range(5)]
    assert session.episodes == done
    assert session.trained_on == 5


@pytest.fixture
def usual_collector() -> Iterator[None]:
    """Collect garbage as Python does by default, and not as the test suite does."""
    thresholds = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*thresholds)
    gc.freeze()


@pytest.mark.usefixtures("usual_collector")
def test_the_garbage_collector_is_as_it_was_after_episodes_that_it_looked_at_less_often() -> None:
    seen: list[tuple[int, ...]] = []

    class Looks(Slowest):
        async def verify(self, *given: Any, **named: Any) -> Scores:
            seen.append((gc.get_threshold()[0], gc.get_freeze_count()))
            return Scores(1.0, True)

    engine = engine_for({"a": ScriptedAgent()}, Fixed(["a"]), Looks(2))
    session = EngineSession(engine, "0/0", Key(1), Key(2))
    before = gc.get_threshold(), gc.get_freeze_count()
    asyncio.run(session.rollout([Job(one, Key(1)) for one in session.problems()]))
    assert all(threshold > before[0][0] and frozen > before[1] for threshold, frozen in seen)
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
