"""The aggregator `ranked`: members rank the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import evolve, frozen

from orchestrion import Key, Problem
from orchestrion_ensemble.counting import decide
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Result, TieRule
from orchestrion_ensemble.ranking import borda, condorcet, instant_runoff

__all__ = ["Ranked"]


@frozen
class Ranked(Aggregator):
    """Decides on rankings; a ballot with one answer only ranks that one.

    Answers that a ballot does not rank are equal there, and below all that it ranks.

    Args:
        rule: `borda`: points by place; `instant-runoff`: the last in first places leave round by
            round; `condorcet`: the answer that beats every other one by one.
        fallback: what decides where no answer beats every other one, as in a cycle: another
            rule, or `none` for no consensus.
        tie: how to choose among answers that are equal in the end.
    """

    rule: Literal["borda", "instant-runoff", "condorcet"] = "borda"
    fallback: Literal["borda", "instant-runoff", "none"] = "borda"
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        rankings = [ranking for ballot in ballots if (ranking := _ranking(ballot))]
        if not rankings:
            return Result("no_consensus")
        rule = self.rule
        if rule == "condorcet":
            winner = condorcet(rankings)
            if winner is not None:
                scores = borda(rankings)
                return Result("winner", winner, (winner,), scores=scores, used=len(rankings))
            if self.fallback == "none":
                note = "no answer beats every other one"
                return Result("no_consensus", used=len(rankings), notes=(note,))
            rule = self.fallback
        result = evolve(self._by(rule, rankings, ballots, key), used=len(rankings))
        if rule == self.rule:
            return result
        note = f"no answer beats every other one; decided by {rule}"
        return evolve(result, rule=result.rule or rule, notes=(note,))

    def _by(
        self, rule: str, rankings: Sequence[Sequence[str]], ballots: Sequence[Ballot], key: Key
    ) -> Result:
        if rule == "borda":
            return decide(borda(rankings), ballots, self.tie, key)
        standing, rounds = instant_runoff(rankings)
        result = decide(dict.fromkeys(standing, 1.0), ballots, self.tie, key)
        return evolve(result, scores=rounds[-1])


def _ranking(ballot: Ballot) -> tuple[str, ...]:
    if ballot.status != "cast":
        return ()
    return ballot.ranking or ((ballot.answer,) if ballot.answer is not None else ())
