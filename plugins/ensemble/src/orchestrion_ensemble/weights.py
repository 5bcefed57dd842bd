"""Weights of members learned from the probabilities they gave to the truth, for `average`.

Sources: Bayesian model averaging, Hoeting et al. 1999; pseudo-BMA, pseudo-BMA+ and stacking of
distributions, Yao et al. 2018. All functions are pure. They take `likelihoods`, an array of n
points by K members: p_k(y_i), the probability that member k, not trained on point i, gave to its
truth; none is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _softmax(scores: Floats) -> Floats:
    raw = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


def bma_weights(likelihoods: ArrayLike) -> Floats:
    """Return weights by Bayesian model averaging: w_k proportional to prod_i p_k(y_i).

    Hoeting et al. 1999, eq. 2, with the predictive probabilities of held-out points as evidence.
    All members are equal before. It is selection: with more points all weight goes to one member.
    With leave-one-out probabilities it is pseudo-BMA: w_k proportional to exp(elpd_k), elpd_k the
    sum over points of log p_k(y_i | all others) (Yao et al. 2018, section 3.4).
    """
    return _softmax(np.log(likelihoods).sum(axis=0))


def pseudo_bma_plus_weights(likelihoods: ArrayLike, seed: int, draws: int = 1000) -> Floats:
    """Return the mean of pseudo-BMA weights over Bayesian bootstrap samples of the points.

    Yao et al. 2018, eq. 8 to 10: alpha ~ Dirichlet(1, ..., 1) over the n points,
    z_k = n * sum_i alpha_i log p_k(y_i), w = mean over `draws` of softmax(z). Less extreme than
    pseudo-BMA, since it accounts for the sampling of the points.
    """
    logs = np.log(likelihoods)
    n = len(logs)
    alpha = np.random.default_rng(seed).dirichlet(np.ones(n), size=draws)
    return np.asarray(_softmax(n * alpha @ logs).mean(axis=0))


def log_score(likelihoods: ArrayLike, weights: ArrayLike) -> float:
    """Return the mean log-probability that the weighted average gives to the truth."""
    return float(np.log(np.asarray(likelihoods) @ np.asarray(weights)).mean())


def stacking_weights(likelihoods: ArrayLike, tolerance: float = 1e-10, steps: int = 2000) -> Floats:
    """Return the weights on the simplex with the best `log_score`: stacking of distributions.

    Yao et al. 2018, eq. 6. The problem is concave; it is solved by EM for mixture weights
    (Dempster, Laird and Rubin 1977, section 4.3), which stays on the simplex and never lowers the
    score. As EM converges slowly, each step is followed by a constrained Newton step (Wang 2007,
    section 3). It stops when the largest derivative is within `tolerance` of 1: by concavity the
    score is then within `tolerance` per point of the best.

    Args:
        likelihoods: see the module.
        tolerance: in score per point.
        steps: maximum number.
    """
    values = np.asarray(likelihoods, dtype=np.float64)
    values = values / values.max(axis=1, keepdims=True)  # only ratios matter
    w = np.full(values.shape[1], 1 / values.shape[1])
    for _ in range(steps):
        if _gradient(values, w).max() - 1 <= tolerance:
            break
        w = _newton(values, em_step(values, w))
    return w


def em_step(likelihoods: Floats, weights: Floats) -> Floats:
    """Return mixture weights after one EM update: w_k <- mean_i w_k p_ik / sum_j w_j p_ij."""
    new = weights * _gradient(likelihoods, weights)
    return np.asarray(new / new.sum())


def _gradient(values: Floats, w: Floats) -> Floats:
    """Return the derivative of the log score by each weight; their weighted mean is 1."""
    return np.asarray((values / (values @ w)[:, None]).mean(axis=0))


def _newton(values: Floats, w: Floats) -> Floats:
    """Return w after a Newton step over w >= 0, halved until the score rises; w if it does not.

    The best weights on the simplex are those over w >= 0 for the score minus their sum.
    """
    ratio = values / (values @ w)[:, None]
    hessian, gradient = ratio.T @ ratio / len(values), ratio.mean(axis=0)
    step = _quadratic_minimum(hessian, 1 - 2 * gradient) - w
    rise = float(step @ (gradient - 1))
    size = 1.0
    while rise > 0 and size > 1e-6:
        with np.errstate(divide="ignore"):
            gain = np.log1p(size * (ratio @ step)).mean() - size * step.sum()
        if gain >= 0.25 * size * rise:
            trial = np.maximum(w + size * step, 0.0)
            # EM never leaves 0: keep a trace of members that still matter.
            trial = np.where((trial == 0) & (gradient >= 1), 1e-9, trial)
            return np.asarray(trial / trial.sum())
        size /= 2
    return w


def _quadratic_minimum(hessian: Floats, linear: Floats) -> Floats:
    """Return the y >= 0 that minimises y'Hy / 2 + linear'y, by Lawson and Hanson's active sets."""
    size = len(linear)
    # Members that always agree make it singular.
    ridged = hessian + np.eye(size) * 1e-12 * np.trace(hessian)
    y, free = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(10 * size):
        descent = -(ridged @ y + linear)
        descent[free] = -np.inf
        if descent.max() <= 1e-13:
            break
        free[descent.argmax()] = True
        while True:
            best = np.zeros(size)
            best[free] = np.linalg.solve(ridged[np.ix_(free, free)], -linear[free])
            below = free & (best <= 0)
            if not below.any():
                break
            # Go until the first of them reaches 0, and fix it there.
            share = (y[below] / np.maximum(y[below] - best[below], 1e-300)).min()
            y = y + share * (best - y)
            free &= y > 1e-15
            y[~free] = 0.0
        y = best
    return y
