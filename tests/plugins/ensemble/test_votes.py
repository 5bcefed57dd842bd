"""Plurality, majority, weighted, quorum and unanimous: every edge case has its name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_ensemble.average import Average
from orchestrion_ensemble.dawid_skene import DawidSkene
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example
from orchestrion_ensemble.ranked import Ranked
from orchestrion_ensemble.votes import (
    Majority,
    Plurality,
    Quorum,
    Unanimous,
    accuracies_of,
)
from orchestrion_ensemble.weighted import Confidence, Dynamic, Remembered, Weighted

from tests.plugins.ensemble.support import PROBLEM, ballots, combine, silent, votes

VOTES: list[Aggregator] = [
    Plurality(),
    Majority(),
    Majority(of="members"),
    Weighted(),
    Weighted(accuracies={"v0": 0.9, "v1": 0.2, "v2": 0.6}),
    Quorum(2),
    Quorum(1, veto=("v1",)),
    Unanimous(),
    Unanimous(of="cast"),
    Ranked(),
    Confidence(),
    Dynamic(),
]


@settings(max_examples=300)
@given(aggregator=st.sampled_from(VOTES), said=votes)
def test_a_result_is_typed_and_failed_members_count_like_silent_ones(
    aggregator: Aggregator, said: list[str | None]
) -> None:
    cast = ballots(*said)
    result = combine(aggregator, cast)
    if result.status == "winner":
        assert result.answer in said
        assert result.leaders == (result.answer,)
    elif result.status == "tie":
        assert len(result.leaders) > 1
        assert result.rule
    else:
        assert result.status == "no_consensus"
        assert result.answer is None
    if not any(said):
        assert (result.status, result.used) == ("no_consensus", 0)
    failed = [silent(ballot.voter) if ballot.vote is None else ballot for ballot in cast]
    other = combine(aggregator, failed)
    assert (result.status, result.answer, result.scores) == (
        other.status,
        other.answer,
        other.scores,
    )


ORDERLESS: list[Aggregator] = [
    Plurality("abstain"),
    Plurality("by_weight", {"v0": 2.0, "v1": 0.5, "v2": 1.5}),
    Plurality("by_confidence"),
    Plurality("seeded_random"),
    Majority(),
    Weighted(accuracies={"v0": 0.9, "v1": 0.2, "v2": 0.6}, tie="abstain"),
    Quorum(2, veto=("v1",)),
    Unanimous(),
    Ranked("borda", tie="abstain"),
    Ranked("instant-runoff", tie="abstain"),
    Ranked("condorcet", fallback="instant-runoff", tie="abstain"),
    Average(tie="abstain"),
    Average("log", {"v0": 0.5, "v1": 0.2, "v2": 0.3}, tie="abstain"),
    Confidence(tie="abstain"),
    Confidence(scheme="confidence", tie="by_confidence"),
    Dynamic((Remembered("what", "", {"v0": 1, "v1": 0}),), tie="abstain"),
    DawidSkene(
        ("a", "b"),
        (0.4, 0.6),
        {"v0": ((0.9, 0.1), (0.2, 0.8)), "v1": ((0.3, 0.7), (0.6, 0.4))},
        tie="abstain",
    ),
]


@settings(max_examples=400)
@given(aggregator=st.sampled_from(ORDERLESS), said=votes, data=st.data())
def test_the_order_of_members_changes_no_result(
    aggregator: Aggregator, said: list[str | None], data: st.DataObject
) -> None:
    sure = data.draw(st.lists(st.sampled_from([0.3, 0.5, 0.8]), min_size=7, max_size=7))
    ranks = data.draw(st.lists(st.permutations(["a", "b", "c"]), min_size=7, max_size=7))
    cast = [
        evolve(
            one,
            confidence=sure[i],
            ranking=tuple(ranks[i]),
            probabilities={"a": sure[i], "b": 1 - sure[i]},
        )
        if one.vote is not None
        else one
        for i, one in enumerate(ballots(*said))
    ]
    one = combine(aggregator, cast)
    other = combine(aggregator, data.draw(st.permutations(cast)))
    assert (one.status, one.answer, one.used) == (other.status, other.answer, other.used)
    assert set(one.leaders) == set(other.leaders)
    assert one.scores == pytest.approx(other.scores, rel=1e-12)


# ------------------------------------------------------------------ counting


@pytest.mark.parametrize(
    ("aggregator", "said", "status", "answer"),
    [
        # A plurality need not be a majority, and half is none.
        (Plurality(), "aabcd", "winner", "a"),
        (Majority(), "aabcd", "no_consensus", None),
        (Majority(), "aabb", "no_consensus", None),
        (Majority(), "aaab", "winner", "a"),
        # It is of the votes cast, or of all members.
        (Majority(), "aab--", "winner", "a"),
        (Majority(of="members"), "aab--", "no_consensus", None),
        # So many equal votes are a quorum; of two quorums the larger wins.
        (Quorum(3), "aaba", "winner", "a"),
        (Quorum(3), "aab-", "no_consensus", None),
        (Quorum(2), "abba", "tie", None),
        (Quorum(2), "abbab", "winner", "b"),
        # Dissent ends unanimity, and silence as well.
        (Unanimous(), "aaa", "winner", "a"),
        (Unanimous(), "aab", "no_consensus", None),
        (Unanimous(), "aa-", "no_consensus", None),
        (Unanimous(of="cast"), "aa-", "winner", "a"),
    ],
)
def test_how_votes_are_counted(
    aggregator: Aggregator, said: str, status: str, answer: str | None
) -> None:
    result = combine(aggregator, ballots(*(None if one == "-" else one for one in said)))
    assert (result.status, result.answer) == (status, answer)


def test_a_share_that_is_met_exactly_is_no_majority_whatever_the_floats_say() -> None:
    assert 0.58 * 50 < 29
    said = ["a"] * 29 + ["b"] * 21
    assert combine(Majority(share=0.58), ballots(*said)).status == "no_consensus"
    assert combine(Majority(share=0.57), ballots(*said)).answer == "a"


# ------------------------------------------------------------------ weighted


def test_voters_without_a_given_weight_are_noted() -> None:
    result = combine(Weighted(weights={"v0": 1.0, "v9": 5.0}), ballots("a", "b", "b"))
    assert (result.answer, result.notes) == ("a", ("no weight is given for v1, v2: counted as 0",))


def test_without_known_accuracies_all_weigh_the_same_with_a_note() -> None:
    result = combine(Weighted(), ballots("a", "b", "b"))
    assert result.answer == "b"
    assert result.notes == ("no weights are known: all are equal",)


def test_one_good_voter_outweighs_two_poor_ones() -> None:
    known = {"v0": 0.9, "v1": 0.6, "v2": 0.6}
    cast = ballots("a", "b", "b")
    assert combine(Weighted(accuracies=known), cast).answer == "a"
    assert combine(Weighted(accuracies=known, scheme="accuracy"), cast).answer == "b"


def test_a_vote_of_a_voter_below_chance_counts_against_its_answer() -> None:
    known = {"v0": 0.6, "v1": 0.1}
    closed = Weighted(accuracies=known, answers=("a", "b"))
    assert combine(closed, ballots("a", "b")).answer == "a"
    alone = combine(closed, [Ballot("v1", answer="a")])
    assert alone.answer == "b", "with two answers, what speaks against one speaks for the other"


def test_without_a_positive_sum_of_weights_there_is_no_consensus() -> None:
    result = combine(Weighted(accuracies={"v0": 0.1}), ballots("a"))
    assert result.status == "no_consensus"
    assert "no answer has a positive sum" in result.notes[-1]


def test_a_voter_of_unknown_accuracy_weighs_as_the_mean_of_the_known() -> None:
    known = Weighted(accuracies={"v0": 0.9, "v1": 0.7})
    assert known.weight("new") == pytest.approx(Weighted(accuracies={"x": 0.8}).weight("x"))


def test_voters_at_chance_are_a_tie_and_not_a_vote_for_the_first_class() -> None:
    result = combine(Weighted(accuracies={"v0": 0.5, "v1": 0.5}), ballots("b", "a"))
    assert (result.status, set(result.leaders)) == ("tie", {"a", "b"})


def test_accuracies_are_learned_with_a_prior_and_without_silent_ballots() -> None:
    examples = [
        Example(PROBLEM, tuple(ballots("a", None)), (True, None), "a"),
        Example(PROBLEM, tuple(ballots("b", "a")), (False, True), "a"),
    ]
    assert accuracies_of(examples) == {"v0": 2 / 4, "v1": 2 / 3}
    assert accuracies_of(examples, 3, 1) == {"v0": 4 / 6, "v1": 4 / 5}


# ------------------------------------------------------------------ veto


@pytest.mark.parametrize("guard", ["b", None])
def test_a_veto_holds_where_its_voter_differs_or_is_silent(guard: str | None) -> None:
    result = combine(Quorum(2, veto=("v2",)), ballots("a", "a", guard))
    assert result.status == "no_consensus"
    assert "vetoed: v2" in result.notes[0]
    assert combine(Quorum(2, veto=("v2",)), ballots("a", "b", "a")).answer == "a"


# ------------------------------------------------------------------ stopping early

SETTLING: list[Aggregator] = [
    Plurality(),
    Plurality("abstain"),
    Majority(),
    Majority(of="members"),
    Majority(share=2 / 3),
    Weighted(accuracies={"v0": 0.9, "v1": 0.2, "v2": 0.6, "v3": 0.55}),
    Weighted(accuracies={"v0": 0.9, "v1": 0.2, "v2": 0.6}, answers=("a", "b", "c")),
    Weighted(weights={"v0": 3.0, "v3": 1.0, "v5": 2.0}),
    Quorum(1),
    Quorum(3),
    Quorum(2, veto=("v1", "v4")),
    Unanimous(),
    Unanimous(of="cast"),
]


@settings(max_examples=400)
@given(aggregator=st.sampled_from(SETTLING), said=votes, data=st.data())
def test_a_settled_vote_has_the_answer_of_the_full_vote(
    aggregator: Aggregator, said: list[str | None], data: st.DataObject
) -> None:
    """Whoever is heard first, in any order, and whatever the rest would have said."""
    full = ballots(*said)
    heard: list[Ballot] = []
    order: Sequence[int] = data.draw(st.permutations(range(len(full))), label="arrival")
    for place, index in enumerate(order):
        heard.append(full[index])
        in_order = [one for one in full if one in heard]
        waiting = [full[i].voter for i in order[place + 1 :]]
        if aggregator.settled(in_order, waiting):
            rest = [silent(one.voter, "cancelled") for one in full if one not in heard]
            early = combine(aggregator, [*in_order, *rest])
            late = combine(aggregator, full)
            assert (early.status, early.answer) == (late.status, late.answer)
            return


def test_a_lead_is_settled_as_soon_as_it_cannot_be_caught() -> None:
    assert Plurality().settled(ballots("a", "a", "a"), ["v3", "v4"])
    assert not Plurality().settled(ballots("a", "a"), ["v3", "v4"])
    assert Majority().settled(ballots("a", "b", "c"), ["v3"]), "no majority is possible any more"
    assert Unanimous().settled(ballots("a", "b"), ["v3", "v4"])
    assert Quorum(3).settled(ballots("a", "b"), ["v3"])
    assert not Weighted(accuracies={"v9": 0.99, "v0": 0.6}).settled(ballots("a"), ["v9"])
