"""The policy `inquiry` asks as long as an answer is worth its price; `best-inquiry` finds whom
first."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from attrs import evolve
from orchestrion_recorded.inquiring import BestInquiry, Inquiring
from orchestrion_recorded.inquiry import InquiryRunner, Opening

from orchestrion import (
    Activation,
    CheckpointError,
    Decision,
    Key,
    Member,
    Observation,
    Problem,
    Saved,
    Situation,
    Trajectory,
)
from orchestrion._engine.calls import CallPath
from orchestrion._engine.opening import open_components
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data

CHEAP, DEAR = Activation("ask", "cheap"), Activation("ask", "dear")
OFFERS = {"cheap": {"cost": 0.1}, "dear": {"cost": 1.0}}
MODELS = ["m1", "m2", "m3", "m4"]


def next_of(
    runner: InquiryRunner, cheap: float, dear: float, category: str = "", **shown: Any
) -> Decision:
    """What is decided where the answers of the two add so much."""
    hints = {"ask:cheap": (cheap, 0.5, 0.1), "ask:dear": (dear, 0.5, 1.0)}
    seen = Observation(data={"offers": OFFERS}, hints=hints, **shown)
    situation = Situation(Problem("p", "x", category=category), Trajectory(), seen)
    return runner.decide([situation], [Key(0)])[0]


def test_it_asks_whoever_adds_most_for_its_price_and_stops_where_nobody_does() -> None:
    runner = InquiryRunner((CHEAP, DEAR), 0.5, Opening())
    assert next_of(runner, 0.2, 0.6).start == (CHEAP,)
    assert next_of(runner, 0.2, 0.8).start == (DEAR,)
    assert next_of(runner, 0.05, 0.5).stop
    assert next_of(runner, 0.2, 0.8, blocked=frozenset({"ask:dear"})).start == (CHEAP,)


def test_an_eager_one_goes_on_longer() -> None:
    runner = InquiryRunner((CHEAP, DEAR), 0.5, Opening((), 1.5))
    assert next_of(runner, 0.04, 0.0).start == (CHEAP,)


def test_a_category_may_have_an_opening_of_its_own() -> None:
    runner = InquiryRunner((CHEAP, DEAR), 0.5, Opening((CHEAP,)), {"law": Opening((CHEAP, DEAR))})
    assert next_of(runner, 0, 0).start == (CHEAP,)
    assert next_of(runner, 0, 0, "law").start == (CHEAP, DEAR)
    blocked = next_of(runner, 0, 0, "law", blocked=frozenset({"ask:cheap"}))
    assert blocked.start == (DEAR,)


def test_without_offers_it_stops() -> None:
    runner = InquiryRunner((CHEAP,), 0.5, Opening())
    shown = Situation(Problem("p", "x"), Trajectory())
    assert runner.decide([shown], [Key(0)])[0].stop


def test_it_loads_what_it_saved_and_refuses_another_team() -> None:
    runner = InquiryRunner((CHEAP, DEAR), 0.5, Opening((CHEAP,), 1.5), {"law": Opening((DEAR,))})
    fresh = InquiryRunner((CHEAP, DEAR), 0.0, Opening())
    fresh.load(runner.save())
    assert fresh.save() == runner.save()
    with pytest.raises(CheckpointError, match="of this team"):
        InquiryRunner((CHEAP,), 0.0, Opening()).load(runner.save())
    with pytest.raises(CheckpointError):
        fresh.load(Saved(data=None))


def config(weight: float, episodes: int = 2400) -> Config:
    generated = {"questions": 150, "models": 4, "groups": 2, "none": 0.1}
    return from_data(
        {
            "seed": 1,
            "task": {"use": "recorded", "generated": generated},
            "agents": {"ask": {"use": "recorded", "models": MODELS}},
            "policy": {"use": "inquiry"},
            "reward": {"use": "outcome-minus-cost", "cost_weight": weight},
            "trainer": {"use": "best-inquiry", "reward": "reward", "episodes": episodes},
        }
    )


async def trained(of: Config) -> tuple[InquiryRunner, list[Any], list[float]]:
    """All iterations of the trainer: what was learned, metrics, rewards on training questions."""
    async with AsyncExitStack() as stack:
        run = await open_components(of, stack, Key(1))
        engine = run.engine(CallPath())
        trainer, metrics = run.runtimes["trainer"], []
        for i in range(trainer.iterations):
            session = EngineSession(engine, f"{i}/0", Key(1).child(i), Key(2))
            metrics.append(await trainer.iterate(i, session))
        judge = EngineSession(engine, "e", Key(1), Key(2), test=True)
        episodes = await judge.evaluate("train")
        engine.close()
        return run.runtimes["policy"], metrics, [one.reward.total for one in episodes if one.reward]


def test_the_trainer_installs_the_opening_that_pays_at_the_run_s_price() -> None:
    runner, metrics, rewards = asyncio.run(trained(config(0.1)))
    assert [one["openings"] for one in metrics] == [5, 22, 12]
    assert runner.weight == pytest.approx(0.1)
    assert set(runner.categories) == {"g1", "g2"}
    assert sum(rewards) / len(rewards) > 0.35
    free, _, _ = asyncio.run(trained(config(50.0)))
    assert free.opening.first == ()


def test_categories_lean_on_the_mean_over_all_questions() -> None:
    settings = BestInquiry(reward=None, shrinkage=0.0)  # type: ignore[arg-type]
    rows, names = [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], ["rare", "usual", "usual"]
    means = [1 / 3, 2 / 3]
    alone = Inquiring(settings, (Member("a"),))
    leaning = Inquiring(evolve(settings, shrinkage=50.0), (Member("a"),))
    assert alone._by_category(rows, means, names) == {"rare": 0, "usual": 1}
    assert leaning._by_category(rows, means, names) == {"rare": 1, "usual": 1}
