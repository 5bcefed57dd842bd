"""Borda, instant run-off and Condorcet on textbook elections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_ensemble.interfaces import Ballot
from orchestrion_ensemble.ranked import Ranked, borda, condorcet, instant_runoff, pairwise

from tests.plugins.ensemble.support import combine

TENNESSEE = [
    *[["memphis", "nashville", "chattanooga", "knoxville"]] * 42,
    *[["nashville", "chattanooga", "knoxville", "memphis"]] * 26,
    *[["chattanooga", "knoxville", "nashville", "memphis"]] * 15,
    *[["knoxville", "chattanooga", "nashville", "memphis"]] * 17,
]
CYCLE = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]]

rankings = st.lists(
    st.permutations(["a", "b", "c", "d"]).flatmap(
        lambda order: st.integers(0, 4).map(lambda n: list(order[:n]))
    ),
    min_size=1,
    max_size=7,
)


def cast(given_rankings: list[list[str]]) -> list[Ballot]:
    """One ballot a ranking."""
    return [
        Ballot(f"v{i}", answer=ranking[0] if ranking else None, ranking=tuple(ranking))
        for i, ranking in enumerate(given_rankings)
    ]


def test_borda_on_the_capital_of_tennessee() -> None:
    assert borda(TENNESSEE) == {
        "memphis": 126,
        "nashville": 194,
        "chattanooga": 173,
        "knoxville": 107,
    }


def test_condorcet_on_the_capital_of_tennessee() -> None:
    assert condorcet(TENNESSEE) == "nashville"
    assert pairwise(TENNESSEE)["nashville", "memphis"] == 58


def test_instant_runoff_on_the_capital_of_tennessee() -> None:
    standing, rounds = instant_runoff(TENNESSEE)
    assert standing == ["knoxville"]
    assert rounds[0] == {"chattanooga": 15, "knoxville": 17, "memphis": 42, "nashville": 26}
    assert rounds[-1] == {"knoxville": 58, "memphis": 42}


def test_a_cycle_has_no_condorcet_winner_and_the_fallback_is_named() -> None:
    assert condorcet(CYCLE) is None
    assert combine(Ranked("condorcet", fallback="none"), cast(CYCLE)).status == "no_consensus"
    uneven = [CYCLE[0]] * 5 + [CYCLE[1]] * 4 + [CYCLE[2]] * 2
    assert condorcet(uneven) is None
    for fallback, winner in (("borda", "b"), ("instant-runoff", "a")):
        result = combine(Ranked("condorcet", fallback=fallback), cast(uneven))  # type: ignore[arg-type]
        assert (result.status, result.answer, result.rule) == ("winner", winner, fallback)
        assert f"decided by {fallback}" in result.notes[0]
    tied = combine(Ranked("condorcet", fallback="borda", tie="abstain"), cast(CYCLE))
    assert (tied.status, set(tied.leaders)) == ("tie", {"a", "b", "c"})
    assert "decided by borda" in tied.notes[0]


def test_unranked_answers_share_the_remaining_places() -> None:
    assert borda([["a"], ["b", "a", "c"]]) == {"a": 3, "b": 2.5, "c": 0.5}


def test_an_exhausted_ballot_counts_no_further() -> None:
    standing, rounds = instant_runoff([["c"], ["a", "b"], ["a", "b"], ["b"], ["b"]])
    assert standing == ["a", "b"]
    assert rounds[-1] == {"a": 2, "b": 2}


def test_equal_losers_leave_together() -> None:
    standing, rounds = instant_runoff([["a"], ["a"], ["b", "a"], ["c", "a"]])
    assert standing == ["a"]
    assert len(rounds) == 2


def test_one_answer_is_a_ranking_of_one() -> None:
    result = combine(Ranked(), [Ballot("x", answer="a"), Ballot("y", answer="a")])
    assert (result.status, result.answer, result.used) == ("winner", "a", 2)


@given(rankings)
def test_every_ballot_hands_out_as_many_points(given_rankings: list[list[str]]) -> None:
    counted = [ranking for ranking in given_rankings if ranking]
    points = borda(given_rankings)
    each = len(points) * (len(points) - 1) / 2
    assert sum(points.values()) == pytest.approx(each * len(counted))


@given(rankings, st.data())
def test_the_order_of_ballots_changes_nothing(
    given_rankings: list[list[str]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(given_rankings))
    assert borda(shuffled) == borda(given_rankings)
    assert condorcet(shuffled) == condorcet(given_rankings)
    assert instant_runoff(shuffled) == instant_runoff(given_rankings)


@given(rankings)
def test_a_condorcet_winner_beats_every_other_one(given_rankings: list[list[str]]) -> None:
    winner, wins = condorcet(given_rankings), pairwise(given_rankings)
    beaten = {a for a, b in wins if wins[a, b] <= wins[b, a]}
    everybody = {a for a, _ in wins} or {r[0] for r in given_rankings if r}
    assert ({winner} if winner else set()) == everybody - beaten
