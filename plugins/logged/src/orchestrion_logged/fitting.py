"""How `Ridges` are fitted: features and penalties by leave-one-out error, then in closed form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import frozen
from scipy.linalg import cho_factor, cho_solve
from sklearn.linear_model import RidgeCV

from orchestrion_logged.decisions import Floats, Ints
from orchestrion_logged.ridges import FeatureMap, Inputs, Ridges

ALPHAS = tuple(float(10**e) for e in np.arange(-2, 4.1, 0.5))
FOURIER = 200
"""Random Fourier features."""


@frozen
class Shape:
    """The hyperparameters that are chosen once for a log."""

    features: FeatureMap
    alphas: Mapping[int, float]  # penalties, by choice


def choose(inputs: Inputs, choice: Ints, target: Floats, draw: np.random.Generator) -> Shape:
    """Return the features and penalties with the least leave-one-out error.

    Args:
        inputs: of n decisions and k choices.
        choice: index of each choice [n].
        target: of the regression [n].
        draw: draws the Fourier features.
    """
    best, least = None, np.inf
    for fourier in (0, FOURIER):
        features, error = FeatureMap.of(inputs, fourier, draw), 0.0
        alphas: dict[int, float] = {}
        for a in range(inputs.numbers.shape[1]):
            rows = np.flatnonzero(choice == a)
            if len(rows) < 3:
                alphas[a] = ALPHAS[-1]
                continue
            phi = features(inputs[rows], a)
            phi = phi if phi.shape[1] else np.zeros((len(phi), 1))  # it needs a column
            ridge = RidgeCV(ALPHAS).fit(phi, target[rows])
            alphas[a] = float(ridge.alpha_)
            error -= float(ridge.best_score_) * len(rows)
        if error < least * 0.995:  # Fourier features must gain something
            best, least = Shape(features, alphas), error
    assert best is not None
    return best


def fit(
    shape: Shape,
    inputs: Inputs,
    choice: Ints,
    target: Floats,
    least: int = 1,
    spread: bool = False,
) -> Ridges:
    """Return one regression per choice.

    A choice that was never made gets the mean of all targets.

    Args:
        shape: see `choose`.
        inputs: of n decisions and k choices.
        choice: index of each choice [n].
        target: of the choices [n]; or of all choices [n, k], and then `choice` is ignored.
        least: the minimum of decisions for the support of a choice.
        spread: whether bounds are needed.
    """
    k = inputs.numbers.shape[1]
    width = shape.features(inputs[:0], 0).shape[1]
    coef, intercept = np.zeros((k, width)), np.zeros(k)
    covariance = np.zeros((k, width + 1, width + 1)) if spread else np.zeros((k, 1, 1))
    supported = np.zeros(k, np.bool_)
    for a in range(k):
        mine = choice == a
        supported[a] = mine.sum() >= max(least, 1)
        at = ~np.isnan(target[:, a]) if target.ndim == 2 else mine
        y = target[at, a] if target.ndim == 2 else target[at]
        if len(y) < 2:
            intercept[a] = float(np.nanmean(target)) if len(target) else 0.0
            continue
        phi = shape.features(inputs[at], a)
        coef[a], intercept[a], covariance[a] = _ridge(phi, y, shape.alphas[a], spread)
    return Ridges(shape.features, coef, intercept, covariance, supported)


def _ridge(
    phi: Floats, y: Floats, alpha: float, spread: bool
) -> tuple[Floats, float, Floats | float]:
    """Return coefficients [d], intercept and, with `spread`, covariance [d + 1, d + 1]."""
    n, d = phi.shape
    center, middle = phi.mean(axis=0), float(y.mean())
    z, residual = phi - center, y - middle
    if n < d and not spread:
        coef = z.T @ cho_solve(cho_factor(z @ z.T + alpha * np.eye(n)), residual)
        return coef, middle - float(center @ coef), 0.0
    factor = cho_factor(z.T @ z + alpha * np.eye(d)) if d else (np.zeros((0, 0)), False)
    coef = cho_solve(factor, z.T @ residual)
    if not spread:
        return coef, middle - float(center @ coef), 0.0
    inverse = cho_solve(factor, np.eye(d))
    freedom = max(n - 1 - (d - alpha * float(np.trace(inverse))), 1.0)
    noise = float(((residual - z @ coef) ** 2).sum()) / freedom
    cross = -inverse @ center
    corner = 1 / n + float(center @ inverse @ center)
    covariance = np.block([[inverse, cross[:, None]], [cross[None], np.array([[corner]])]])
    return coef, middle - float(center @ coef), covariance * noise
