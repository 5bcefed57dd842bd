"""The aggregator `dynamic`: who was right on recent problems like this one weighs more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import sqrt
from typing import Annotated

from attrs import Factory, frozen

from orchestrion import JSON, Key, Meta, Problem, learnable
from orchestrion_ensemble.counting import log_odds, smoothed, weigh
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule

__all__ = ["Dynamic", "Remembered", "similarity"]

WORD = re.compile(r"\w+")


@frozen
class Remembered:
    """A problem whose answer is known, and who was right on it.

    Args:
        text: of the problem.
        category: of the problem.
        right: by voter; those without an answer are left out. A share, if one was asked often.
    """

    text: str
    category: str = ""
    right: Mapping[str, Annotated[float, Meta(ge=0, le=1)]] = Factory(dict)


def similarity(text: str, category: str, other: Remembered) -> float:
    """How much two problems are alike, 0 to 1: half the category, half the words in common.

    Words count once; the share in common is their cosine.
    """
    ours, theirs = _words(text), _words(other.text)
    common = len(ours & theirs) / sqrt(len(ours) * len(theirs)) if ours and theirs else 0.0
    return 0.5 * (category == other.category) + 0.5 * common


@lru_cache(8192)
def _words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text.casefold()))


@frozen
class Dynamic(Aggregator):
    """Weighs voters by the log-odds of their accuracy on the most similar remembered problems.

    The accuracy is (hits + a) / (n + a + b) over the `nearest` problems (Ko, Sabourin and Britto
    2008 call it KNORA), each counted by its similarity and by how recent it is. With nothing to
    remember every voter has the prior accuracy, and all weigh the same.

    Args:
        memory: problems from the oldest to the latest; learned by `ensemble-weights`, which adds
            to it.
        nearest: how many of them count.
        half_life: after so many further problems one counts half; null means all count alike.
        keep: the latest so many are remembered.
        prior: hits and misses that each voter starts from.
        floor: no accuracy is taken to be nearer to 0 or 1 than this.
        answers: all answers there can be, as they read when normalised; none means open.
        choices: how many answers there can be; by default as many as `answers`, else 2.
        tie: how to choose among answers of equal weight.
    """

    memory: tuple[Remembered, ...] = learnable(())
    nearest: Annotated[int, Meta(ge=1)] = 32
    half_life: Annotated[float, Meta(gt=0)] | None = 1000.0
    keep: Annotated[int, Meta(ge=1)] = 2000
    prior: tuple[Annotated[float, Meta(gt=0)], Annotated[float, Meta(gt=0)]] = (2.0, 1.0)
    floor: Annotated[float, Meta(gt=0, lt=0.5)] = 0.01
    answers: tuple[str, ...] = ()
    choices: Annotated[int, Meta(ge=2)] | None = None
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        near = self._near(problem)
        notes = () if near else ("no similar problem is remembered: all weigh the same",)
        by_voter = {voter: self._weight(voter, near) for voter in {one.voter for one in ballots}}
        weights = [by_voter[one.voter] for one in ballots]
        return weigh(ballots, weights, self.answers, self.tie, key, notes)

    def accuracy(self, voter: str, problem: Problem) -> float:
        """How often a voter is expected to be right on a problem."""
        return self._accuracy(voter, self._near(problem))

    def _near(self, problem: Problem) -> list[tuple[float, Remembered]]:
        """The most similar problems with what each counts; the later first where alike."""
        last = len(self.memory) - 1
        scored = [
            (similarity(problem.text, problem.category, one), place, one)
            for place, one in enumerate(self.memory)
        ]
        best = sorted((one for one in scored if one[0] > 0), key=lambda one: one[:2], reverse=True)
        return [
            (alike * self._decay(last - place), one) for alike, place, one in best[: self.nearest]
        ]

    def _decay(self, age: int) -> float:
        return 1.0 if self.half_life is None else float(0.5 ** (age / self.half_life))

    def _accuracy(self, voter: str, near: Sequence[tuple[float, Remembered]]) -> float:
        seen = [(count, one.right[voter]) for count, one in near if voter in one.right]
        hits, n = sum(count * right for count, right in seen), sum(count for count, _ in seen)
        return smoothed(min(hits, n), n, *self.prior)

    def _weight(self, voter: str, near: Sequence[tuple[float, Remembered]]) -> float:
        accuracy = self._accuracy(voter, near)
        return log_odds(accuracy, self.choices or max(2, len(self.answers)), self.floor)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """The memory with these problems added, in order."""
        memory = [*self.memory, *(_remembered(example) for example in examples)]
        return {
            "memory": [
                {"text": one.text, "category": one.category, "right": dict(one.right)}
                for one in memory[-self.keep :]
            ]
        }


def _remembered(example: Example) -> Remembered:
    told: dict[str, list[float]] = {}
    for ballot, right in zip(example.ballots, example.right, strict=True):
        if right is not None:
            told.setdefault(ballot.voter, []).append(float(right))
    shares = {voter: sum(one) / len(one) for voter, one in told.items()}
    return Remembered(example.problem.text, example.problem.category, shares)
