"""The aggregator `average`: pools of the members' probabilities, with learned weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal

from attrs import Attribute, Factory, evolve, frozen

from orchestrion import JSON, Key, Meta, Problem, UsageError, learnable
from orchestrion_ensemble.counting import decide
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule
from orchestrion_ensemble.pooling import linear_pool, log_pool
from orchestrion_ensemble.votes import without_weight

__all__ = ["Average", "likelihoods_of"]


def _not_negative(instance: Any, attribute: Attribute[Any], value: Mapping[str, float]) -> None:
    if not all(isfinite(weight) and weight >= 0 for weight in value.values()):
        raise ValueError("weights of an average must be finite and not negative")
    if value and not any(value.values()):
        raise ValueError("all weights are zero: nobody has a say")


@frozen
class Average(Aggregator):
    """Averages the probabilities that members give to the answers.

    A ballot without probabilities has no part in it.

    Args:
        pool: `linear`, the average; or `log`, the geometric mean, in which a member that is sure
            of the contrary weighs more.
        weights: of voters, not negative; none means equal. Learned by `ensemble-weights`.
        fit: how weights are learned: `stacking`: those with the best log score, together; `bma`:
            by each member's likelihood, which soon is all for one; `pseudo-bma`: the same on
            leave-one-out likelihoods; `pseudo-bma-plus`: its mean over the Bayesian bootstrap.
        floor: a probability below it counts as it, in the log pool and in learning.
        tie: how to choose among equally probable answers.
    """

    pool: Literal["linear", "log"] = "linear"
    weights: Mapping[str, float] = learnable(Factory(dict), validator=_not_negative)
    fit: Literal["stacking", "bma", "pseudo-bma", "pseudo-bma-plus"] = "stacking"
    floor: Annotated[float, Meta(gt=0, lt=0.5)] = 1e-6
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        given = [(one.voter, one.probabilities) for one in ballots if one.probabilities is not None]
        if not given:
            return Result("no_consensus", notes=("nobody gave probabilities",))
        weights, notes = self._weights([voter for voter, _ in given])
        if self.weights:
            notes = (*notes, *without_weight(ballots, self.weights))
        distributions = [one for _, one in given]
        if self.pool == "linear":
            pooled = linear_pool(distributions, weights)
        else:
            pooled = log_pool(distributions, weights, self.floor)
        result = decide(pooled, ballots, self.tie, key, self.weights)
        return evolve(result, used=len(given), notes=notes, probabilities=pooled)

    def _weights(self, voters: Sequence[str]) -> tuple[list[float], tuple[str, ...]]:
        if not self.weights:
            return [1.0] * len(voters), ()
        weights = [self.weights.get(voter, 0.0) for voter in voters]
        if any(weights):
            return weights, ()
        # Those with weight are silent: the others must not be silenced as well.
        return [1.0] * len(voters), ("nobody with a weight answered: all are equal",)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Weights by `fit`, over the examples in which every voter gave probabilities."""
        from orchestrion_ensemble import weights as learned

        voters, likelihoods = likelihoods_of(examples, self.floor)
        if self.fit == "stacking":
            found = learned.stacking_weights(likelihoods)
        elif self.fit == "bma":
            found = learned.bma_weights(likelihoods)
        elif self.fit == "pseudo-bma":
            found = learned.pseudo_bma_weights(likelihoods)
        else:
            seed = key.child("bootstrap").integer()
            found = learned.pseudo_bma_plus_weights(likelihoods, seed)
        return {"weights": dict(zip(voters, map(float, found), strict=True))}


def likelihoods_of(
    examples: Sequence[Example], floor: float
) -> tuple[list[str], list[list[float]]]:
    """What each voter held the truth for, in the examples where all gave probabilities.

    A voter with several ballots is their average.

    Raises:
        UsageError: there is no such example.
    """
    voters = list(dict.fromkeys(one.voter for example in examples for one in example.ballots))
    rows = []
    for example in examples:
        given: dict[str, list[Mapping[str, float]]] = {voter: [] for voter in voters}
        for ballot in example.ballots:
            if ballot.probabilities is not None:
                given[ballot.voter].append(ballot.probabilities)
        if example.truth is not None and all(given.values()):
            means = [linear_pool(given[voter]).get(example.truth, 0.0) for voter in voters]
            rows.append([max(value, floor) for value in means])
    if not rows:
        raise UsageError(
            "no weights can be learned: on none of the problems did every member give "
            "probabilities among which the verifier finds the right answer"
        )
    return voters, rows
