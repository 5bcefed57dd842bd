"""The trainer as a run uses it: what it leaves, improves, promises, and goes on from."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_beam.interfaces import Group, Improvement, Improver, Valued, ValueEstimator
from orchestrion_beam.trainer import BeamTrainer, GrpoBeam
from orchestrion_beam.values import TaskValue

from orchestrion import (
    Agent,
    Answer,
    Branch,
    BudgetError,
    Calls,
    Episode,
    Key,
    OpenContext,
    Output,
    Plan,
    Problem,
    Request,
    Reward,
    RunError,
    Saved,
    Session,
    Usage,
    UsageError,
    View,
)
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion._engine.opening import open_components
from orchestrion._forecast import Forecast, forecast
from orchestrion._session import EngineSession
from orchestrion._store.serial import encode
from orchestrion.config import from_data
from orchestrion.testing import Fixed
from tests.coroutines import sync
from tests.plugins.beam.support import Climber, Delays, Ladder, Value, opened, session_for

GIVEN = GrpoBeam(rounds=4, problems=2, beam_width=3, samples=3, turns=4, held_out=3, probes=2)


def plan_of(given: GrpoBeam, i: int) -> Plan:
    """Return the bound of iteration i on nine problems in each split."""
    sizes: Any = {"train": 9, "validation": 9, "test": 9}
    plan = BeamTrainer(given, OpenContext("trainer", Key(7))).plan(i, sizes)
    assert plan is not None
    return plan


def climbing(**more: Any) -> EngineSession:
    """A session on small ladders."""
    return session_for({"a": Climber(0.6, **more)}, Ladder(4, 8))


# ----------------------------------------------------------------------------- iterations


@sync
async def test_iterations_go_through_all_problems_before_any_comes_again() -> None:
    trainer = await opened(GIVEN)
    problems = climbing().problems("train")
    drawn = [problem.id for i in range(8) for problem in trainer._problems_of(i, problems)]
    assert sorted(drawn[:8]) == sorted(drawn[8:]) == sorted(p.id for p in problems)
    assert drawn[:8] != drawn[8:]


@sync
async def test_an_iteration_reports_what_its_searches_did() -> None:
    trainer, session = await opened(evolve(GIVEN, credit="counterfactual")), climbing()
    numbers = dict.fromkeys("failed_samples unreadable cut dead_groups lost_problems".split(), 0)
    numbers |= {"calls": 48, "samples": 48, "widest": 9, "duplicates": 15, "estimates": 33}
    numbers |= {"scored_share": 1, "credit_turns": 12, "ancestors": 1, "chosen_reward": 1}
    expected = {**numbers, "parents": 1.625, "advantage": 1 / 9}
    assert await trainer.iterate(0, session) == pytest.approx(expected)
    # Everything that the searches ended with is judged, and stored in a fixed order.
    assert [episode.id for episode in session.episodes] == [f"0/0/{n}" for n in range(6)]


def test_metrics_and_files_are_independent_of_the_completion_order(tmp_path: Path) -> None:
    async def main(n: int) -> list[Any]:
        folder = tmp_path / str(n)
        trainer = await opened(evolve(GIVEN, credit="counterfactual"), directory=folder)
        session = climbing(delay=Delays(n), fails=0.1)
        metrics = await trainer.iterate(0, session)
        files = sorted(folder.rglob("*.*"))
        return [metrics, encode(session.episodes), [path.read_bytes() for path in files]]

    first, second = (asyncio.run(main(n)) for n in (1, 2))
    assert first == second
    assert len(first[2]) == 3


@sync
async def test_a_run_without_any_reward_names_what_is_missing() -> None:
    class Silent(Value):
        """Never gives a reward."""

        async def score(self, episode: Episode, calls: Calls) -> Reward | None:
            return None

    session = session_for({"a": Climber()}, Ladder(4, 8), reward=Silent())
    with pytest.raises(RunError, match=r"every reward is missing.*reward:"):
        await (await opened(GIVEN)).iterate(0, session)


# -------------------------------------------------------------------------------- exports


def test_advantages_credits_and_the_tree_are_exported(tmp_path: Path) -> None:
    notes: list[str] = []

    async def main() -> BeamTrainer:
        context = OpenContext(
            "trainer[1]", Key(7), directory=tmp_path, note=lambda name, text: notes.append(text)
        )
        async with GIVEN.open(context) as trainer:
            assert isinstance(trainer, BeamTrainer)
            session = climbing()
            for i in (0, GIVEN.rounds):
                await trainer.iterate(i, session)
            return trainer

    trainer = asyncio.run(main())
    assert notes == trainer.report["sentences"]
    folder = tmp_path / "exports" / "beam" / "trainer-1"  # a stage has a folder of its own
    rows = list(csv.DictReader((folder / "advantages-0000.csv").read_text().splitlines()))
    assert len({row["problem"] for row in rows}) == 2
    assert sum(int(row["chosen"]) for row in rows) == 2
    for name in {row["problem"] for row in rows}:
        group = [row for row in rows if row["problem"] == name]
        assert sum(float(row["advantage"]) for row in group) == pytest.approx(0)
        assert max(group, key=lambda row: float(row["reward"]))["chosen"] == "1"
    credits = list(csv.DictReader((folder / "credits-0000.csv").read_text().splitlines()))
    assert len(credits) == sum(int(row["turns"]) for row in rows)
    tree = [json.loads(line) for line in (folder / "tree-0000.jsonl").read_text().splitlines()]
    known = {(node["problem"], node["path"]) for node in tree}
    assert {(row["problem"], row["path"]) for row in rows} <= known
    assert {node["fate"] for node in tree} <= {"grown", "final", "pruned", "duplicate", "failed"}
    assert sum(node["fate"] == "final" for node in tree) == len(rows)
    assert json.loads((folder / "report.json").read_text()) == trainer.report
    assert all(text in (folder / "report.txt").read_text() for text in trainer.report["sentences"])


# ------------------------------------------------------------------------------ improvers


@define
class Noting(Improver):
    """Proposes what it is told to, and notes what it is shown."""

    overlay: dict[str, Any] = field(factory=dict)
    seen: list[tuple[int, Sequence[Group], list[str]]] = field(factory=list)

    async def improve(
        self, round: int, groups: Sequence[Group], problems: Sequence[Problem], session: Session
    ) -> Improvement:
        self.seen.append((round, groups, [problem.id for problem in problems]))
        return Improvement(self.overlay, {"habits": 2.0})

    def plan(self, i: int, sizes: Any) -> Plan:
        return Plan(turns=10, verdicts=1)


@sync
async def test_an_improver_sees_all_groups_since_its_last_call_and_its_overlay_is_adopted() -> None:
    improver = Noting({"agents.a.habits": ["look up"]})
    trainer = await opened(evolve(GIVEN, improver=improver, improve_every=2))
    session = climbing()
    for i in range(4):
        metrics = await trainer.iterate(i, session)
        if i % 2:
            assert metrics["habits"] == 2.0
            assert metrics["adopted"] == 1.0
    assert session.adopted == {"agents.a.habits": ["look up"]}
    assert [round for round, _, _ in improver.seen] == [0, 1]
    for _, groups, gate in improver.seen:
        assert len(groups) == 4
        _, held_out = trainer.split(session)
        assert not set(gate) & {problem.id for problem in held_out}
        for group in groups:
            rewards = [reward or 0.0 for reward in group.rewards]
            assert rewards == sorted(rewards, reverse=True)
            assert len(group.advantages) == len(group.credits) == len(group.episodes)


@sync
async def test_the_start_overlay_of_an_improver_holds_from_the_first_iteration_on() -> None:
    class Prepared(Noting):
        """Has learned before."""

        def start(self, session: Session) -> dict[str, Any]:
            return {"agents.a.habits": ["known"]}

    session = climbing()
    await (await opened(evolve(GIVEN, improver=Prepared()))).iterate(0, session)
    assert session.adopted == {"agents.a.habits": ["known"]}


@sync
async def test_groups_that_wait_for_the_improver_survive_a_restart() -> None:
    improver = Noting()
    given = evolve(GIVEN, improver=improver, improve_every=2)
    first, session = await opened(given), climbing()
    await first.iterate(0, session)
    saved = first.save()
    again = await opened(given)
    again.load(Saved(data=json.loads(json.dumps(saved.data))))
    assert again.save() == saved
    assert again.pending == first.pending
    await again.iterate(1, session)
    await first.iterate(1, climbing())
    (_, resumed, _), (_, straight, _) = improver.seen
    assert len(resumed) == len(straight) == 4


@sync
async def test_an_improver_needs_problems_to_decide_on() -> None:
    trainer = await opened(evolve(GIVEN, improver=Noting()))
    with pytest.raises(UsageError, match="1 validation problems"):
        trainer.check(session_for({"a": Climber()}, Ladder(4, 1)))


# -------------------------------------------------------------------------------- bounds


@sync
async def test_a_bound_counts_the_turns_after_each_one_that_is_left_out() -> None:
    settings = GrpoBeam(beam_width=2, samples=3, turns=4, problems=1, held_out=2)
    sizes: Any = {"train": 6, "validation": 6, "test": 6}
    plain = (await opened(settings)).plan(0, sizes)
    credited = (await opened(evolve(settings, credit="counterfactual", credited=9))).plan(0, sizes)
    assert plain is not None
    assert credited is not None
    # Of both trajectories: 3 turns are run again without the first, 2 without the second, then 1.
    assert credited.turns - plain.turns == 2 * (3 + 2 + 1)
    assert credited.scores - plain.scores == 2 * 4


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from(["equal", "counterfactual"]),
    st.booleans(),
    st.sampled_from(["reward", "value"]),
)
@settings(max_examples=12)
def test_no_iteration_uses_more_than_its_bound(
    width: int, samples: int, turns: int, credit: Any, early: bool, select: Any
) -> None:
    scored = finals = 0

    class Counting(Ladder):
        """Counts what it is asked."""

        async def verify(self, *args: Any, final: bool, **more: Any) -> Any:
            nonlocal scored
            scored += 1
            return await super().verify(*args, final=final, **more)

    async def main() -> None:
        nonlocal scored, finals
        trainer = await opened(
            GrpoBeam(
                rounds=1,
                problems=2,
                beam_width=width,
                samples=samples,
                turns=turns,
                credit=credit,
                early_stop=early,
                select=select,
                held_out=2,
                probes=2,
            )
        )
        agents: dict[str, Agent] = {"a": Climber(0.6), "b": Climber(0.7, fails=0.2)}
        session = session_for(agents, Counting(5, 6), Fixed(["a", "b"] * 50))
        sizes: Any = {"train": 6, "validation": 6, "test": 6}
        for i in range(2):
            plan = trainer.plan(i, sizes)
            assert plan is not None
            before = sum(getattr(agent, "acts", 0) for agent in agents.values())
            ended, scored = len(session.episodes), 0
            await trainer.iterate(i, session)
            acts = sum(getattr(agent, "acts", 0) for agent in agents.values()) - before
            finals = len(session.episodes) - ended
            assert acts <= plan.turns
            assert finals <= plan.verdicts
            assert scored - finals <= plan.scores

    asyncio.run(main())


def test_the_bound_of_a_full_search_is_exact_and_includes_an_improver_that_is_due() -> None:
    given = GrpoBeam(problems=3, beam_width=10, samples=5, turns=15)
    plan = plan_of(given, 0)
    readings = ((TaskValue(), 3 * 680),)
    assert plan == Plan(0, 3 * 680, 30, 3 * 680, readings=readings, longest=15)
    improved = evolve(GIVEN, improver=Noting(), improve_every=3)
    assert [plan_of(improved, i).turns for i in range(4)] == [60, 60, 70, 60]
    comparison = plan_of(GIVEN, GIVEN.rounds)
    assert (comparison.turns, comparison.verdicts, comparison.scores) == (579, 309, 273)
    assert ([times for _, times in comparison.readings], comparison.longest) == ([90, 183], 16)
    changes: dict[str, Any] = {"select": "value", "early_stop": True, "longest": 3}
    by_value = evolve(GIVEN, **changes, baselines=("single", "sequential"))
    comparison = plan_of(by_value, GIVEN.rounds)
    assert (comparison.turns, comparison.verdicts, comparison.scores) == (246, 159, 345)
    assert ([times for _, times in comparison.readings], comparison.longest) == ([90, 165], 4)


def test_the_bound_includes_calls_of_estimates() -> None:
    class Judge(ValueEstimator):
        """Asks a model."""

        def ceiling(self, tokens: int) -> Usage:
            return Usage(calls=2, input_tokens=tokens)

        async def estimate(self, branch: Branch, session: Session, key: Key) -> Valued:
            raise NotImplementedError

    judge = Judge()
    plan = plan_of(evolve(GIVEN, value=judge), 0)
    samples = 2 * GIVEN.samples_per_search
    assert plan.readings == ((judge, samples),)
    # Baselines may make as many calls as the search, its estimates' included.
    dear = plan_of(evolve(GIVEN, value=judge), GIVEN.rounds)
    free = plan_of(GIVEN, GIVEN.rounds)
    assert dear.turns > 1.5 * free.turns


def test_the_dry_run_includes_the_tokens_of_estimates_and_long_baselines() -> None:
    async def main(**trainer: Any) -> Forecast:
        data = {
            "task": {"use": "steps", "steps": 4, "train": 4, "validation": 6, "test": 4},
            "models": {
                "small": {"use": "offline", "speaker": {"use": "solver"}},
            },
            "agents": {"solver": {"use": "chat", "model": "small"}},
            "policy": {"use": "round-robin"},
            "reward": {"use": "exact-outcome"},
            "trainer": {"use": "grpo-beam", "rounds": 1, "turns": 3, "held_out": 1, **trainer},
            "limits": {"turns": 3},
        }
        config = from_data(data)
        async with AsyncExitStack() as stack:
            return forecast(await open_components(config, stack, Key(1), live=False))

    speaking = {"use": "offline", "speaker": {"use": "judge"}}
    judged = asyncio.run(main(value={"use": "judge", "model": speaking}))
    assert judged.unknown == ()
    own = {part.who: part.usage for part in judged.parts if part.part == "trainer"}
    assert own["trainer"].calls > 8 * 50
    assert own["trainer"].input_tokens > 0
    short, long = (asyncio.run(main(longest=n)) for n in (3, 12))
    # More turns, each of which may read a longer trajectory.
    assert long.total.tokens > 1.5 * short.total.tokens


# --------------------------------------------------------------------------------- resume


class Memory:
    """A journal that outlives a crash."""

    def __init__(self) -> None:
        self.rows: dict[str, Recorded] = {}

    def get(self, key: str) -> Recorded | None:
        return self.rows.get(key)

    def put_many(self, rows: list[Recorded]) -> None:
        self.rows |= {row.key: row for row in rows}


@define
class Calling(Climber):
    """Climbs by calls, and breaks off after some of them."""

    made: int = 0
    until: int | None = None

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        output = await super().act(view, key, calls)

        async def call() -> Answer:
            if self.made == self.until:
                raise BudgetError("no more")
            self.made += 1
            return Answer(output.content, Usage(calls=1))

        said = [turn.output.content for turn in view.turns]
        answer = await calls.run(Request("climb", said, sample=key.hex()), call)
        return Output(answer.data)


def digests(session: EngineSession, folder: Path, metrics: Any) -> list[str]:
    files = [path.read_bytes() for path in sorted(folder.rglob("*.*"))]
    return [sha256(data).hexdigest() for data in (*files, encode(session.episodes))] + [
        str(metrics)
    ]


@pytest.mark.parametrize(("i", "until"), [(0, 20), (GIVEN.rounds, 60)])
def test_an_interrupted_search_continues_from_its_recorded_calls(
    i: int, until: int, tmp_path: Path
) -> None:
    async def run(agent: Calling, journal: Any, folder: Path) -> list[str]:
        trainer = await opened(evolve(GIVEN, baselines=("greedy",)), directory=folder)
        session = session_for({"a": agent}, Ladder(4, 8), calls=CallPath(journal=journal))
        metrics = await trainer.iterate(i, session)
        return digests(session, folder, metrics)

    whole = Calling(0.6)
    expected = asyncio.run(run(whole, Memory(), tmp_path / "whole"))
    journal, killed = Memory(), Calling(0.6, Delays(3), until=until)
    with pytest.raises(BudgetError):
        asyncio.run(run(killed, journal, tmp_path / "killed"))
    again = Calling(0.6, Delays(4))
    assert asyncio.run(run(again, journal, tmp_path / "killed")) == expected
    # Those that were in flight when it broke off are made again, and no others.
    assert whole.made <= killed.made + again.made <= whole.made + 3 * 9
