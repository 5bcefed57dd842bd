"""Dawid and Skene's estimate of truths and of voters' error rates, without any known truth.

A. P. Dawid and A. M. Skene, Maximum likelihood estimation of observer error-rates using the EM
algorithm, Applied Statistics 28 (1979). Pure functions over arrays.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

__all__ = ["Crowd", "dawid_skene"]

Floats = NDArray[np.float64]


@frozen(eq=False)
class Crowd:
    """What was estimated from n items, K voters and C classes.

    Args:
        posterior: n x C, the probability of each class for each item.
        prior: C, how common each class is.
        confusion: K x C x C, [k, c, v]: how often voter k says v where c is true.
        scores: the penalised log-likelihood after each step; it never falls.
    """

    posterior: Floats
    prior: Floats
    confusion: Floats
    scores: tuple[float, ...]


def dawid_skene(
    votes: ArrayLike,
    classes: int,
    smoothing: float = 0.01,
    tolerance: float = 1e-9,
    steps: int = 1000,
) -> Crowd:
    """EM for the classes of items and the confusion matrix of every voter.

    It starts from the votes' shares (the paper's section 3.1), so that labels cannot be switched
    unless a majority is wrong throughout. Equations: 2.3 and 2.4 for the maximisation, 2.5 for the
    posterior. Differs from the paper by `smoothing`, added to every count of a confusion matrix:
    a class that a voter was never seen to give keeps a little probability.

    Args:
        votes: n x K whole numbers from 0 to classes - 1; -1 where a voter is silent.
        classes: how many.
        smoothing: pseudo-count of each cell, above 0.
        tolerance: it ends when the score grows by less, per item.
        steps: at most.

    Raises:
        ValueError: the votes make no sense.
    """
    given = np.asarray(votes)
    if given.ndim != 2 or 0 in given.shape or given.dtype.kind not in "iu":
        raise ValueError("votes must be items by voters, in whole numbers")
    if classes < 1 or given.min() < -1 or given.max() >= classes:
        raise ValueError(f"votes must be -1 or 0 to {classes - 1}")
    if smoothing <= 0:
        raise ValueError("smoothing must be above 0")
    # n x K x C: one where this voter says this class.
    said = (given[:, :, None] == np.arange(classes)).astype(np.float64)
    counts = said.sum(axis=1)
    cast = counts.sum(axis=1, keepdims=True)
    posterior = np.where(cast > 0, counts / np.maximum(cast, 1), 1 / classes)
    scores: list[float] = []
    while True:
        prior = (posterior.sum(axis=0) + smoothing) / (len(said) + classes * smoothing)
        confusion = np.einsum("ic,ikv->kcv", posterior, said) + smoothing
        confusion /= confusion.sum(axis=2, keepdims=True)
        joint = np.log(prior) + np.einsum("ikv,kcv->ic", said, np.log(confusion))
        top = joint.max(axis=1, keepdims=True)
        likelihood = np.log(np.exp(joint - top).sum(axis=1, keepdims=True)) + top
        posterior = np.exp(joint - likelihood)
        penalty = smoothing * (np.log(confusion).sum() + np.log(prior).sum())
        scores.append(float(likelihood.sum() + penalty))
        rises = scores[-1] - scores[-2] if len(scores) > 1 else np.inf
        if rises <= tolerance * len(said) or len(scores) >= steps:
            return Crowd(posterior, prior, confusion, tuple(scores))
