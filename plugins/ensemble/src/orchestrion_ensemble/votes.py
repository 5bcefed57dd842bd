"""Vote counting, and the aggregators that only count: plurality, majority, quorum, unanimous.

The functions are pure. Sums use `math.fsum`, which rounds once: the order of the members cannot
change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import exp, fsum, isfinite, log
from typing import Annotated, Any, Literal

from attrs import Attribute, Factory, evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, did_you_mean, learnable
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule

TOLERANCE = 1e-9
"""Scores that differ by at most this share of all weight are equal: rescaling keeps a tie."""


def tally(
    votes: Sequence[str | None],
    weights: Sequence[float] | None = None,
    candidates: Sequence[str] = (),
) -> dict[str, float]:
    """Return the sum of weights by answer; None is an abstention and counts for no answer.

    Weights are 1 by default and may be negative; `candidates` are listed even without votes.
    """
    values = [1.0] * len(votes) if weights is None else weights
    by_answer: dict[str, list[float]] = {name: [] for name in candidates}
    for vote, weight in zip(votes, values, strict=True):
        if vote is not None:
            by_answer.setdefault(vote, []).append(weight)
    return {answer: fsum(parts) for answer, parts in by_answer.items()}


def log_odds(accuracy: float, classes: int = 2, floor: float = 1e-6) -> float:
    """Return the optimal weight of an independent voter: log((C - 1) p / (1 - p)).

    Nitzan and Paroush 1982, eq. 4, for C = 2; for C answers with equally likely mistakes it
    follows from the same likelihood ratio. Below chance (p < 1/C) it is negative. p is clipped to
    [floor, 1 - floor].

    Raises:
        ValueError: the accuracy is outside [0, 1], or there are fewer than two classes.
    """
    if not 0 <= accuracy <= 1 or classes < 2:
        raise ValueError(
            "log-odds need an accuracy from 0 to 1 and at least 2 classes, "
            f"got {accuracy} and {classes}"
        )
    p = min(max(accuracy, floor), 1 - floor)
    return log((classes - 1) * p / (1 - p))


def smoothed(hits: float, n: float, a: float = 1.0, b: float = 1.0) -> float:
    """Return an accuracy from counts under a Beta(a, b) prior: (hits + a) / (n + a + b)."""
    return (hits + a) / (n + a + b)


def softmax(scores: Mapping[str, float]) -> dict[str, float]:
    """Return probabilities in proportion to exp(score)."""
    top = max(scores.values())
    raw = {answer: exp(score - top) for answer, score in scores.items()}
    total = fsum(raw.values())
    return {answer: value / total for answer, value in raw.items()}


def leaders_of(scores: Mapping[str, float], total: float | None = None) -> list[str]:
    """Return all answers with the highest score.

    Equality is judged by `total`, the sum of absolute weights; by default that of `scores`.
    """
    if not scores:
        return []
    top = max(scores.values())
    if total is None:
        total = fsum(map(abs, scores.values()))
    return [answer for answer, score in scores.items() if score >= top - TOLERANCE * total]


def uncatchable(scores: Mapping[str, float], waiting: Sequence[float]) -> str | None:
    """Return the answer that leads whatever the waiting voters say, None if there is none.

    Args:
        scores: by answer, so far.
        waiting: weights of the voters still to come. A positive one may go to a rival, known or
            new; a negative one may be subtracted from the leader.
    """
    leaders = leaders_of(scores)
    if len(leaders) != 1:
        return None
    leader = leaders[0]
    rivals = [score for answer, score in scores.items() if answer != leader]
    swing = fsum(map(abs, waiting))
    slack = 4 * TOLERANCE * (fsum(map(abs, scores.values())) + swing)
    # An answer that nobody named so far has the score 0.
    lead = scores[leader] - max([0.0, *rivals])
    return leader if lead - swing > slack else None


def decide(
    scores: Mapping[str, float],
    ballots: Sequence[Ballot],
    tie: TieRule,
    key: Key,
    weights: Mapping[str, float] | None = None,
    total: float | None = None,
) -> Result:
    """Return the answer with the highest score; `tie` chooses among equal ones.

    Empty scores give `no_consensus`. The key is for `seeded_random`, and weights by voter are for
    `by_weight`, 1 each by default; for `total` see `leaders_of`.
    """
    used = sum(ballot.vote is not None for ballot in ballots)
    leaders = leaders_of(scores, total)
    if not leaders:
        return Result("no_consensus", used=used)
    if len(leaders) == 1:
        return Result("winner", leaders[0], tuple(leaders), scores=dict(scores), used=used)
    chosen = _break_tie(leaders, ballots, tie, key, weights or {})
    return Result("tie", chosen, tuple(leaders), tie, dict(scores), used)


def _break_tie(
    leaders: Sequence[str],
    ballots: Sequence[Ballot],
    rule: TieRule,
    key: Key,
    weights: Mapping[str, float],
) -> str | None:
    if rule == "abstain":
        return None
    if rule == "first_by_member_order":
        return next((ballot.vote for ballot in ballots if ballot.vote in leaders), leaders[0])
    if rule == "seeded_random":
        # Sorted, so that the draw does not depend on the members' order.
        return sorted(leaders)[int(key.child("tie").uniform() * len(leaders))]
    support: dict[str, list[float]] = {leader: [] for leader in leaders}
    for ballot in ballots:
        if ballot.vote in support:
            by_weight = rule == "by_weight"
            value = weights.get(ballot.voter, 1.0) if by_weight else (ballot.confidence or 0.0)
            support[ballot.vote].append(value)
    best = leaders_of({answer: fsum(values) for answer, values in support.items()})
    return best[0] if len(best) == 1 else None


def weigh(
    ballots: Sequence[Ballot],
    weights: Sequence[float],
    answers: Sequence[str],
    tie: TieRule,
    key: Key,
    notes: tuple[str, ...] = (),
) -> Result:
    """Return the result of a vote with one weight for each ballot.

    A negative weight counts against the answer. Without a closed list of all possible `answers`,
    only an answer with a positive sum can win. `notes` go into the result.
    """
    used = [w for ballot, w in zip(ballots, weights, strict=True) if ballot.vote is not None]
    if not used:
        return Result("no_consensus", notes=notes)
    scores = tally([ballot.vote for ballot in ballots], weights, answers)
    spread = fsum(map(abs, used))
    by_voter = {ballot.voter: w for ballot, w in zip(ballots, weights, strict=True)}
    result = evolve(decide(scores, ballots, tie, key, by_voter, spread), notes=notes)
    if answers or not spread or scores[result.leaders[0]] > TOLERANCE * spread:
        return result
    note = "no answer has a positive sum of weights"
    return Result("no_consensus", None, result.leaders, "", scores, len(used), notes=(*notes, note))


def vote_accuracy(accuracies: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return how often a weighted vote of independent voters on two answers is right.

    Exact, over all 2^K outcomes. Equal scores are right half of the time, as with a fair coin.

    Raises:
        ValueError: an accuracy is outside [0, 1].
    """
    if not all(0 <= p <= 1 for p in accuracies):
        raise ValueError(f"accuracies must be from 0 to 1, got {list(accuracies)}")
    values = [1.0] * len(accuracies) if weights is None else list(weights)
    spread = fsum(map(abs, values))
    parts = []
    for outcome in product((True, False), repeat=len(accuracies)):
        chance = 1.0
        for right, p in zip(outcome, accuracies, strict=True):
            chance *= p if right else 1 - p
        votes = ["right" if right else "wrong" for right in outcome]
        leaders = leaders_of(tally(votes, values, ("right", "wrong")), spread)
        parts.append(chance * ("right" in leaders) / len(leaders))
    return fsum(parts)


# ------------------------------------------------------------------ aggregators


def check_weights(instance: Any, attribute: Attribute[Any], value: Mapping[str, float]) -> None:
    """Validate weights by voter: raise ValueError if one is not finite or all are zero."""
    if not all(isfinite(weight) for weight in value.values()):
        raise ValueError("weights must be finite numbers")
    if value and not any(value.values()):
        raise ValueError("all weights are zero; give at least one voter another weight")


def check_voters(setting: str, named: Iterable[str], voters: Sequence[str]) -> None:
    """Raise ValueError if a setting names somebody who does not vote."""
    for name in named:
        if name not in voters:
            raise ValueError(f"{setting}: {name!r} has no vote{did_you_mean(name, voters)}")


def accuracies_of(examples: Sequence[Example], a: float = 1.0, b: float = 1.0) -> dict[str, float]:
    """Return each voter's accuracy under a Beta(a, b) prior; ballots without answer are ignored."""
    outcomes: dict[str, list[bool]] = {}
    for example in examples:
        for ballot, right in zip(example.ballots, example.right, strict=True):
            of_voter = outcomes.setdefault(ballot.voter, [])
            if right is not None:
                of_voter.append(right)
    return {voter: smoothed(sum(hits), len(hits), a, b) for voter, hits in outcomes.items()}


def _counts(ballots: Sequence[Ballot]) -> tuple[dict[str, float], int]:
    """Return the number of votes by answer, and of all of them."""
    votes = [ballot.vote for ballot in ballots]
    return tally(votes), sum(vote is not None for vote in votes)


@frozen
class Plurality(Aggregator):
    """Chooses the answer with most votes, even if that is no majority.

    Args:
        tie: how to choose among answers with equally many votes.
        weights: by voter, "agent" or "agent:option", for the tie rule `by_weight`; learned as
            accuracies.
    """

    tie: TieRule = "first_by_member_order"
    weights: Mapping[str, float] = learnable(Factory(dict), validator=check_weights)

    def check(self, voters: Sequence[str]) -> None:
        check_voters("weights", self.weights, voters)

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        return decide(_counts(ballots)[0], ballots, self.tie, key, self.weights)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Return whether one answer leads by more votes than are outstanding."""
        return uncatchable(_counts(ballots)[0], [1.0] * len(waiting)) is not None

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return accuracies, which break ties by weight."""
        return {"weights": accuracies_of(examples)}


@frozen
class Majority(Aggregator):
    """Chooses the answer with more than half of the votes, else there is no consensus.

    Args:
        of: half of the votes `cast`, or of all `members`, silent ones included.
        share: the share of votes that the answer must exceed.
    """

    of: Literal["cast", "members"] = "cast"
    share: Annotated[float, Meta(ge=0.5, lt=1)] = 0.5

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        scores, cast = _counts(ballots)
        threshold = self._threshold(cast if self.of == "cast" else len(ballots))
        winners = [answer for answer, votes in scores.items() if votes > threshold]
        if not winners:
            return Result("no_consensus", None, tuple(leaders_of(scores)), "", scores, cast)
        return Result("winner", winners[0], tuple(winners), "", scores, cast)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Return whether one answer keeps its majority, or none can reach one any more."""
        scores, cast = _counts(ballots)
        top, remaining = max(scores.values(), default=0.0), len(waiting)
        total = remaining + (cast if self.of == "cast" else len(ballots))
        # The leader must pass if all others vote against it; a rival, if all vote for it.
        threshold = self._threshold(total)
        return top > threshold or top + remaining <= threshold

    def _threshold(self, votes: int) -> float:
        # Rounded against noise such as 0.58 * 50 = 28.999999999999996.
        return round(self.share * votes, 9)


@frozen
class Quorum(Aggregator):
    """Chooses an answer that at least `votes` ballots agree on; for gates that must be sure.

    Args:
        votes: number of equal votes needed.
        veto: voters that must agree.
        tie: how to choose if several answers pass with equally many votes.
    """

    votes: Annotated[int, Meta(ge=1)] = 2
    veto: tuple[str, ...] = ()
    tie: TieRule = "abstain"

    def check(self, voters: Sequence[str]) -> None:
        check_voters("veto", self.veto, voters)
        if self.votes > len(voters):
            raise ValueError(f"votes: is {self.votes}, but there are {len(voters)} ballots")

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        scores, _ = _counts(ballots)
        passing = {answer: votes for answer, votes in scores.items() if votes >= self.votes}
        result = decide(passing, ballots, self.tie, key)
        against = self._against(ballots, result.answer)
        if result.answer is None or not against:
            return evolve(result, scores=scores)
        note = f"vetoed: {', '.join(against)} did not agree to {result.answer!r}"
        return Result("no_consensus", None, result.leaders, "", scores, result.used, notes=(note,))

    def _against(self, ballots: Sequence[Ballot], answer: str | None) -> list[str]:
        """Return the voters with a veto that do not agree, each with all its ballots."""
        cast = [ballot for ballot in ballots if ballot.vote is not None]
        agreeing = {ballot.voter for ballot in cast if ballot.vote == answer}
        differing = {ballot.voter for ballot in cast if ballot.vote != answer}
        return [voter for voter in self.veto if voter not in agreeing - differing]

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Return whether no answer can pass, or the leader passes and no veto can come."""
        scores, _ = _counts(ballots)
        if max(scores.values(), default=0.0) + len(waiting) < self.votes:
            return True
        leader = uncatchable(scores, [1.0] * len(waiting))
        passes = leader is not None and scores[leader] >= self.votes
        return passes and not set(self.veto) & set(waiting)


@frozen
class Unanimous(Aggregator):
    """Chooses the answer that all agree on, else there is no consensus.

    Args:
        of: all who `cast` a vote, or all `members`: then a silent one prevents consensus.
    """

    of: Literal["cast", "members"] = "members"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        scores, cast = _counts(ballots)
        leaders = tuple(leaders_of(scores))
        if len(scores) != 1 or (cast < len(ballots) and self.of == "members"):
            return Result("no_consensus", None, leaders, "", scores, cast)
        return Result("winner", leaders[0], leaders, "", scores, cast)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Return whether two answers differ, or a member that must agree is silent."""
        scores, cast = _counts(ballots)
        return len(scores) > 1 or (cast < len(ballots) and self.of == "members")
