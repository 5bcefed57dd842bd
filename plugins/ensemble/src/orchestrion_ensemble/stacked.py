"""The aggregator `stacked`: a logistic regression over all votes.

A second level that is fitted on problems on which its first level was trained learns to trust the
member that remembers best. So regularisation is chosen, and accuracy measured, out of fold
(Wolpert 1992; van der Laan, Polley and Hubbard 2007), on problems of a split of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from attrs import evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, UsageError, learnable
from orchestrion_ensemble.average import linear_pool
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.votes import Plurality, decide

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

Row = tuple[float, ...]


@frozen
class Learned:
    """A logistic regression over the probability that each voter gives to each answer.

    Args:
        answers: what it chooses from.
        features: voter and answer, in the order of the coefficients.
        coefficients: a row for each answer.
        intercepts: one for each answer.
        accuracy: how often it was right out of fold; 0 if that is not known.
    """

    answers: tuple[str, ...]
    features: tuple[tuple[str, str], ...]
    coefficients: tuple[Row, ...]
    intercepts: Row
    accuracy: float = 0.0


@frozen
class Stacked(Aggregator):
    """Chooses by a second-level model over the members' answers, or probabilities if given.

    It can learn what no weight expresses, for example whom to believe about which answer.
    `ensemble-weights` fits it with scikit-learn (the extra `stacked`) on problems of a split of
    its own; regularisation is chosen, and accuracy measured, out of fold. Before that it is a
    plurality.

    Args:
        model: the regression. Learned.
        folds: number of parts into which the problems are cut.
        strengths: inverse strengths of regularisation to choose from.
        tie: how to choose among equally probable answers.
    """

    model: Learned | None = learnable(None)
    folds: Annotated[int, Meta(ge=2)] = 5
    strengths: tuple[Annotated[float, Meta(gt=0)], ...] = (0.01, 0.1, 1.0, 10.0)
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        model = self.model
        if model is None:
            result = Plurality(self.tie).combine(ballots, problem, key)
            return evolve(result, notes=("no model is learned: plurality",))
        used = sum(ballot.status == "cast" for ballot in ballots)
        if not used:
            return Result("no_consensus")
        row = _row(model.features, ballots)
        probabilities = predicted(model.coefficients, model.intercepts, row).tolist()
        scores = dict(zip(model.answers, probabilities, strict=True))
        return evolve(decide(scores, ballots, self.tie, key), used=used, probabilities=scores)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return the model, fitted on the examples with known truth."""
        labelled = [example for example in examples if example.truth is not None]
        if len(labelled) < 2:
            raise UsageError(
                "stacked needs at least two problems on which a member names the right answer, "
                f"got {len(labelled)}"
            )
        features = _features(labelled)
        rows = [_row(features, example.ballots) for example in labelled]
        answers = sorted({str(example.truth) for example in labelled})
        labels = [answers.index(str(example.truth)) for example in labelled]
        seed = key.child("folds").integer()
        try:
            coefficients, intercepts, accuracy = fit_logistic(
                rows, labels, self.folds, self.strengths, seed
            )
        except ImportError:
            raise UsageError(
                "the aggregator stacked is fitted with scikit-learn, which is not installed: "
                "pip install 'orchestrion-ensemble[stacked]'"
            ) from None
        return {
            "model": {
                "answers": answers,
                "features": [list(feature) for feature in features],
                "coefficients": coefficients.tolist(),
                "intercepts": intercepts.tolist(),
                "accuracy": accuracy,
            }
        }


def _features(examples: Sequence[Example]) -> list[tuple[str, str]]:
    ballots = [ballot for example in examples for ballot in example.ballots]
    voters = dict.fromkeys(ballot.voter for ballot in ballots)
    answers = sorted({answer for ballot in ballots for answer in _probabilities(ballot)})
    return [(voter, answer) for voter in voters for answer in answers]


def _probabilities(ballot: Ballot) -> Mapping[str, float]:
    """Return a ballot's probability of each answer; 1 for a plain answer, empty if silent."""
    if ballot.status == "cast" and ballot.probabilities is not None:
        return ballot.probabilities
    return {ballot.vote: 1.0} if ballot.vote is not None else {}


def _row(features: Sequence[tuple[str, str]], ballots: Sequence[Ballot]) -> list[float]:
    """Return the features; several ballots of a voter are averaged, a silent voter counts as 0."""
    by_voter: dict[str, list[Mapping[str, float]]] = {}
    for ballot in ballots:
        if probabilities := _probabilities(ballot):
            by_voter.setdefault(ballot.voter, []).append(probabilities)
    means = {voter: linear_pool(several) for voter, several in by_voter.items()}
    return [means.get(voter, {}).get(answer, 0.0) for voter, answer in features]


# ------------------------------------------------------------------ the regression
# numpy is imported where it is used, so that configs are read without it.


def fit_logistic(
    features: ArrayLike, labels: ArrayLike, folds: int, strengths: Sequence[float], seed: int
) -> tuple[Floats, Floats, float]:
    """Return a multinomial logistic regression: softmax(coefficients @ x + intercepts).

    It is fitted by scikit-learn, with regularisation chosen out of fold.

    Args:
        features: n x d, with n of at least 2.
        labels: the true class of each point, from 0; each class below the highest occurs.
        folds: number of folds; fewer if there are fewer points.
        strengths: inverse regularisation strengths (`C`) to choose from by mean log-probability.
        seed: of the folds.

    Returns:
        Coefficients, classes x d; intercepts, one for each class; how often it was right out of
        fold.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    import numpy as np

    x, y = np.asarray(features, dtype=np.float64), np.asarray(labels)
    classes = int(y.max()) + 1
    if classes == 1:
        return np.zeros((1, x.shape[1])), np.zeros(1), 1.0
    # Sizes of folds differ by at most 1.
    folds = min(folds, len(y))
    fold_of = np.random.default_rng(seed).permutation(np.arange(len(y)) % folds)
    candidates: list[tuple[float, float, float]] = []
    for strength in strengths:
        held_out = np.empty((len(y), classes))
        for fold in range(folds):
            own = fold_of == fold
            fitted = _logistic(x[~own], y[~own], strength, classes)
            held_out[own] = predicted(*fitted, x[own])
        score = float(np.log(np.maximum(held_out[np.arange(len(y)), y], 1e-12)).mean())
        candidates.append((score, strength, float((held_out.argmax(axis=1) == y).mean())))
    _, strength, accuracy = max(candidates, key=lambda candidate: candidate[0])
    return *_logistic(x, y, strength, classes), accuracy


def predicted(coefficients: ArrayLike, intercepts: ArrayLike, features: ArrayLike) -> Floats:
    """Return the probabilities that a regression predicts: a row for each row of features."""
    import numpy as np

    scores = np.asarray(features) @ np.asarray(coefficients).T + np.asarray(intercepts)
    raw = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


def _logistic(x: Floats, y: NDArray[Any], strength: float, classes: int) -> tuple[Floats, Floats]:
    """Return coefficients for all classes; a class without points gets a very low intercept."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    coefficients, intercepts = np.zeros((classes, x.shape[1])), np.full(classes, -30.0)
    seen = np.unique(y)
    if len(seen) == 1:
        intercepts[seen] = 0.0
        return coefficients, intercepts
    model = LogisticRegression(C=strength, max_iter=1000).fit(x, y)
    if len(seen) == 2:
        # One score for the second class against the first.
        coefficients[seen[1]], intercepts[seen] = model.coef_[0], [0.0, model.intercept_[0]]
        return coefficients, intercepts
    coefficients[seen], intercepts[seen] = model.coef_, model.intercept_
    return coefficients, intercepts
