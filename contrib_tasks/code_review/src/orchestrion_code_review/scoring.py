"""From what was measured to scores from 0 to 10. Nothing here runs anything.

With t the corrected share of hidden tests a version passes, s the weight of the static measures m,
and w the weights of the three parts:

    quality        10 (1 - s) t, and 10 s m more if it passes
    collaboration  quality t_final / t_best: what the team kept of the best version that it had
    efficiency     10 t, times the mean of min(1, reference / used) over turns, tokens, US dollars
    score          their weighted mean; if it fails, times the least that passing can bring

A version passes if it passes all hidden tests and all examples. Examples have no other effect, so
that copying their wanted values into wrong code gains nothing.

With the same last version, no added turn raises a score: more turns take more, and another version
can only raise `t_best`. So planting a defect and repairing it gains nothing. What other agents
added to the writer's work is reported as `added`, and counts by the tests that it passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from attrs import frozen

from orchestrion import Scores, Usage
from orchestrion_code_review.challenge import Reference


@frozen
class Weights:
    """The weights of the parts, and the share of the static measures in quality."""

    quality: float
    collaboration: float
    efficiency: float
    static: float

    @property
    def floor(self) -> float:
        """The lowest share of the full score that a passing solution can have."""
        total = self.quality + self.collaboration + self.efficiency
        return (1 - self.static) * (self.quality + self.collaboration) / total if total else 0.0


@frozen
class VersionVerdict:
    """A verdict on one version.

    Args:
        passed: whether it passes every test.
        share: of the hidden tests, corrected for what a constant answer passes; 1 only if it
            passes every test.
        raw: the share without correction.
    """

    passed: bool = False
    share: float = 0.0
    raw: float = 0.0


def corrected(share: float, constant: float) -> float:
    """Return a share of tests, corrected for the share that a constant answer passes."""
    return max(0.0, (share - constant) / (1 - constant)) if constant < 1 else share


def efficiency(turns: int, usage: Usage, reference: Reference) -> float:
    """Return the mean of min(1, reference / used) over turns, tokens and US dollars."""
    pairs = (
        (float(turns), float(reference.turns)),
        (float(usage.tokens), float(reference.tokens)),
        (usage.usd, reference.usd),
    )
    return sum(1.0 if used <= limit else limit / used for used, limit in pairs) / len(pairs)


def scores(
    versions: Sequence[tuple[str, VersionVerdict]],
    static: Mapping[str, float],
    usage: Usage,
    turns: int,
    weights: Weights,
    reference: Reference,
) -> Scores:
    """Return the scores, as `Scores.value` (the score over 10) and its parts.

    Args:
        versions: whose each version was, and the verdict on it, in their order; at least one.
        static: the static measures of the last version by name, each 0 to 1; empty for none.
        usage: what the episode took.
        turns: how many there were.
        weights: of the parts.
        reference: what the problem should take.
    """
    writer, first = versions[0]
    verdicts = [verdict for _, verdict in versions]
    final, best = verdicts[-1], max(verdict.share for verdict in verdicts)
    own = takewhile(lambda version: version[0] == writer, versions)
    alone = max(verdict.share for _, verdict in own)
    tidy = sum(static.values()) / len(static) if static else 1.0
    quality = 10 * (1 - weights.static) * final.share
    if final.passed:
        quality += 10 * weights.static * tidy
    teamwork = quality * (final.share / best if best else 1.0)
    thrift = 10 * final.share * efficiency(turns, usage, reference)
    total = weights.quality + weights.collaboration + weights.efficiency
    points = weights.quality * quality + weights.collaboration * teamwork
    whole = (points + weights.efficiency * thrift) / total if total else 0.0
    if not final.passed:
        whole *= weights.floor
    parts = {
        "score": whole,
        "quality": quality,
        "collaboration": teamwork,
        "added": 10 * max(0.0, final.share - alone),
        "efficiency": thrift,
        "tests": final.raw,
        "first_tests": first.raw,
        **{f"static_{name}": share for name, share in static.items()},
    }
    return Scores(whole / 10, final.passed, parts)
