"""What a stated confidence is worth: Platt scaling, in pure Python."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite, log

__all__ = ["calibrated", "fit_platt", "logit"]

FLOOR = 1e-3


def logit(p: float) -> float:
    """log(p / (1 - p)), with p kept away from 0 and 1 by 0.001."""
    if not 0 <= p <= 1:
        raise ValueError(f"a confidence is a number from 0 to 1, got {p}")
    q = min(max(p, FLOOR), 1 - FLOOR)
    return log(q / (1 - q))


def calibrated(confidence: float, slope: float = 1.0, shift: float = 0.0) -> float:
    """The probability of being right: sigmoid(slope * logit(confidence) + shift)."""
    return _sigmoid(slope * logit(confidence) + shift)


def fit_platt(
    confidences: Sequence[float], right: Sequence[bool], strength: float = 0.1
) -> tuple[float, float]:
    """Slope and shift that make stated confidences true (Platt 1999, on the log-odds scale).

    Differs from the paper: the input is the logit of the confidence, so that (1, 0) leaves it as
    it is, and a weak Gaussian prior of precision `strength` pulls there, instead of smoothed
    targets; with few answers, or a confidence that is always the same, the fit stays defined.
    Newton's method on the concave posterior.

    Raises:
        ValueError: the sequences differ in length, or a confidence is not within 0 to 1.
    """
    if len(confidences) != len(right):
        raise ValueError(f"{len(confidences)} confidences and {len(right)} outcomes")
    points = [(logit(c), float(hit)) for c, hit in zip(confidences, right, strict=True)]
    a, b = 1.0, 0.0
    for _ in range(100):
        # Gradient and (negative) Hessian of the log-posterior.
        ga, gb, haa, hab, hbb = strength * (1 - a), -strength * b, strength, 0.0, strength
        for x, hit in points:
            p = _sigmoid(a * x + b)
            miss, spread = hit - p, p * (1 - p)
            ga, gb = ga + miss * x, gb + miss
            haa, hab, hbb = haa + spread * x * x, hab + spread * x, hbb + spread
        determinant = haa * hbb - hab * hab
        da, db = (hbb * ga - hab * gb) / determinant, (haa * gb - hab * ga) / determinant
        # Far steps come from flat places: shorten them.
        size = max(abs(da), abs(db), 1.0)
        a, b = a + da / size, b + db / size
        if max(abs(da), abs(db)) < 1e-12:
            break
    assert isfinite(a)
    return a, b


def _sigmoid(z: float) -> float:
    return 1 / (1 + exp(-z)) if z >= 0 else exp(z) / (1 + exp(z))
