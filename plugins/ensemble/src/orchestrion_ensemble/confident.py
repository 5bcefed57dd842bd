"""The aggregator `confidence`: members say how sure they are; it counts for what it is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from attrs import Factory, frozen

from orchestrion import JSON, Key, Meta, Problem, learnable
from orchestrion_ensemble.calibration import calibrated, fit_platt
from orchestrion_ensemble.counting import log_odds, weigh
from orchestrion_ensemble.interfaces import Aggregator, Ballot, Example, Result, TieRule

__all__ = ["Confidence"]


@frozen
class Confidence(Aggregator):
    """A vote weighs what its voter's stated confidence, once calibrated, is worth.

    Args:
        calibration: slope and shift of each voter's confidence on the log-odds scale; [1, 0]
            leaves it as stated. Learned by `ensemble-weights`.
        scheme: a vote weighs the `log-odds` of being right, or the `confidence` itself.
        unstated: the confidence of a ballot that states none.
        answers: all answers there can be, as they read when normalised; none means open.
        choices: how many answers there can be, for the log-odds; by default as many as `answers`,
            else 2.
        tie: how to choose among answers of equal weight.
    """

    calibration: Mapping[str, tuple[float, float]] = learnable(Factory(dict))
    scheme: Literal["log-odds", "confidence"] = "log-odds"
    unstated: Annotated[float, Meta(ge=0, le=1)] = 0.5
    answers: tuple[str, ...] = ()
    choices: Annotated[int, Meta(ge=2)] | None = None
    tie: TieRule = "first_by_member_order"

    def combine(self, ballots: Sequence[Ballot], problem: Problem, key: Key) -> Result:
        """See `Aggregator.combine`."""
        notes = () if self.calibration else ("confidence is taken as stated: not calibrated",)
        weights = [self._weight(ballot) for ballot in ballots]
        return weigh(ballots, weights, self.answers, self.tie, key, notes)

    def _weight(self, ballot: Ballot) -> float:
        stated = self.unstated if ballot.confidence is None else ballot.confidence
        if ballot.voter in self.calibration and ballot.confidence is not None:
            stated = calibrated(stated, *self.calibration[ballot.voter])
        if self.scheme == "confidence":
            return stated
        return log_odds(stated, self.choices or max(2, len(self.answers)), floor=1e-3)

    def learn(self, examples: Sequence[Example], key: Key) -> Mapping[str, JSON]:
        """Each voter's calibration, from its confidences and the verifier's word."""
        seen: dict[str, tuple[list[float], list[bool]]] = {}
        for example in examples:
            for ballot, right in zip(example.ballots, example.right, strict=True):
                if ballot.confidence is not None and right is not None:
                    stated, outcomes = seen.setdefault(ballot.voter, ([], []))
                    stated.append(ballot.confidence)
                    outcomes.append(right)
        return {"calibration": {voter: list(fit_platt(*one)) for voter, one in seen.items()}}
