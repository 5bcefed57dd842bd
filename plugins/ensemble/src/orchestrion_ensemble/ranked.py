"""The aggregator `ranked`: Borda, instant run-off and Condorcet over rankings, best first.

A ranking may leave answers out: these are equal to each other and below all that are ranked.
Borda gives each of them the mean of the remaining places (the average method of Emerson 2013), so
that every ballot gives equally many points.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Literal

from attrs import evolve, frozen

from orchestrion import Key, Problem
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Result, TieRule
from orchestrion_ensemble.votes import decide

Rankings = Sequence[Sequence[str]]


@frozen
class Ranked(Aggregator):
    """Decides on rankings; a ballot with a single answer ranks only that one.

    Answers that a ballot does not rank are equal there, and below all that it ranks.

    Args:
        rule: `borda`: points by place; `instant-runoff`: in each round the answers with fewest
            first places drop out; `condorcet`: the answer that beats every other in pairs.
        fallback: for `condorcet`, what decides if no answer beats every other, as in a cycle:
            another rule, or `none` for no consensus.
        tie: how to choose among answers that are equal in the end.
    """

    rule: Literal["borda", "instant-runoff", "condorcet"] = "borda"
    fallback: Literal["borda", "instant-runoff", "none"] = "borda"
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        rankings = [ranking for ballot in ballots if (ranking := _ranking(ballot))]
        if not rankings:
            return Result("no_consensus")
        if self.rule != "condorcet":
            return self._result(self.rule, rankings, ballots, key)
        winner = condorcet(rankings)
        if winner is not None:
            scores = borda(rankings)
            return Result("winner", winner, (winner,), scores=scores, used=len(rankings))
        note = "no answer beats every other one"
        if self.fallback == "none":
            return Result("no_consensus", used=len(rankings), notes=(note,))
        result = self._result(self.fallback, rankings, ballots, key)
        note = f"{note}; decided by {self.fallback}"
        return evolve(result, rule=result.rule or self.fallback, notes=(note,))

    def _result(self, rule: str, rankings: Rankings, ballots: Sequence[Ballot], key: Key) -> Result:
        if rule == "borda":
            return evolve(decide(borda(rankings), ballots, self.tie, key), used=len(rankings))
        standing, rounds = instant_runoff(rankings)
        result = decide(dict.fromkeys(standing, 1.0), ballots, self.tie, key)
        return evolve(result, scores=rounds[-1], used=len(rankings))


def _ranking(ballot: Ballot) -> tuple[str, ...]:
    if ballot.status != "cast":
        return ()
    return ballot.ranking or ((ballot.answer,) if ballot.answer is not None else ())


def _candidates(rankings: Rankings) -> list[str]:
    """Return every ranked answer, sorted, so that the order of the ballots changes nothing."""
    return sorted({answer for ranking in rankings for answer in ranking})


def borda(rankings: Rankings) -> dict[str, float]:
    """Return points by answer: of C answers, C - 1 for a first place, C - 2 for a second, ..."""
    answers = _candidates(rankings)
    points: dict[str, list[float]] = {answer: [] for answer in answers}
    for ranking in filter(None, rankings):
        for place, answer in enumerate(ranking):
            points[answer].append(float(len(answers) - 1 - place))
        for answer in set(answers).difference(ranking):
            points[answer].append((len(answers) - len(ranking) - 1) / 2)
    return {answer: fsum(parts) for answer, parts in points.items()}


def pairwise(rankings: Rankings) -> dict[tuple[str, str], int]:
    """Return for each pair how many ballots rank the first above the second."""
    answers = _candidates(rankings)
    wins = {(a, b): 0 for a in answers for b in answers if a != b}
    for ranking in rankings:
        place = {answer: i for i, answer in enumerate(ranking)}
        for a, b in wins:
            wins[a, b] += a in place and place[a] < place.get(b, len(answers))
    return wins


def condorcet(rankings: Rankings) -> str | None:
    """Return the answer that beats every other in pairs, None if there is none."""
    answers, wins = _candidates(rankings), pairwise(rankings)
    for a in answers:
        if all(wins[a, b] > wins[b, a] for b in answers if b != a):
            return a
    return None


def instant_runoff(rankings: Rankings) -> tuple[list[str], list[dict[str, float]]]:
    """Return the remaining answers, and the number of first places by answer in each round.

    In each round all answers with the fewest first places drop out, and their ballots go to the
    next answer on them, if there is one. It ends when one answer has more than half of the ballots
    in play, or all remaining answers are equal.
    """
    standing = _candidates(rankings)
    rounds: list[dict[str, float]] = []
    while True:
        firsts = dict.fromkeys(standing, 0.0)
        for ranking in rankings:
            first = next((answer for answer in ranking if answer in firsts), None)
            if first is not None:
                firsts[first] += 1
        rounds.append(firsts)
        if not standing:
            return [], rounds
        top, low = max(firsts.values()), min(firsts.values())
        if 2 * top > sum(firsts.values()):
            return [answer for answer in standing if firsts[answer] == top], rounds
        if top == low:
            return standing, rounds
        standing = [answer for answer in standing if firsts[answer] > low]
