"""Aggregators whose votes have weights: `weighted`, `confidence` and `dynamic`.

They differ in what a vote weighs: the log-odds of its voter's known accuracy, of its calibrated
confidence, or of its voter's accuracy on similar problems.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp, fsum, log, sqrt
from typing import Annotated, Literal

from attrs import Factory, frozen

from orchestrion import JSON, Key, Meta, Problem, learnable
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.votes import (
    accuracies_of,
    check_voters,
    check_weights,
    log_odds,
    smoothed,
    tally,
    uncatchable,
    weigh,
)

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]


@frozen(kw_only=True)
class _Weighing(Aggregator):
    """Holds the settings that weighing aggregators share.

    Args:
        answers: all possible answers in normalised form; empty means that the list is open.
        choices: number of possible answers, for the log-odds; by default that of `answers`, else 2.
        tie: how to choose among answers of equal weight.
    """

    answers: tuple[str, ...] = ()
    choices: Annotated[int, Meta(ge=2)] | None = None
    tie: TieRule = "first_by_member_order"

    def _log_odds(self, p: float, floor: float = 1e-6) -> float:
        return log_odds(p, self.choices or max(2, len(self.answers)), floor)


def missing_weights(ballots: Sequence[Ballot], weights: Mapping[str, float]) -> tuple[str, ...]:
    """Return a note on voters without a given weight, for example of a misspelt name, if any."""
    voters = dict.fromkeys(ballot.voter for ballot in ballots)
    missing = ", ".join(voter for voter in voters if voter not in weights)
    return (f"no weight is given for {missing}: counted as 0",) if missing else ()


@frozen
class Weighted(_Weighing):
    """Chooses the answer with the largest sum of its voters' weights.

    By default a weight is the log-odds of the voter's accuracy, which is optimal for independent
    voters (Nitzan and Paroush 1982): unlike accuracies themselves, it never makes a vote worse
    than its best member. Below chance it is negative: a vote of a bad voter counts against the
    answer. Voters of unknown accuracy get the mean of the known ones; if none is known, all weigh
    the same.

    Without `answers`, only an answer that somebody gave can win, and only with a positive sum;
    with `answers`, each of them can.

    Args:
        accuracies: by voter, "agent" or "agent:option"; learned by `ensemble-weights`.
        weights: by voter, in place of weights from accuracies.
        scheme: weights from accuracies: their `log-odds`, or the `accuracy` itself.
        prior: hits and misses that each voter starts from when accuracies are learned.
    """

    accuracies: Mapping[str, Share] = learnable(Factory(dict))
    weights: Mapping[str, float] = learnable(Factory(dict), validator=check_weights)
    scheme: Literal["log-odds", "accuracy"] = "log-odds"
    prior: tuple[Positive, Positive] = (1.0, 1.0)

    def check(self, voters: Sequence[str]) -> None:
        check_voters("accuracies", self.accuracies, voters)
        check_voters("weights", self.weights, voters)

    def weight(self, voter: str) -> float:
        """Return the weight of each ballot of this voter."""
        if self.weights:
            return self.weights.get(voter, 0.0)
        if not self.accuracies:
            return 1.0
        mean = fsum(self.accuracies.values()) / len(self.accuracies)
        p = self.accuracies.get(voter, mean)
        return p if self.scheme == "accuracy" else self._log_odds(p)

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        notes: tuple[str, ...] = ()
        if self.weights:
            notes = missing_weights(ballots, self.weights)
        elif not self.accuracies:
            notes = ("no weights are known: all are equal",)
        weights = [self.weight(ballot.voter) for ballot in ballots]
        return weigh(ballots, weights, self.answers, self.tie, key, notes)

    def settled(self, ballots: Sequence[Ballot], waiting: Sequence[str]) -> bool:
        """Return whether one answer leads by more than all outstanding weight."""
        votes = [ballot.vote for ballot in ballots]
        scores = tally(votes, [self.weight(ballot.voter) for ballot in ballots], self.answers)
        return uncatchable(scores, [self.weight(voter) for voter in waiting]) is not None

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return each voter's accuracy, smoothed by `prior`."""
        return {"accuracies": accuracies_of(examples, *self.prior)}


# ------------------------------------------------------------------ confidence

CONFIDENCE_FLOOR = 1e-3


@frozen
class Confidence(_Weighing):
    """Weighs a vote by its voter's stated confidence, calibrated once that is learned.

    Args:
        calibration: slope and shift of each voter's confidence on the log-odds scale; [1, 0]
            leaves it as stated. Learned by `ensemble-weights`.
        scheme: a vote weighs the `log-odds` of being right, or the `confidence` itself.
        unstated: the confidence of a ballot that states none.
    """

    calibration: Mapping[str, tuple[float, float]] = learnable(Factory(dict))
    scheme: Literal["log-odds", "confidence"] = "log-odds"
    unstated: Share = 0.5

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        notes = () if self.calibration else ("confidence is not calibrated: taken as stated",)
        weights = [self._weight(ballot) for ballot in ballots]
        return weigh(ballots, weights, self.answers, self.tie, key, notes)

    def _weight(self, ballot: Ballot) -> float:
        p = self.unstated if ballot.confidence is None else ballot.confidence
        if ballot.voter in self.calibration and ballot.confidence is not None:
            p = calibrated(p, *self.calibration[ballot.voter])
        return p if self.scheme == "confidence" else self._log_odds(p, CONFIDENCE_FLOOR)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return each voter's calibration, from its confidences and the verifier's verdicts."""
        points: dict[str, list[tuple[float, bool]]] = {}
        for example in examples:
            for ballot, right in zip(example.ballots, example.right, strict=True):
                if ballot.confidence is not None and right is not None:
                    points.setdefault(ballot.voter, []).append((ballot.confidence, right))
        calibration = {}
        for voter, pairs in points.items():
            stated, outcomes = [p for p, _ in pairs], [right for _, right in pairs]
            calibration[voter] = list(fit_platt(stated, outcomes))
        return {"calibration": calibration}


def logit(p: float) -> float:
    """Return log(p / (1 - p)) with p clipped to [0.001, 0.999]."""
    q = min(max(p, CONFIDENCE_FLOOR), 1 - CONFIDENCE_FLOOR)
    return log(q / (1 - q))


def calibrated(confidence: float, slope: float = 1.0, shift: float = 0.0) -> float:
    """Return the probability of being right: sigmoid(slope * logit(confidence) + shift)."""
    return _sigmoid(slope * logit(confidence) + shift)


def fit_platt(
    confidences: Sequence[float], right: Sequence[bool], strength: float = 0.1
) -> tuple[float, float]:
    """Return slope and shift that calibrate stated confidences (Platt 1999, on the log-odds scale).

    Deviations from the paper: the input is the logit of the confidence, so that (1, 0) changes
    nothing, and a Gaussian prior of precision `strength` at (1, 0) takes the place of smoothed
    targets: the fit is defined for few answers and for a constant confidence. Newton's method on
    the concave log-posterior.
    """
    points = [(logit(c), float(hit)) for c, hit in zip(confidences, right, strict=True)]
    a, b = 1.0, 0.0
    for _ in range(100):
        # Gradient and negative Hessian of the log-posterior.
        ga, gb, haa, hab, hbb = strength * (1 - a), -strength * b, strength, 0.0, strength
        for x, hit in points:
            p = _sigmoid(a * x + b)
            residual, variance = hit - p, p * (1 - p)
            ga, gb = ga + residual * x, gb + residual
            haa, hab, hbb = haa + variance * x * x, hab + variance * x, hbb + variance
        determinant = haa * hbb - hab * hab
        da, db = (hbb * ga - hab * gb) / determinant, (haa * gb - hab * ga) / determinant
        # Long steps come from flat regions: shorten them.
        size = max(abs(da), abs(db), 1.0)
        a, b = a + da / size, b + db / size
        if max(abs(da), abs(db)) < 1e-12:
            break
    return a, b


def _sigmoid(z: float) -> float:
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))


# ------------------------------------------------------------------ dynamic

_WORD = re.compile(r"\w+")


@frozen
class Remembered:
    """A problem with known answer, and which voters were right.

    Args:
        text: of the problem.
        category: of the problem.
        right: by voter, the share of its answers that were right; voters without answer are
            left out.
    """

    text: str
    category: str = ""
    right: Mapping[str, Share] = Factory(dict)


def similarity(text: str, category: str, other: Remembered) -> float:
    """Return the similarity of two problems, 0 to 1.

    Half of it is whether the categories are equal, half the cosine of the sets of words.
    """
    ours, theirs = _words(text), _words(other.text)
    cosine = len(ours & theirs) / sqrt(len(ours) * len(theirs)) if ours and theirs else 0.0
    return 0.5 * (category == other.category) + 0.5 * cosine


@lru_cache(8192)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


@frozen
class Dynamic(_Weighing):
    """Weighs voters by the log-odds of their accuracy on the most similar remembered problems.

    The accuracy is (hits + a) / (n + a + b) over the `nearest` problems (KNORA of Ko, Sabourin and
    Britto 2008), each weighted by its similarity and by its age. Without remembered problems every
    voter has the prior accuracy, and all weigh the same.

    Args:
        memory: problems from the oldest to the latest; `ensemble-weights` adds to it.
        nearest: number of problems that count.
        half_life: number of later problems after which one counts half; null: all count alike.
        keep: number of problems to remember, the latest ones.
        prior: hits and misses that each voter starts from.
        floor: accuracies are clipped to [floor, 1 - floor].
    """

    memory: tuple[Remembered, ...] = learnable(())
    nearest: Annotated[int, Meta(ge=1)] = 32
    half_life: Positive | None = 1000.0
    keep: Annotated[int, Meta(ge=1)] = 2000
    prior: tuple[Positive, Positive] = (2.0, 1.0)
    floor: Annotated[float, Meta(gt=0, lt=0.5)] = 0.01

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        near = self._near(problem)
        notes = () if near else ("no similar problem is remembered: all weigh the same",)
        by_voter = {
            voter: self._log_odds(self._accuracy(voter, near), self.floor)
            for voter in {ballot.voter for ballot in ballots}
        }
        weights = [by_voter[ballot.voter] for ballot in ballots]
        return weigh(ballots, weights, self.answers, self.tie, key, notes)

    def accuracy(self, voter: str, problem: Problem) -> float:
        """Return a voter's expected accuracy on a problem."""
        return self._accuracy(voter, self._near(problem))

    def _near(self, problem: Problem) -> list[tuple[float, Remembered]]:
        """Return the most similar problems with their weights, later ones first among equals."""
        scored = [
            (similarity(problem.text, problem.category, remembered), place)
            for place, remembered in enumerate(self.memory)
        ]
        best = sorted((pair for pair in scored if pair[0] > 0), reverse=True)[: self.nearest]
        last = len(self.memory) - 1
        return [(alike * self._decay(last - place), self.memory[place]) for alike, place in best]

    def _decay(self, age: int) -> float:
        return 1.0 if self.half_life is None else float(0.5 ** (age / self.half_life))

    def _accuracy(self, voter: str, near: Sequence[tuple[float, Remembered]]) -> float:
        shares = [(weight, past.right[voter]) for weight, past in near if voter in past.right]
        hits, n = sum(weight * right for weight, right in shares), sum(w for w, _ in shares)
        return smoothed(min(hits, n), n, *self.prior)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return the memory with these problems added, in order."""
        memory = [*self.memory, *map(_remembered, examples)]
        return {
            "memory": [
                {"text": past.text, "category": past.category, "right": dict(past.right)}
                for past in memory[-self.keep :]
            ]
        }


def _remembered(example: Example) -> Remembered:
    outcomes: dict[str, list[float]] = {}
    for ballot, right in zip(example.ballots, example.right, strict=True):
        if right is not None:
            outcomes.setdefault(ballot.voter, []).append(float(right))
    shares = {voter: sum(hits) / len(hits) for voter, hits in outcomes.items()}
    return Remembered(example.problem.text, example.problem.category, shares)
