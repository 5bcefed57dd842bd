"""Counterfactual credit of turns."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, evolve, frozen
from orchestrion_beam.groups import counterfactual_credits
from orchestrion_beam.nodes import SearchNode
from orchestrion_beam.trainer import GrpoBeam

from orchestrion import (
    Activation,
    Agent,
    Calls,
    Key,
    Output,
    Problem,
    Scores,
    Session,
    Trajectory,
    View,
)
from orchestrion.testing import Fixed, ListTask
from tests.coroutines import sync
from tests.plugins.beam.support import Climber, Ladder, opened, session_for

KEY = Key(3)


@define
class Adder(Agent):
    """Adds `amount` to the last number it may read, and something drawn from its key."""

    amount: int
    options: tuple[str, ...] = ()

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        before = int(view.turns[-1].output.content) if view.turns else 0
        return Output(str(before + self.amount), {"draw": key.integer()})


@frozen
class Sum(ListTask):
    """The last number, over a hundred."""

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        turns = trajectory.turns
        return Scores(int(turns[-1].output.content) / 100 if turns else 0.0)


async def chain(session: Session, *starts: tuple[Activation, ...]) -> SearchNode:
    """A trajectory that a search could have found."""
    node = SearchNode(session.begin(session.problems("train")[0], KEY.child("begin")))
    for start in starts:
        key = KEY.child("extend", *node.path, 0)
        node = node.child(0, start, await session.extend(node.branch, start, key))
    return node


@sync
async def test_a_turn_is_worth_what_is_lost_without_it() -> None:
    agents = {"one": Adder(1), "ten": Adder(10), "none": Adder(0)}
    session = session_for(agents, Sum(1), Fixed([]))
    node = await chain(session, *((Activation(name),) for name in agents))
    credits, turns = await counterfactual_credits(session, node, 0.11, KEY)
    assert credits == pytest.approx((0.01, 0.1, 0.0))
    assert turns == 2 + 1


@sync
async def test_the_rest_is_run_again_with_the_same_keys() -> None:
    seen: list[tuple[str, int]] = []

    @define
    class Noted(Adder):
        """Notes what it drew."""

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            seen.append((view.agent, key.integer()))
            return await super().act(view, key, calls)

    agents = {name: Noted(1) for name in "abc"}
    session = session_for(agents, Sum(1), Fixed([]))
    node = await chain(session, *((Activation(name),) for name in agents))
    original = dict(seen)
    seen.clear()
    await counterfactual_credits(session, node, 0.03, KEY)
    assert sorted(name for name, _ in seen) == ["b", "c", "c"]
    assert all(original[name] == draw for name, draw in seen)


@sync
async def test_turns_that_read_others_by_index_read_the_same_turns() -> None:
    agents = {"one": Adder(1), "ten": Adder(10), "two": Adder(2)}
    session = session_for(agents, Sum(1), Fixed([]))
    node = await chain(
        session,
        (Activation("one"),),
        (Activation("ten"),),
        (Activation("two", reads=(0,)),),
    )
    # Without `one`, `two` reads nothing and says 2; without `ten` it says 3, as it did; without
    # itself the last word is `ten`'s, which reads `one`: 11.
    credits, _ = await counterfactual_credits(session, node, 0.03, KEY)
    assert credits == pytest.approx((0.01, 0.0, -0.08))


@sync
async def test_agents_that_act_together_share_the_credit() -> None:
    agents = {"one": Adder(1), "ten": Adder(10), "sum": Adder(0)}
    session = session_for(agents, Sum(1), Fixed([]))
    both = (Activation("one"), Activation("ten"))
    node = await chain(session, both, (Activation("sum"),))
    score = (await session.score(node.branch, final=True)).value
    credits, _ = await counterfactual_credits(session, node, score, KEY)
    assert credits == pytest.approx((0.05, 0.05, 0.0))


@sync
async def test_the_trainer_credits_the_best_and_shares_for_the_others() -> None:
    given = GrpoBeam(
        beam_width=4, samples=3, turns=4, problems=2, credit="counterfactual", credited=2
    )
    session = session_for({"a": Climber(0.6)}, Ladder(4))
    trainer = await opened(given)
    for search, group, _, _ in await trainer._search_problems(0, session):
        assert search.counts.credit_turns == 2 * (3 + 2 + 1)
        for n, credits in enumerate(group.credits):
            episode, advantage = group.episodes[n], group.advantages[n]
            assert len(credits) == len(episode.turns)
            if n >= 2:
                assert credits == pytest.approx(((advantage or 0.0) / 4,) * 4)
            else:
                # Without a digit one less can be right; the others draw as before.
                assert any(credits)
        assert group.agents[0]["a"] == pytest.approx(sum(group.credits[0]))
    equal = await opened(evolve(given, credit="equal"))
    assert (await equal.iterate(0, session))["credit_turns"] == 0
