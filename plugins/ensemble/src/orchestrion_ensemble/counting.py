"""Counting votes: pure functions over plain numbers, without an array library.

Sums are `math.fsum`, which rounds once and so does not depend on the order of the members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import fsum, isfinite, log

from attrs import evolve

from orchestrion import Key
from orchestrion_ensemble.interfaces import Ballot, Result, TieRule

__all__ = [
    "decide",
    "leaders_of",
    "log_odds",
    "smoothed",
    "tally",
    "uncatchable",
    "valid_weights",
    "vote_accuracy",
    "weigh",
]

TOLERANCE = 1e-9
"""Scores closer than this share of all weight are equal: a tie must survive rescaling."""


def tally(
    votes: Sequence[str | None],
    weights: Sequence[float] | None = None,
    candidates: Sequence[str] = (),
) -> dict[str, float]:
    """The weight behind each answer; None abstains, counted neither for nor against.

    Args:
        votes: one answer a voter.
        weights: one a voter, finite, negative allowed; by default 1 each.
        candidates: answers that exist even if nobody votes for them.

    Raises:
        ValueError: no voter at all, or weights that do not fit.
    """
    if not votes:
        raise ValueError("a vote needs at least one voter")
    values = [1.0] * len(votes) if weights is None else list(weights)
    if len(values) != len(votes):
        raise ValueError(f"{len(votes)} votes and {len(values)} weights")
    if not all(map(isfinite, values)):
        raise ValueError(f"weights must be finite numbers, got {values}")
    behind: dict[str, list[float]] = {name: [] for name in candidates}
    for vote, weight in zip(votes, values, strict=True):
        if vote is not None:
            behind.setdefault(vote, []).append(weight)
    return {answer: fsum(parts) for answer, parts in behind.items()}


def valid_weights(weights: Sequence[float]) -> list[float]:
    """Weights of an average, scaled to sum 1.

    Raises:
        ValueError: one is negative, NaN or infinite, or all are zero.
    """
    values = [float(weight) for weight in weights]
    if not values or not all(isfinite(value) and value >= 0 for value in values):
        raise ValueError(f"weights must be finite and not negative, got {values}")
    # By the largest first, so that the sum of huge weights stays finite.
    top = max(values)
    if top == 0:
        raise ValueError("all weights are zero: nobody has a say")
    values = [value / top for value in values]
    total = fsum(values)
    return [value / total for value in values]


def log_odds(accuracy: float, classes: int = 2, floor: float = 1e-6) -> float:
    """The optimal weight of an independent voter: log((C - 1) p / (1 - p)).

    Nitzan and Paroush 1982, eq. 4, for C = 2; for C answers with mistakes spread evenly it
    follows from the same likelihood ratio. Below chance (p < 1/C) it is negative. `floor` keeps
    p away from 0 and 1.

    Raises:
        ValueError: the accuracy is not within 0 to 1, or there are fewer than two classes.
    """
    if not 0 <= accuracy <= 1 or classes < 2:
        raise ValueError(f"accuracy {accuracy} and {classes} classes: no log-odds")
    p = min(max(accuracy, floor), 1 - floor)
    return log((classes - 1) * p / (1 - p))


def smoothed(hits: float, n: float, a: float = 1.0, b: float = 1.0) -> float:
    """An accuracy from counts under a Beta(a, b) prior: (hits + a) / (n + a + b).

    Raises:
        ValueError: counts or prior make no sense.
    """
    if not 0 <= hits <= n or a <= 0 or b <= 0:
        raise ValueError(f"{hits} hits of {n} with prior {a}, {b}")
    return (hits + a) / (n + a + b)


def leaders_of(scores: Mapping[str, float], total: float | None = None) -> list[str]:
    """The answers whose score is highest, equal ones included.

    Args:
        scores: by answer.
        total: all absolute weight in play, the measure of what counts as equal.
    """
    if not scores:
        return []
    top = max(scores.values())
    if total is None:
        total = fsum(map(abs, scores.values()))
    return [answer for answer, score in scores.items() if score >= top - TOLERANCE * total]


def uncatchable(scores: Mapping[str, float], waiting: Sequence[float]) -> str | None:
    """The answer that leads alone whatever the waiting voters say, else None.

    A waiting voter with a positive weight may put it behind a rival, named or new; one with a
    negative weight may take it off the leader.
    """
    leaders = leaders_of(scores)
    if len(leaders) != 1:
        return None
    leader = leaders[0]
    rivals = [score for answer, score in scores.items() if answer != leader]
    swing = fsum(map(abs, waiting))
    slack = 4 * TOLERANCE * (fsum(map(abs, scores.values())) + swing)
    # An answer that nobody named so far stands at 0.
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
    """The result of the highest score, with a tie broken by a rule that is stated.

    Args:
        scores: by answer; empty gives `no_consensus`.
        ballots: in member order.
        tie: how to choose among equal leaders.
        key: for `seeded_random`.
        weights: of voters, for `by_weight`; 1 each by default.
        total: see `leaders_of`.
    """
    used = sum(ballot.votes for ballot in ballots)
    leaders = leaders_of(scores, total)
    if not leaders:
        return Result("no_consensus", used=used)
    if len(leaders) == 1:
        return Result("winner", leaders[0], tuple(leaders), scores=dict(scores), used=used)
    chosen = _break_tie(leaders, ballots, tie, key, weights or {})
    return Result("tie", chosen, tuple(leaders), tie, dict(scores), used)


def weigh(
    ballots: Sequence[Ballot],
    weights: Sequence[float],
    answers: Sequence[str],
    tie: TieRule,
    key: Key,
    notes: tuple[str, ...] = (),
) -> Result:
    """The result of a vote in which every ballot has a weight of its own.

    Without a closed list of answers, nothing wins that the weights do not speak for.

    Args:
        ballots: in member order.
        weights: one a ballot; negative ones speak against the answer.
        answers: all that there can be; empty means open.
        tie: how to choose among answers of equal weight.
        key: for `seeded_random`.
        notes: go into the result.
    """
    used = [weight for one, weight in zip(ballots, weights, strict=True) if one.votes]
    if not used:
        return Result("no_consensus", notes=notes)
    scores = tally([one.answer if one.votes else None for one in ballots], weights, answers)
    spread = fsum(map(abs, used))
    by_voter = {one.voter: weight for one, weight in zip(ballots, weights, strict=True)}
    result = evolve(decide(scores, ballots, tie, key, by_voter, spread), notes=notes)
    if answers or not spread or scores[result.leaders[0]] > TOLERANCE * spread:
        return result
    note = "the weights speak for none of the answers that were given"
    return Result("no_consensus", None, result.leaders, "", scores, len(used), notes=(*notes, note))


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
        named = [ballot.answer for ballot in ballots if ballot.votes and ballot.answer in leaders]
        return named[0] if named else leaders[0]
    if rule == "seeded_random":
        # Sorted, so that the draw does not depend on the members' order.
        return sorted(leaders)[int(key.child("tie").uniform() * len(leaders))]
    behind: dict[str, list[float]] = {leader: [] for leader in leaders}
    for ballot in ballots:
        if ballot.votes and ballot.answer in behind:
            by_weight = rule == "by_weight"
            value = weights.get(ballot.voter, 1.0) if by_weight else (ballot.confidence or 0.0)
            behind[ballot.answer].append(value)
    best = leaders_of({answer: fsum(values) for answer, values in behind.items()})
    return best[0] if len(best) == 1 else None


def vote_accuracy(accuracies: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """How often a weighted vote of independent voters on two answers is right: all 2^K outcomes.

    Equal scores are right half of the time, as under a fair coin.

    Raises:
        ValueError: an accuracy is not within 0 to 1.
    """
    if not all(0 <= p <= 1 for p in accuracies):
        raise ValueError(f"accuracies must be within 0 to 1, got {list(accuracies)}")
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
