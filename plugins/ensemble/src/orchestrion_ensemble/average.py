"""The aggregator `average`: pools of the members' probabilities; `weights` learns their weights.

Sources: linear pool, Stone 1961; logarithmic pool, Genest and Zidek 1986. A pool aligns its members
to one list of answers; an answer that a member did not name has probability 0 there.

Deviation: the log pool clips probabilities below `floor`, since a hard 0 would veto an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, log
from typing import Annotated, Any, Literal

from attrs import Attribute, Factory, evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, UsageError, learnable
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.votes import check_voters, check_weights, decide, softmax
from orchestrion_ensemble.weighted import missing_weights

Distribution = Mapping[str, float]


def _not_negative(instance: Any, attribute: Attribute[Any], value: Mapping[str, float]) -> None:
    if any(weight < 0 for weight in value.values()):
        raise ValueError("weights of an average must not be negative")
    check_weights(instance, attribute, value)


@frozen
class Average(Aggregator):
    """Averages the probabilities that members give to the answers.

    Ballots without probabilities do not count.

    Args:
        pool: `linear`, the average; or `log`, the geometric mean, in which a member that is sure
            of the contrary weighs more.
        weights: by voter, not negative; none means equal. Learned by `ensemble-weights`.
        fit: how weights are learned: `stacking`: the weights with the best log score; `bma`: by
            each member's likelihood, which gives all weight to one member as problems grow;
            `pseudo-bma`: the same on leave-one-out likelihoods; `pseudo-bma-plus`: its mean over
            the Bayesian bootstrap.
        floor: smaller probabilities count as this, in the log pool and in learning.
        tie: how to choose among equally probable answers.
    """

    pool: Literal["linear", "log"] = "linear"
    weights: Mapping[str, float] = learnable(Factory(dict), validator=_not_negative)
    fit: Literal["stacking", "bma", "pseudo-bma", "pseudo-bma-plus"] = "stacking"
    floor: Annotated[float, Meta(gt=0, lt=0.5)] = 1e-6
    tie: TieRule = "first_by_member_order"

    def check(self, voters: Sequence[str]) -> None:
        check_voters("weights", self.weights, voters)

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        pairs = [(b.voter, b.probabilities) for b in ballots if b.probabilities is not None]
        if not pairs:
            return Result("no_consensus", notes=("nobody gave probabilities",))
        weights = [1.0] * len(pairs)
        notes: tuple[str, ...] = ()
        if self.weights:
            weights = [self.weights.get(voter, 0.0) for voter, _ in pairs]
            notes = missing_weights(ballots, self.weights)
            if not any(weights):
                # All members with a weight are silent: let the others decide.
                weights = [1.0] * len(pairs)
                notes = ("no voter with a weight answered: all are equal", *notes)
        distributions = [distribution for _, distribution in pairs]
        if self.pool == "linear":
            pooled = linear_pool(distributions, weights)
        else:
            pooled = log_pool(distributions, weights, self.floor)
        result = decide(pooled, ballots, self.tie, key, self.weights)
        return evolve(result, used=len(pairs), notes=notes, probabilities=pooled)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Return weights by `fit`, over the examples in which every voter gave probabilities."""
        # Here, so that configs are read without numpy.
        from orchestrion_ensemble import weights as learners

        voters, likelihoods = likelihoods_of(examples, self.floor)
        if self.fit == "stacking":
            weights = learners.stacking_weights(likelihoods)
        elif self.fit == "pseudo-bma-plus":
            seed = key.child("bootstrap").integer()
            weights = learners.pseudo_bma_plus_weights(likelihoods, seed)
        else:
            # Nobody was refitted on these problems: their likelihoods are leave-one-out ones.
            weights = learners.bma_weights(likelihoods)
        return {"weights": dict(zip(voters, map(float, weights), strict=True))}


def likelihoods_of(
    examples: Sequence[Example], floor: float
) -> tuple[list[str], list[list[float]]]:
    """Return the voters, and by example the probability that each of them gave to the truth.

    Only examples in which every voter gave probabilities count. Several ballots of one voter are
    averaged. Probabilities below `floor` become `floor`.

    Raises:
        UsageError: there is no such example.
    """
    voters = list(dict.fromkeys(b.voter for example in examples for b in example.ballots))
    rows = []
    for example in examples:
        by_voter: dict[str, list[Distribution]] = {voter: [] for voter in voters}
        for ballot in example.ballots:
            if ballot.probabilities is not None:
                by_voter[ballot.voter].append(ballot.probabilities)
        if example.truth is not None and all(by_voter.values()):
            means = [linear_pool(by_voter[voter]).get(example.truth, 0.0) for voter in voters]
            rows.append([max(value, floor) for value in means])
    if not rows:
        raise UsageError(
            "no weights can be learned: on no problem did all members give probabilities of which "
            "the verifier accepts an answer"
        )
    return voters, rows


# ------------------------------------------------------------------ pools


def linear_pool(
    distributions: Sequence[Distribution], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """Return the average sum_k w_k p_k (Stone 1961).

    Weights are not negative, and scaled to sum 1; equal by default.
    """
    shares = shares_of([1.0] * len(distributions) if weights is None else weights)
    return {
        answer: fsum(w * p.get(answer, 0.0) for w, p in zip(shares, distributions, strict=True))
        for answer in _answers(distributions)
    }


def log_pool(
    distributions: Sequence[Distribution], weights: Sequence[float], floor: float = 1e-6
) -> dict[str, float]:
    """Return the geometric mean prod_k p_k^w_k, normalised (Genest and Zidek 1986, eq. 3.3).

    Weights are scaled to sum 1. Probabilities below `floor`, which is positive, count as `floor`.
    """
    weighted = list(zip(shares_of(weights), distributions, strict=True))
    return softmax(
        {
            answer: fsum(w * log(max(p.get(answer, 0.0), floor)) for w, p in weighted)
            for answer in _answers(distributions)
        }
    )


def _answers(distributions: Sequence[Distribution]) -> list[str]:
    """Return every answer that a member names, sorted."""
    return sorted({answer for p in distributions for answer in p})


def shares_of(weights: Sequence[float]) -> list[float]:
    """Return weights, of which none is negative and not all are zero, scaled to sum 1."""
    # Divided by the largest first, so that the sum of huge weights stays finite.
    top = max(weights)
    values = [weight / top for weight in weights]
    total = fsum(values)
    return [value / total for value in values]
