"""The aggregator `stacked`: a learned model reads all votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from attrs import evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, UsageError, learnable
from orchestrion_ensemble.counting import decide
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.pooling import linear_pool
from orchestrion_ensemble.votes import Plurality

__all__ = ["Learned", "Stacked"]

Row = tuple[float, ...]


@frozen
class Learned:
    """A logistic regression over what each voter holds of each answer.

    Args:
        answers: what it chooses from.
        features: "voter" and answer, in the order of the coefficients.
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
    """A second-level model over the members' answers, or probabilities where they give them.

    It can learn what no weight says, e.g. whom to believe about which answer. `ensemble-weights`
    fits it with scikit-learn (the extra `stacked`) on problems of its own split; regularisation is
    chosen, and its accuracy told, out of fold. Until then it is a plurality.

    Args:
        model: what was learned.
        folds: into which the problems are cut.
        strengths: inverse strengths of regularisation to choose from.
        tie: how to choose among equally probable answers.
    """

    model: Learned | None = learnable(None)
    folds: Annotated[int, Meta(ge=2)] = 5
    strengths: tuple[Annotated[float, Meta(gt=0)], ...] = (0.01, 0.1, 1.0, 10.0)
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        model = self.model
        if model is None:
            plain = Plurality(self.tie).combine(ballots, problem, key)
            return evolve(plain, notes=("no model is learned: plurality",))
        used = sum(one.status == "cast" for one in ballots)
        if not used:
            return Result("no_consensus")
        from orchestrion_ensemble.meta_learner import probabilities_of

        row = _row(model.features, ballots)
        predicted = probabilities_of(model.coefficients, model.intercepts, row).tolist()
        scores = dict(zip(model.answers, predicted, strict=True))
        return evolve(decide(scores, ballots, self.tie, key), used=used, probabilities=scores)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """The model, from the examples whose right answer somebody named."""
        known = [example for example in examples if example.truth is not None]
        if len(known) < 2:
            raise UsageError("a second level needs at least two problems whose answer was named")
        from orchestrion_ensemble.meta_learner import fit_logistic

        features = _features(known)
        rows = [_row(features, example.ballots) for example in known]
        labels = [str(example.truth) for example in known]
        seed = key.child("folds").integer()
        try:
            found = fit_logistic(rows, labels, self.folds, self.strengths, seed)
        except ImportError:
            raise UsageError(
                "the aggregator stacked is fitted with scikit-learn, which is not installed: "
                "pip install 'orchestrion-ensemble[stacked]'"
            ) from None
        return {
            "model": {
                "answers": list(found.classes),
                "features": [list(one) for one in features],
                "coefficients": found.coefficients.tolist(),
                "intercepts": found.intercepts.tolist(),
                "accuracy": found.accuracy,
            }
        }


def _features(examples: Sequence[Example]) -> list[tuple[str, str]]:
    ballots = [ballot for example in examples for ballot in example.ballots]
    voters = dict.fromkeys(ballot.voter for ballot in ballots)
    answers = sorted({answer for ballot in ballots for answer in _held(ballot)})
    return [(voter, answer) for voter in voters for answer in answers]


def _held(ballot: Ballot) -> Mapping[str, float]:
    """What a ballot holds of each answer; nothing if it is silent."""
    if ballot.status != "cast":
        return {}
    if ballot.probabilities is not None:
        return ballot.probabilities
    return {ballot.answer: 1.0} if ballot.answer is not None else {}


def _row(features: Sequence[tuple[str, str]], ballots: Sequence[Ballot]) -> list[float]:
    """One number a feature; a voter with several ballots is their average, a silent one 0."""
    given: dict[str, list[Mapping[str, float]]] = {}
    for ballot in ballots:
        if held := _held(ballot):
            given.setdefault(ballot.voter, []).append(held)
    means = {voter: linear_pool(held) for voter, held in given.items()}
    return [means.get(voter, {}).get(answer, 0.0) for voter, answer in features]
