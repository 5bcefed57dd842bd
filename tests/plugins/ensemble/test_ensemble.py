"""The agent: a nested team run by the engine, with every way a member can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_ensemble.ensemble import Ensemble, Mixture, OpenEnsemble
from orchestrion_ensemble.interfaces import Aggregator
from orchestrion_ensemble.votes import Majority, Plurality, Quorum
from orchestrion_ensemble.weighted import Weighted

from orchestrion import Agent, Calls, Key, OpenContext, Output, Usage, UsageError, View
from orchestrion.testing._fakes import ScriptedAgent
from tests.plugins.ensemble.support import Says, ask, episode


def says(*answers: str, cost: float = 1.0) -> dict[str, Agent]:
    """Members "a", "b", ... with one answer each."""
    names = "abcdefghij"
    return {
        name: Says(Output(answer, usage=Usage(cost=cost)))
        for name, answer in zip(names, answers, strict=False)
    }


# ------------------------------------------------------------------ the result


def test_the_turn_is_a_typed_result_with_the_ballots_behind_it() -> None:
    turn = ask(says("Yes", "no", "yes."))
    assert turn.output.content == "Yes", "as its first voter said it"
    assert turn.output.data == {
        "status": "winner",
        "answer": "yes",
        "leaders": ["yes"],
        "rule": "",
        "scores": {"yes": 2.0, "no": 1.0},
        "coverage": 1.0,
        "notes": [],
        "ballots": [
            {"voter": "a", "status": "cast", "answer": "yes", "text": "Yes"},
            {"voter": "b", "status": "cast", "answer": "no"},
            {"voter": "c", "status": "cast", "answer": "yes", "text": "yes."},
        ],
    }


def test_members_are_all_asked_at_once_and_read_nothing_of_each_other() -> None:
    """Nobody goes on before the last has begun: one after the other, this would hang."""
    names, begun, everybody = "abc", [], asyncio.Event()

    class Meets(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            begun.append(len(view.turns))
            if len(begun) == len(names):
                everybody.set()
            await everybody.wait()
            return Output("x")

    turn = ask({name: Meets() for name in names}, timeout=5)
    assert turn.output.data["scores"] == {"x": 3.0}
    assert begun == [0, 0, 0]


def test_at_most_at_once_members_run_at_the_same_time() -> None:
    running, most = [0], [0]

    class Counted(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            assert not view.turns
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0)
            running[0] -= 1
            return Output("x")

    turn = ask({name: Counted() for name in "abcdef"}, at_once=2)
    assert turn.output.data["scores"] == {"x": 6.0}
    assert most[0] == 2


def test_a_member_votes_once_for_each_option_and_each_time_it_is_named() -> None:
    @frozen
    class Warm(Agent):
        @property
        def options(self) -> Sequence[str]:
            return ("cold", "hot")

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            return Output(f"{view.option} {key.uniform():.6f}")

    turn = ask({"warm": Warm()}, samples=2)
    voters = [one["voter"] for one in turn.output.data["ballots"]]
    assert voters == ["warm:cold", "warm:cold", "warm:hot", "warm:hot"]
    assert len(turn.output.data["scores"]) == 4, "each sample draws on its own"
    assert turn.output.data["notes"] == [
        "correlated: warm:cold is asked 2 times",
        "correlated: warm:hot is asked 2 times",
    ]
    twice = ask({**says("x"), "b": Says(Output("y"))}, asked=["a", "a", "b"])
    assert twice.output.content == "x"


def test_members_that_share_a_model_are_flagged() -> None:
    model = object()

    @frozen(slots=False)
    class Asks(Agent):
        model: Any

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            return Output("x")

    turn = ask({"a": Asks(model), "b": Asks(model), "c": Asks(object())})
    assert turn.output.data["notes"] == ["correlated: a, b use the same model"]


# ------------------------------------------------------------------ edge cases


def test_an_ensemble_without_members_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one member"):
        OpenEnsemble(Ensemble(members=[]), [])


def test_one_member_is_passed_through_with_a_note() -> None:
    turn = ask(says("Only this."))
    assert turn.output.content == "Only this."
    assert turn.output.data["notes"] == ["one member: its answer is passed through"]


def test_a_failed_member_has_no_vote_and_its_cost_counts() -> None:
    members = {**says("x", "x"), "broken": Says(RuntimeError("ill"))}
    turn = ask(members)
    assert (turn.status, turn.output.content) == ("completed", "x")
    assert turn.output.data["coverage"] == pytest.approx(2 / 3)
    ballot = dict(turn.output.data["ballots"][2])
    assert ballot.pop("error").startswith("RuntimeError: ill (support.py:")
    assert ballot == {"voter": "broken", "status": "failed", "answer": None}


def test_a_hanging_member_times_out_and_the_others_decide() -> None:
    hung = Says(None)
    turn = ask({**says("x", "y", "x"), "hung": hung}, timeout=0.05)
    assert turn.output.content == "x"
    assert turn.output.data["ballots"][3]["status"] == "failed"
    assert hung.cancelled == 1


def test_too_few_votes_are_no_consensus() -> None:
    members = {**says("x"), "b": Says(RuntimeError("ill")), "c": Says(Output(""))}
    turn = ask(members, min_votes=2)
    assert (turn.output.content, turn.output.data["status"]) == ("", "no_consensus")
    assert turn.output.data["notes"] == ["1 of 3 answered; 2 are needed"]


def test_all_failing_is_no_consensus_and_can_fail_the_turn() -> None:
    members: dict[str, Agent] = {name: Says(RuntimeError("ill")) for name in "ab"}
    assert ask(members).output.data["status"] == "no_consensus"
    failed = ask(members, on_no_consensus="fail")
    assert failed.status == "failed"
    assert "no_consensus: nobody gave an answer" in failed.error


def test_an_unreadable_member_is_invalid_and_the_others_decide() -> None:
    odd = Says(Output("y", {"probabilities": {"y": 2.0}}))
    turn = ask({**says("x"), "odd": odd})
    assert turn.output.content == "x"
    assert turn.output.data["ballots"][1]["status"] == "invalid"
    assert "sum to 2" in turn.output.data["ballots"][1]["error"]


@pytest.mark.parametrize("more", [{}, {"at_once": 1}, {"early_stop": True}])
def test_a_members_final_turn_ends_nothing(more: dict[str, Any]) -> None:
    members = says("x", "y", "y", "y")
    members["a"] = Says(Output("x", final=True))
    done = episode(members, **more)
    assert done.turns[0].output.content == "y"
    assert not done.turns[0].output.final


def test_a_plain_function_may_be_a_member() -> None:
    class Plain(Agent):
        def act(self, view: View, key: Key, calls: Calls) -> Output:
            return Output("x", final=True)

    assert ask({"a": Plain(), "b": Plain()}).output.data["scores"] == {"x": 2.0}


def test_an_ensemble_may_be_a_member_of_another() -> None:
    inside = OpenEnsemble(Ensemble(members=list(says("x", "x", "y").values())), ["a", "b", "c"])
    split = OpenEnsemble(
        Ensemble(members=list(says("x", "y").values()), aggregator=Plurality("abstain")), ["a", "b"]
    )
    done = episode({"inside": inside, "split": split, "z": Says(Output("y"))})
    data = done.turns[0].output.data
    assert [one["answer"] for one in data["ballots"]] == ["x", None, "y"]
    assert data["ballots"][1]["status"] == "abstained", "a tie that is left open votes for nothing"
    assert done.usage.cost == 5.0


# ------------------------------------------------------------------ stopping early


def test_an_early_stop_cancels_running_members() -> None:
    members = {**says("x", "x", "x"), "d": Says(None), "e": Says(None)}
    turn = ask(members, early_stop=True)
    assert turn.output.content == "x"
    statuses = [one["status"] for one in turn.output.data["ballots"]]
    assert statuses == ["cast", "cast", "cast", "cancelled", "cancelled"]
    assert [one.cancelled for one in members.values() if isinstance(one, Says)][3:] == [1, 1]
    assert turn.output.data["coverage"] == pytest.approx(3 / 5)


def test_asking_one_after_the_other_asks_as_few_members_as_possible() -> None:
    members = says("x", "x", "x", "y", "y")
    turn = ask(members, early_stop=True, at_once=1)
    assert turn.usage.cost == 3.0
    assert [one.started for one in members.values() if isinstance(one, Says)] == [1, 1, 1, 0, 0]
    assert ask(says("x", "y", "x", "y", "y"), early_stop=True, at_once=1).usage.cost == 5.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["A", "a", "B", "b.", "C", "", "!"]), min_size=1, max_size=6),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from(
        [
            Plurality(),
            Majority(),
            Quorum(2),
            Weighted(accuracies={"a": 0.9, "b": 0.3, "c": 0.7}),
        ]
    ),
    st.sampled_from([1, 2]),
)
def test_an_early_stop_gives_the_text_and_status_of_the_full_vote(
    answers: list[str],
    delays: list[int],
    at_once: int | None,
    aggregator: Aggregator,
    min_votes: int,
) -> None:
    def members() -> dict[str, Agent]:
        return {
            name: Says(RuntimeError("ill") if answer == "!" else Output(answer), delay)
            for name, answer, delay in zip("abcdef", answers, delays, strict=False)
        }

    full = ask(members(), aggregator, min_votes=min_votes).output
    early = ask(members(), aggregator, min_votes=min_votes, at_once=at_once, early_stop=True).output
    assert early.content == full.content
    for part in ("status", "answer"):
        assert early.data[part] == full.data[part]


# ------------------------------------------------------------------ mixture of agents


def mixture(integrator: Agent, fallback: Aggregator | None = None) -> Aggregator:
    """An open mixture whose integrator is called "core"."""

    async def opened() -> Aggregator:
        context = OpenContext("aggregators.m", Key(1), names={"integrator": ("core",)})
        async with Mixture(integrator, fallback).open(context) as one:
            return one

    return asyncio.run(opened())


def test_the_integrator_reads_all_answers_and_writes_the_result() -> None:
    core = ScriptedAgent([Output("Both.", usage=Usage(cost=5.0))])
    done = episode({**says("one", "two"), "ill": Says(RuntimeError("no"))}, mixture(core))
    turn = done.turns[0]
    assert [one.output.content for one in core.views[0].turns] == ["one", "two"]
    assert (turn.output.content, turn.output.data["rule"]) == ("Both.", "written by core")
    assert turn.usage.cost == 7.0
    assert turn.output.data["coverage"] == pytest.approx(2 / 3)
    assert turn.output.inner is not None
    assert [one.agent for one in turn.output.inner] == ["a", "b", "ill", "core"]


def test_the_fallback_decides_if_the_integrator_fails() -> None:
    turn = ask(says("x", "y", "x"), mixture(ScriptedAgent([RuntimeError("no")])))
    assert turn.output.content == "x"
    assert turn.output.data["notes"] == ["core gave no answer: decided by the fallback"]


def test_the_integrator_is_not_asked_without_answers() -> None:
    core = ScriptedAgent([Output("made up")])
    turn = ask({"a": Says(RuntimeError("ill"))}, mixture(core))
    assert turn.output.data["status"] == "no_consensus"
    assert not core.views


def test_an_integrator_with_options_is_refused() -> None:
    with pytest.raises(UsageError, match="has options"):
        mixture(ScriptedAgent(options=("x",)))
