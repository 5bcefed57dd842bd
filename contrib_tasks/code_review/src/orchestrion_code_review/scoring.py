"""From what was measured to scores from 0 to 10. Nothing here runs anything.

With t the corrected share of hidden tests a version passes (1 if and only if it passes all), s the
weight of the static measures m, and w the weights of the three parts:

    quality        10 (1 - s) t, and 10 s m more if it passes
    collaboration  10 (t_final - t_alone) / (1 - t_alone), where the writer alone failed
    efficiency     10 t, times the mean of min(1, reference / used) over turns, tokens, US dollars
    score          their weighted mean; if it fails, times the least that passing can bring

`t_alone` is the best the writer of the first version reached before somebody else brought one.
Where that passes, as a first version may, collaboration does not apply and its weight goes to
quality: nobody is paid to plant a defect and mend it.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from orchestrion import Scores, Usage
from orchestrion_code_review.challenge import Reference

__all__ = ["Judged", "Measured", "Weights", "corrected", "efficiency", "scores"]


@frozen
class Weights:
    """How much each part counts, and how much of quality the static measures are."""

    quality: float
    collaboration: float
    efficiency: float
    static: float

    @property
    def floor(self) -> float:
        """The least share of the full score that a passing solution can have."""
        total = self.quality + self.collaboration + self.efficiency
        return (1 - self.static) * (self.quality + self.collaboration) / total if total else 0.0


@frozen
class Judged:
    """A verdict on one version.

    Args:
        passed: whether it passes every test.
        share: of the tests, corrected for what a constant answer reaches.
        raw: the plain share.
    """

    passed: bool = False
    share: float = 0.0
    raw: float = 0.0


@frozen
class Measured:
    """All that scores are made of.

    Args:
        final: the verdict on the last version.
        first: on the first.
        alone: on the best that the writer alone reached.
        static: the static measures of the last version by name, each 0 to 1; empty for none.
        usage: what the episode took.
        turns: how many there were.
    """

    final: Judged
    first: Judged
    alone: Judged
    static: Mapping[str, float]
    usage: Usage
    turns: int


def corrected(share: float, constant: float) -> float:
    """A share of tests, less what a function that always gives the same would reach."""
    return max(0.0, (share - constant) / (1 - constant)) if constant < 1 else share


def efficiency(turns: int, usage: Usage, reference: Reference) -> float:
    """1 if nothing took more than the reference, else how near it came, on average."""
    pairs = (
        (float(turns), float(reference.turns)),
        (float(usage.tokens), float(reference.tokens)),
        (usage.usd, reference.usd),
    )
    return sum(1.0 if used <= most else most / used for used, most in pairs) / len(pairs)


def scores(measured: Measured, weights: Weights, reference: Reference) -> Scores:
    """The scores, as `Scores.value` (the score over 10) and its parts."""
    final = measured.final
    tidy = sum(measured.static.values()) / len(measured.static) if measured.static else 1.0
    quality = 10 * (1 - weights.static) * final.share
    if final.passed:
        quality += 10 * weights.static * tidy
    applies = not measured.alone.passed
    gain = final.share - measured.alone.share
    teamwork = 10 * gain / (1 - measured.alone.share) if applies and gain > 0 else 0.0
    thrift = 10 * final.share * efficiency(measured.turns, measured.usage, reference)
    whole = _weighted(weights, quality, teamwork, thrift, applies)
    if not final.passed:
        whole *= weights.floor
    parts = {
        "score": whole,
        "quality": quality,
        "collaboration": teamwork,
        "collaboration_applies": float(applies),
        "efficiency": thrift,
        "tests": final.raw,
        "first_tests": measured.first.raw,
        **{f"static_{name}": share for name, share in measured.static.items()},
    }
    return Scores(whole / 10, final.passed, parts)


def _weighted(
    weights: Weights, quality: float, teamwork: float, thrift: float, applies: bool
) -> float:
    shared = weights.collaboration
    to_quality = weights.quality + (0.0 if applies else shared)
    total = weights.quality + shared + weights.efficiency
    points = to_quality * quality + weights.efficiency * thrift
    return (points + (shared * teamwork if applies else 0.0)) / total if total else 0.0
