"""Aggregators that count one answer a ballot: plurality, majority, weighted, quorum, unanimous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, isfinite
from typing import Annotated, Any, Literal

from attrs import Attribute, Factory, evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, learnable
from orchestrion_ensemble.counting import (
    decide,
    leaders_of,
    log_odds,
    smoothed,
    tally,
    uncatchable,
    weigh,
)
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule

__all__ = [
    "Majority",
    "Plurality",
    "Quorum",
    "Unanimous",
    "Weighted",
    "accuracies_of",
    "without_weight",
]

Share = Annotated[float, Meta(ge=0, lt=1)]
Accuracy = Annotated[float, Meta(ge=0, le=1)]


def _counts(ballots: Sequence[Ballot]) -> dict[str, float]:
    return tally([ballot.answer if ballot.votes else None for ballot in ballots])


def accuracies_of(examples: Sequence[Example], a: float = 1.0, b: float = 1.0) -> dict[str, float]:
    """Each voter's smoothed accuracy; abstentions and failures count neither way."""
    hits: dict[str, list[bool]] = {}
    for example in examples:
        for ballot, right in zip(example.ballots, example.right, strict=True):
            seen = hits.setdefault(ballot.voter, [])
            if right is not None:
                seen.append(right)
    return {voter: smoothed(sum(seen), len(seen), a, b) for voter, seen in hits.items()}


def without_weight(ballots: Sequence[Ballot], weights: Mapping[str, float]) -> tuple[str, ...]:
    """A note on voters that given weights do not name, such as a misspelt one; or none."""
    voters = dict.fromkeys(ballot.voter for ballot in ballots)
    missing = ", ".join(voter for voter in voters if voter not in weights)
    return (f"no weight is given for {missing}: no say",) if missing else ()


def _finite(instance: Any, attribute: Attribute[Any], value: Mapping[str, float]) -> None:
    if not all(isfinite(weight) for weight in value.values()):
        raise ValueError("weights must be finite numbers")
    if value and not any(value.values()):
        raise ValueError("all weights are zero: nobody has a say")


@frozen
class Plurality(Aggregator):
    """The answer with most votes; that need not be a majority.

    Args:
        tie: how to choose among answers with equally many votes.
        weights: of voters, by "agent" or "agent:option", for the tie rule `by_weight`; learned
            as accuracies.
    """

    tie: TieRule = "first_by_member_order"
    weights: Mapping[str, float] = learnable(Factory(dict), validator=_finite)

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        return decide(_counts(ballots), ballots, self.tie, key, self.weights)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """One answer leads by more votes than are outstanding."""
        return bool(ballots) and uncatchable(_counts(ballots), [1.0] * len(waiting)) is not None

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Accuracies, which break ties by weight."""
        return {"weights": accuracies_of(examples)}


@frozen
class Majority(Aggregator):
    """The answer with more than half of the votes, else no consensus.

    Args:
        of: half of the votes `cast`, or of all `members`, silent ones included.
        share: more than this share is needed.
    """

    of: Literal["cast", "members"] = "cast"
    share: Annotated[float, Meta(ge=0.5, lt=1)] = 0.5

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        scores = _counts(ballots)
        cast = sum(ballot.votes for ballot in ballots)
        needed = self._needed(cast if self.of == "cast" else len(ballots))
        best = [answer for answer, votes in scores.items() if votes > needed]
        if not best:
            return Result(
                "no_consensus", leaders=tuple(leaders_of(scores)), scores=scores, used=cast
            )
        return Result("winner", best[0], (best[0],), scores=scores, used=cast)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """One answer has its majority whatever comes, or none can get one any more."""
        if not ballots:
            return False
        top = max(_counts(ballots).values(), default=0.0)
        cast, open_ = sum(ballot.votes for ballot in ballots), len(waiting)
        most = cast + open_ if self.of == "cast" else len(ballots) + open_
        # The leader must pass if all others vote against it; a rival, if all vote for it.
        return top > self._needed(most) or top + open_ <= self._needed(most)

    def _needed(self, votes: int) -> float:
        """What a majority has to be above; 0.58 * 50 is 28.999999999999996."""
        return round(self.share * votes, 9)


@frozen
class Weighted(Aggregator):
    """The answer with the largest sum of its voters' weights.

    By default a weight is the log-odds of the voter's accuracy, which is optimal for independent
    voters (Nitzan and Paroush 1982): unlike accuracies themselves, it never makes a vote worse
    than its best member. Below chance it is negative: that a bad voter says something speaks
    against it. Voters of unknown accuracy get the mean of the known ones; with none known, all
    weigh the same.

    Without `answers`, only what somebody says can win, and only with a positive sum; with them
    every one of them can.

    Args:
        accuracies: by voter, "agent" or "agent:option"; learned by `ensemble-weights`.
        weights: by voter, instead of weights from accuracies.
        scheme: weights from accuracies: their `log-odds`, or the `accuracy` itself.
        answers: all answers there can be, as they read when normalised; none means open.
        choices: how many answers there can be, for the log-odds; by default as many as `answers`,
            else 2.
        tie: how to choose among answers of equal weight.
        prior: hits and misses that each voter starts from when accuracies are learned.
    """

    accuracies: Mapping[str, Accuracy] = learnable(Factory(dict))
    weights: Mapping[str, float] = learnable(Factory(dict), validator=_finite)
    scheme: Literal["log-odds", "accuracy"] = "log-odds"
    answers: tuple[str, ...] = ()
    choices: Annotated[int, Meta(ge=2)] | None = None
    tie: TieRule = "first_by_member_order"
    prior: tuple[Annotated[float, Meta(gt=0)], Annotated[float, Meta(gt=0)]] = (1.0, 1.0)

    def weight(self, voter: str) -> float:
        """What a ballot of this voter weighs."""
        if self.weights:
            return self.weights.get(voter, 0.0)
        if not self.accuracies:
            return 1.0
        known = self.accuracies
        p = known[voter] if voter in known else fsum(known.values()) / len(known)
        if self.scheme == "accuracy":
            return p
        return log_odds(p, self.choices or max(2, len(self.answers)))

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        notes: tuple[str, ...] = ()
        if self.weights:
            notes = without_weight(ballots, self.weights)
        elif not self.accuracies:
            notes = ("no weights are known: all are equal",)
        weights = [self.weight(ballot.voter) for ballot in ballots]
        return weigh(ballots, weights, self.answers, self.tie, key, notes)

    def _scores(self, ballots: Sequence[Ballot]) -> dict[str, float]:
        votes = [ballot.answer if ballot.votes else None for ballot in ballots]
        return tally(votes, [self.weight(ballot.voter) for ballot in ballots], self.answers)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """One answer leads by more than all weight outstanding."""
        if not any(ballot.votes for ballot in ballots):
            return False
        return uncatchable(self._scores(ballots), [self.weight(v) for v in waiting]) is not None

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Each voter's accuracy, smoothed by `prior`."""
        return {"accuracies": accuracies_of(examples, *self.prior)}


@frozen
class Quorum(Aggregator):
    """The answer that at least `votes` ballots agree on, for gates that must be sure.

    Args:
        votes: how many equal votes it takes.
        veto: voters without whose agreement nothing passes.
        tie: how to choose if several answers pass with equally many votes.
    """

    votes: Annotated[int, Meta(ge=1)] = 2
    veto: tuple[str, ...] = ()
    tie: TieRule = "abstain"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        scores = _counts(ballots)
        passing = {answer: votes for answer, votes in scores.items() if votes >= self.votes}
        result = decide(passing, ballots, self.tie, key)
        against = self._against(ballots, result.answer)
        if result.answer is None or not against:
            return evolve(result, scores=scores)
        note = f"vetoed: {', '.join(against)} did not agree to {result.answer!r}"
        return Result("no_consensus", None, result.leaders, "", scores, result.used, notes=(note,))

    def _against(self, ballots: Sequence[Ballot], answer: str | None) -> list[str]:
        agree = {ballot.voter for ballot in ballots if ballot.votes and ballot.answer == answer}
        differ = {ballot.voter for ballot in ballots if ballot.votes and ballot.answer != answer}
        return [voter for voter in self.veto if voter in differ or voter not in agree]

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Nothing can pass any more, or one answer passes, leads for good, and no veto is open."""
        if not ballots:
            return False
        scores = _counts(ballots)
        top = max(scores.values(), default=0.0)
        if top + len(waiting) < self.votes:
            return True
        leader = uncatchable(scores, [1.0] * len(waiting))
        if leader is None or scores[leader] < self.votes:
            return False
        return not set(self.veto) & set(waiting)


@frozen
class Unanimous(Aggregator):
    """The answer that all agree on, else no consensus.

    Args:
        of: all who `cast` a vote, or all `members`: then a silent one prevents consensus.
    """

    of: Literal["cast", "members"] = "members"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        scores = _counts(ballots)
        used = sum(ballot.votes for ballot in ballots)
        silent = used < len(ballots) and self.of == "members"
        if len(scores) != 1 or silent:
            leaders = tuple(leaders_of(scores))
            return Result("no_consensus", None, leaders, "", scores, used)
        [answer] = scores
        return Result("winner", answer, (answer,), "", scores, used)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Two differ, or somebody who has to agree is silent."""
        if not ballots:
            return False
        silent = any(not ballot.votes for ballot in ballots)
        return len(_counts(ballots)) > 1 or (silent and self.of == "members")
