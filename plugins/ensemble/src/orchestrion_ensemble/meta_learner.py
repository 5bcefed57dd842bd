"""Stacking with a meta-learner: a second-level model over what the first level predicts.

A second level that is fitted on predictions for problems its first level was trained on learns to
trust whoever remembers best. So first-level predictions have to be *out of fold*
(Wolpert 1992; van der Laan, Polley and Hubbard 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

__all__ = ["Fit", "fit_logistic", "folds_of", "out_of_fold", "probabilities_of"]

Floats = NDArray[np.float64]


@frozen(eq=False)
class Fit:
    """A multinomial logistic regression: softmax(coefficients @ x + intercepts).

    `held_out` is its mean log-probability of the truth, and `accuracy` how often it was right, on
    predictions out of fold.
    """

    classes: tuple[str, ...]
    coefficients: Floats
    intercepts: Floats
    strength: float
    held_out: float
    accuracy: float


def folds_of(n: int, folds: int, seed: int) -> NDArray[np.int64]:
    """To which of `folds` each of n points belongs: as equal as can be, in a seeded order.

    Raises:
        ValueError: fewer than two folds, or fewer points than folds.
    """
    if not 2 <= folds <= n:
        raise ValueError(f"{n} points cannot be cut into {folds} folds")
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(n) % folds), dtype=np.int64)


def out_of_fold(
    fit: Callable[[NDArray[Any], NDArray[Any]], Callable[[NDArray[Any]], NDArray[Any]]],
    features: ArrayLike,
    labels: ArrayLike,
    folds: NDArray[np.int64],
) -> NDArray[Any]:
    """For every point what a model fitted on the other folds predicts.

    Args:
        fit: takes features and labels, gives a function from features to predictions.
        features: n x anything.
        labels: n.
        folds: the fold of each point.
    """
    x, y = np.asarray(features), np.asarray(labels)
    predictions: NDArray[Any] | None = None
    for fold in np.unique(folds):
        own = folds == fold
        predicted = np.asarray(fit(x[~own], y[~own])(x[own]))
        if predictions is None:
            predictions = np.empty((len(y), *predicted.shape[1:]), dtype=predicted.dtype)
        predictions[own] = predicted
    assert predictions is not None
    return predictions


def fit_logistic(
    features: ArrayLike,
    labels: Sequence[str],
    folds: int,
    strengths: Sequence[float],
    seed: int,
) -> Fit:
    """A logistic regression by scikit-learn, its strength of regularisation chosen out of fold.

    Args:
        features: n x d.
        labels: the true class of each point.
        folds: how many; fewer if there are fewer points.
        strengths: inverse regularisation strengths (`C`) to choose from.
        seed: of the folds.

    Raises:
        ImportError: scikit-learn is not installed.
        ValueError: fewer than two points.
    """
    x, names = np.asarray(features, dtype=np.float64), np.asarray(labels)
    classes, y = np.unique(names, return_inverse=True)
    if len(classes) == 1:
        nothing = np.zeros((1, x.shape[1]))
        return Fit((str(classes[0]),), nothing, np.zeros(1), float(strengths[0]), 0.0, 1.0)
    parts = folds_of(len(y), min(folds, len(y)), seed)
    best: tuple[float, float, float] | None = None
    for strength in strengths:
        held = out_of_fold(_fitter(strength, len(classes)), x, y, parts)
        score = float(np.log(np.maximum(held[np.arange(len(y)), y], 1e-12)).mean())
        if best is None or score > best[0]:
            best = (score, strength, float((held.argmax(axis=1) == y).mean()))
    assert best is not None
    coefficients, intercepts = _logistic(x, y, best[1], len(classes))
    return Fit(tuple(map(str, classes)), coefficients, intercepts, best[1], best[0], best[2])


def probabilities_of(coefficients: ArrayLike, intercepts: ArrayLike, features: ArrayLike) -> Floats:
    """What a fitted regression predicts: a row for each row of features."""
    scores = np.asarray(features) @ np.asarray(coefficients).T + np.asarray(intercepts)
    raw = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(raw / raw.sum(axis=-1, keepdims=True))


def _fitter(strength: float, classes: int) -> Any:
    def fit(x: Floats, y: NDArray[np.int64]) -> Callable[[Floats], Floats]:
        coefficients, intercepts = _logistic(x, y, strength, classes)
        return lambda new: probabilities_of(coefficients, intercepts, new)

    return fit


def _logistic(
    x: Floats, y: NDArray[np.int64], strength: float, classes: int
) -> tuple[Floats, Floats]:
    """Coefficients for all classes; one that is missing here is made very improbable."""
    from sklearn.linear_model import LogisticRegression

    coefficients, intercepts = np.zeros((classes, x.shape[1])), np.full(classes, -30.0)
    seen = np.unique(y)
    if len(seen) == 1:
        intercepts[seen] = 0.0
        return coefficients, intercepts
    model = LogisticRegression(C=strength, max_iter=1000).fit(x, y)
    if len(seen) == 2:
        # One score for the second class against the first.
        coefficients[seen[1]], intercepts[seen] = model.coef_[0], [0.0, model.intercept_[0]]
        return coefficients, intercepts
    coefficients[seen], intercepts[seen] = model.coef_, model.intercept_
    return coefficients, intercepts
