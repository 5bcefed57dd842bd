"""Pools of probability distributions over answers: pure functions over mappings.

Members are aligned to one list of answers first; an answer a member never named has probability
0 for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, fsum, log

from orchestrion_ensemble.counting import valid_weights

__all__ = ["linear_pool", "log_pool", "one_class_list"]

Distribution = Mapping[str, float]


def one_class_list(distributions: Sequence[Distribution]) -> list[str]:
    """Every answer that a member names, sorted.

    Raises:
        ValueError: there is no distribution.
    """
    if not distributions:
        raise ValueError("a pool needs at least one distribution")
    return sorted({answer for one in distributions for answer in one})


def linear_pool(
    distributions: Sequence[Distribution], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """The average sum_k w_k p_k (Stone 1961); weights are scaled to sum 1, equal by default.

    Raises:
        ValueError: no distribution, or weights that are negative, NaN, all zero or too few.
    """
    shares = _shares(distributions, weights)
    return {
        answer: fsum(w * one.get(answer, 0.0) for w, one in zip(shares, distributions, strict=True))
        for answer in one_class_list(distributions)
    }


def log_pool(
    distributions: Sequence[Distribution],
    weights: Sequence[float] | None = None,
    floor: float = 1e-6,
) -> dict[str, float]:
    """The geometric mean prod_k p_k^w_k, renormalised (Genest and Zidek 1986, eq. 3.3).

    Weights are scaled to sum 1. A hard 0 would veto an answer, so probabilities below `floor`
    count as `floor`; with `floor=0` the veto holds, and an answer vetoed by a member of weight 0
    stays.

    Raises:
        ValueError: as `linear_pool`; or with `floor=0` every answer is vetoed.
    """
    shares = _shares(distributions, weights)
    logs: dict[str, float] = {}
    for answer in one_class_list(distributions):
        parts = [
            (w, max(one.get(answer, 0.0), floor))
            for w, one in zip(shares, distributions, strict=True)
            if w > 0
        ]
        vetoed = any(p == 0 for _, p in parts)
        logs[answer] = float("-inf") if vetoed else fsum(w * log(p) for w, p in parts)
    top = max(logs.values())
    if top == float("-inf"):
        raise ValueError("every answer has probability 0 for some member; use a floor")
    raw = {answer: exp(value - top) for answer, value in logs.items()}
    total = fsum(raw.values())
    return {answer: value / total for answer, value in raw.items()}


def _shares(distributions: Sequence[Distribution], weights: Sequence[float] | None) -> list[float]:
    given = [1.0] * len(distributions) if weights is None else weights
    if len(given) != len(distributions):
        raise ValueError(f"{len(distributions)} distributions and {len(given)} weights")
    return valid_weights(given) if distributions else []
