"""Weights of members learned from how probable they held what came true.

Every function takes `likelihoods`, an array of n points by K members: p_k(y_i), the probability
that member k gave to the truth of point i, which it must not have been trained on. All are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "bma_weights",
    "em_step",
    "log_score",
    "pseudo_bma_plus_weights",
    "pseudo_bma_weights",
    "stacking_weights",
]

Floats = NDArray[np.float64]


def _checked(likelihoods: ArrayLike) -> Floats:
    values = np.asarray(likelihoods, dtype=np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"expected points by members, got an array of shape {values.shape}")
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError("likelihoods must be finite and not negative")
    return values


def _logs(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(values)


def _softmax(scores: Floats) -> Floats:
    """Along the last axis, by way of the largest."""
    top = scores.max(axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        raise ValueError("every member held some point for impossible: no weights")
    raw = np.exp(scores - top)
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


def bma_weights(likelihoods: ArrayLike, prior: Sequence[float] | None = None) -> Floats:
    """Bayesian model averaging: w_k proportional to prior_k * prod_i p_k(y_i).

    Hoeting et al. 1999, eq. 2, with the predictive probabilities of held-out points as evidence.
    It is selection: with more points all weight goes to one member.

    Raises:
        ValueError: the arrays make no sense, or every member held some point for impossible.
    """
    values = _checked(likelihoods)
    start = np.ones(values.shape[1]) if prior is None else np.asarray(prior, dtype=np.float64)
    if start.shape != (values.shape[1],) or not np.isfinite(start).all() or (start < 0).any():
        raise ValueError(f"a prior has one number a member, not negative, got {prior}")
    if not start.any():
        raise ValueError("the prior is zero for every member")
    return _softmax(_logs(values).sum(axis=0) + _logs(start))


def pseudo_bma_weights(likelihoods: ArrayLike) -> Floats:
    """Pseudo-BMA: w_k proportional to exp(elpd_k) (Yao et al. 2018, section 3.4).

    elpd_k is the sum over points of log p_k(y_i | all others). For members that are not refitted
    on these points that is log p_k(y_i) itself, and the result is `bma_weights` with equal prior;
    for members that are, pass their leave-one-out probabilities.
    """
    return bma_weights(likelihoods)


def pseudo_bma_plus_weights(likelihoods: ArrayLike, seed: int, draws: int = 1000) -> Floats:
    """Pseudo-BMA+: the mean of pseudo-BMA weights over Bayesian bootstrap samples of the points.

    Yao et al. 2018, eq. 8 to 10: alpha ~ Dirichlet(1, ..., 1) over the n points,
    z_k = n * sum_i alpha_i log p_k(y_i), w = mean over draws of softmax(z). Softer than
    pseudo-BMA, as it knows that other points would have come out otherwise.

    Args:
        likelihoods: see the module.
        seed: of the draws.
        draws: how many.
    """
    values = _checked(likelihoods)
    n = len(values)
    alpha = np.random.default_rng(seed).dirichlet(np.ones(n), size=draws)
    logs = _logs(values)
    possible = np.isfinite(logs).all(axis=0)
    # 0 * -inf is not a number; a member that held a point for impossible has no weight anyway.
    z = n * alpha @ np.where(possible, logs, 0.0)
    return np.asarray(_softmax(np.where(possible, z, -np.inf)).mean(axis=0))


def log_score(likelihoods: ArrayLike, weights: ArrayLike) -> float:
    """The mean log-probability that the weighted average gives to the truth."""
    values = _checked(likelihoods)
    return float(_logs(values @ np.asarray(weights, dtype=np.float64)).mean())


def stacking_weights(likelihoods: ArrayLike, tolerance: float = 1e-10, steps: int = 2000) -> Floats:
    """Stacking of distributions: the weights on the simplex with the best `log_score`.

    Yao et al. 2018, eq. 6. The problem is concave; it is solved by EM for mixture weights,
    w_k <- mean_i w_k p_ik / sum_j w_j p_ij (Dempster, Laird and Rubin 1977, section 4.3), which
    stays on the simplex and never lowers the score. As EM ends slowly, each step is followed by a
    constrained Newton step (Wang 2007, section 3). It stops when the largest derivative is within
    `tolerance` of 1: the score is then within `tolerance` of the best, by concavity.

    Args:
        likelihoods: see the module. A point that every member holds for impossible says nothing
            about weights and is left out.
        tolerance: in score per point.
        steps: at most.

    Raises:
        ValueError: the array makes no sense, or no point is possible.
    """
    values = _checked(likelihoods)
    values = values[values.max(axis=1) > 0]
    if not len(values):
        raise ValueError("every member held every point for impossible: no weights")
    values = values / values.max(axis=1, keepdims=True)  # only ratios matter
    w = np.full(values.shape[1], 1 / values.shape[1])
    for _ in range(steps):
        if _slope(values, w).max() - 1 <= tolerance:
            break
        w = _newton(values, em_step(values, w))
    return w


def em_step(likelihoods: ArrayLike, weights: ArrayLike) -> Floats:
    """One EM update of mixture weights: w_k <- mean_i w_k p_ik / sum_j w_j p_ij.

    It stays on the simplex and never lowers the `log_score`.
    """
    values, w = _checked(likelihoods), np.asarray(weights, dtype=np.float64)
    new = w * _slope(values, w)
    return np.asarray(new / new.sum())


def _slope(values: Floats, w: Floats) -> Floats:
    """The derivative of the log score by each weight; their weighted mean is 1."""
    return np.asarray((values / (values @ w)[:, None]).mean(axis=0))


def _newton(values: Floats, w: Floats) -> Floats:
    """A Newton step over w >= 0, halved until the score rises; `w` itself if it does not.

    The best weights on the simplex are those over w >= 0 for the score minus their sum.
    """
    ratio = values / (values @ w)[:, None]
    hessian, slope = ratio.T @ ratio / len(values), ratio.mean(axis=0)
    step = _least(hessian, 1 - 2 * slope) - w
    rise = float(step @ (slope - 1))
    size = 1.0
    while rise > 0 and size > 1e-6:
        with np.errstate(divide="ignore"):
            moved = np.log1p(size * (ratio @ step)).mean() - size * step.sum()
        if moved >= 0.25 * size * rise:
            trial = np.maximum(w + size * step, 0.0)
            # A member at 0 is out of reach for EM: keep a trace of those that still matter.
            trial = np.where((trial == 0) & (slope >= 1), 1e-9, trial)
            return np.asarray(trial / trial.sum())
        size /= 2
    return w


def _least(hessian: Floats, linear: Floats) -> Floats:
    """Where y >= 0 makes y'Hy / 2 + linear'y least: Lawson and Hanson's active sets."""
    size = len(linear)
    # Members that say the same make it singular.
    ridged = hessian + np.eye(size) * 1e-12 * np.trace(hessian)
    y, free = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(10 * size):
        pull = -(ridged @ y + linear)
        pull[free] = -np.inf
        if pull.max() <= 1e-13:
            break
        free[pull.argmax()] = True
        while True:
            best = np.zeros(size)
            best[free] = np.linalg.solve(ridged[np.ix_(free, free)], -linear[free])
            below = free & (best <= 0)
            if not below.any():
                break
            # As far as the first of them reaches 0; it is bound there.
            share = (y[below] / np.maximum(y[below] - best[below], 1e-300)).min()
            y = y + share * (best - y)
            free &= y > 1e-15
            y[~free] = 0.0
        y = best
    return y
