"""The aggregator `dawid-skene`: voters' confusion matrices, learned without known truths.

Source: A. P. Dawid and A. M. Skene, Maximum likelihood estimation of observer error-rates using
the EM algorithm, Applied Statistics 28 (1979).

Deviation: `smoothing` is added to every count, so that an answer that a voter never gave keeps a
small probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, log
from typing import TYPE_CHECKING, Annotated

from attrs import Factory, evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, UsageError, learnable
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.votes import Plurality, decide, softmax

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

Row = tuple[float, ...]


@frozen
class DawidSkene(Aggregator):
    """Weighs each vote by its voter's confusion matrix (Dawid and Skene 1979).

    `ensemble-weights` learns the matrices from the votes alone, by EM; they need no verifier.
    Before that it is a plurality. Votes for unknown answers do not count.

    Args:
        answers: the answers that the matrices know. Learned.
        prior: how frequent each of them is. Learned.
        confusion: by voter, a row for each true answer: how often the voter then gives each
            answer. Learned.
        smoothing: pseudo-count of each cell in learning.
        tie: how to choose among equally probable answers.
    """

    answers: tuple[str, ...] = learnable(())
    prior: Row = learnable(())
    confusion: Mapping[str, tuple[Row, ...]] = learnable(Factory(dict))
    smoothing: Annotated[float, Meta(gt=0)] = 0.01
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        if not self.confusion:
            result = Plurality(self.tie).combine(ballots, problem, key)
            return evolve(result, notes=("no confusion matrices are known: plurality",))
        # Each vote as its voter's matrix and the column of its answer.
        votes = [
            (self.confusion[ballot.voter], self.answers.index(ballot.vote))
            for ballot in ballots
            if ballot.voter in self.confusion and ballot.vote in self.answers
        ]
        if not votes:
            return Result("no_consensus", notes=("the confusion matrices know none of the votes",))
        posterior = softmax(
            {
                answer: fsum([log(self.prior[c]), *(log(matrix[c][v]) for matrix, v in votes)])
                for c, answer in enumerate(self.answers)
            }
        )
        result = decide(posterior, ballots, self.tie, key)
        return evolve(result, used=len(votes), probabilities=posterior)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return matrices by EM over the votes; each ballot of a voter counts."""
        ballots = [ballot for example in examples for ballot in example.ballots]
        voters = list(dict.fromkeys(ballot.voter for ballot in ballots))
        answers = sorted({ballot.answer for ballot in ballots if ballot.answer is not None})
        if not answers:
            raise UsageError("nothing can be learned: nobody gave an answer")
        # Samples of one voter are columns of their own, and their matrices are averaged.
        width = max(len(example.ballots) for example in examples)
        table, columns = [], [""] * width
        for example in examples:
            row = [-1] * width
            for column, ballot in enumerate(example.ballots):
                columns[column] = ballot.voter
                if ballot.vote is not None:
                    row[column] = answers.index(ballot.vote)
            table.append(row)
        crowd = dawid_skene(table, len(answers), self.smoothing)
        confusion = {}
        for voter in voters:
            own = [column for column, name in enumerate(columns) if name == voter]
            confusion[voter] = crowd.confusion[own].mean(axis=0).tolist()
        return {"answers": answers, "prior": crowd.prior.tolist(), "confusion": confusion}


@frozen(eq=False)
class Crowd:
    """Holds the estimates from n items, K voters and C classes.

    Args:
        posterior: n x C, the probability of each class for each item.
        prior: C, the frequency of each class.
        confusion: K x C x C, [k, c, v]: how often voter k says v if c is true.
        scores: the penalised log-likelihood after each step; it never falls.
    """

    posterior: Floats
    prior: Floats
    confusion: Floats
    scores: tuple[float, ...]


def dawid_skene(
    votes: ArrayLike,
    classes: int,
    smoothing: float = 0.01,
    tolerance: float = 1e-9,
    steps: int = 1000,
) -> Crowd:
    """Return the classes of items and the confusion matrix of every voter, estimated by EM.

    It starts from the shares of votes (section 3.1), so that labels cannot be switched unless a
    majority is consistently wrong. Maximisation by equations 2.3 and 2.4, posterior by 2.5.

    Args:
        votes: n x K integers from 0 to classes - 1; -1 if a voter is silent.
        classes: number of classes, C.
        smoothing: pseudo-count of each cell, positive.
        tolerance: it stops when the score rises by less, per item.
        steps: maximum number.
    """
    import numpy as np  # here, so that configs are read without it

    table = np.asarray(votes)
    # n x K x C: 1 where this voter says this class.
    votes_cast = (table[:, :, None] == np.arange(classes)).astype(np.float64)
    n, counts = len(table), votes_cast.sum(axis=1)
    cast = counts.sum(axis=1, keepdims=True)
    posterior = np.where(cast > 0, counts / np.maximum(cast, 1), 1 / classes)
    scores: list[float] = []
    while True:
        prior = (posterior.sum(axis=0) + smoothing) / (n + classes * smoothing)
        confusion = np.einsum("ic,ikv->kcv", posterior, votes_cast) + smoothing
        confusion /= confusion.sum(axis=2, keepdims=True)
        joint = np.log(prior) + np.einsum("ikv,kcv->ic", votes_cast, np.log(confusion))
        top = joint.max(axis=1, keepdims=True)
        likelihood = np.log(np.exp(joint - top).sum(axis=1, keepdims=True)) + top
        posterior = np.exp(joint - likelihood)
        penalty = smoothing * (np.log(confusion).sum() + np.log(prior).sum())
        scores.append(float(likelihood.sum() + penalty))
        rise = scores[-1] - scores[-2] if len(scores) > 1 else np.inf
        if rise <= tolerance * n or len(scores) >= steps:
            return Crowd(posterior, prior, confusion, tuple(scores))
