"""Merging the parameters of fine-tuned models: pure functions over mappings of arrays.

Only meaningful between fine-tunes of one base model. All models must have the same names, shapes
and dtypes; nothing is skipped in silence. Everything is computed in float32 (float64 stays
float64) and given back in the dtype that came in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dare", "linear", "slerp", "task_arithmetic", "ties"]

Tensor = NDArray[Any]
Tensors = Mapping[str, Tensor]
Merged = dict[str, Tensor]

PARALLEL = 0.9995
"""Vectors with a cosine above it are averaged linearly: the arc is as good as straight."""


def linear(models: Sequence[Tensors], weights: Sequence[float] | None = None) -> Merged:
    """The weighted average sum_k w_k theta_k / sum_k w_k (Wortsman et al. 2022).

    Raises:
        ValueError: models do not fit together, or weights are not finite or sum to 0.
    """
    shares = _weights(models, weights)
    total = fsum(shares)
    if abs(total) < 1e-12 * fsum(map(abs, shares)) or total == 0:
        raise ValueError("the weights sum to 0: there is no average")

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        return _sum(parts, [share / total for share in shares])

    return _each(models, merge)


def slerp(first: Tensors, second: Tensors, t: float) -> Merged:
    """Spherical interpolation of two models, tensor by tensor (Shoemake 1985).

    sin((1 - t) a) / sin a * theta_1 + sin(t a) / sin a * theta_2, where a is the angle between the
    flattened tensors. Nearly parallel tensors, and those that are all zero, are interpolated
    linearly.

    Args:
        first: the result at t = 0.
        second: the result at t = 1.
        t: from 0 to 1.

    Raises:
        ValueError: models do not fit together; t is outside; two tensors point in opposite
            directions, so that no arc between them is the shortest.
    """
    if not 0 <= t <= 1:
        raise ValueError(f"t must be within 0 to 1, got {t}")

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        a, b = parts
        # As the inputs are: no rounding at the ends.
        if t in (0, 1):
            return b if t else a
        norms = float(np.linalg.norm(a.ravel())), float(np.linalg.norm(b.ravel()))
        if 0.0 in norms:
            return _sum([a, b], [1 - t, t])
        cosine = float(np.vdot(a.ravel() / norms[0], b.ravel() / norms[1]))
        if cosine < -PARALLEL:
            raise ValueError(f"{name}: the two tensors point in opposite directions")
        if cosine > PARALLEL:
            return _sum([a, b], [1 - t, t])
        angle = float(np.arccos(cosine))
        sine = np.sin(angle)
        return _sum([a, b], [np.sin((1 - t) * angle) / sine, np.sin(t * angle) / sine])

    return _each([first, second], merge)


def task_arithmetic(
    base: Tensors, models: Sequence[Tensors], weights: Sequence[float] | None = None
) -> Merged:
    """base + sum_k w_k (theta_k - base) (Ilharco et al. 2023, section 2); weights 1 by default."""
    shares = _weights(models, weights)

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        start, *tuned = parts
        return np.asarray(start + _sum([one - start for one in tuned], shares))

    return _each([base, *models], merge)


def ties(
    base: Tensors,
    models: Sequence[Tensors],
    weights: Sequence[float] | None = None,
    density: float = 0.2,
    scale: float = 1.0,
) -> Merged:
    """TIES: trim, elect a sign, and average what agrees (Yadav et al. 2023, algorithm 1).

    Each change theta_k - base keeps its largest entries, a `density` of them, in every tensor;
    each entry's sign is that of the weighted sum of what is left; the entries of that sign are
    averaged by weight, over the weight that is left. Entries as large as the smallest one kept
    are all kept, so that the order in memory decides nothing.

    Args:
        base: what the models were tuned from.
        models: the tuned ones.
        weights: not negative; 1 each by default. Only their ratios matter.
        density: share of entries kept, above 0 to 1.
        scale: of the merged change.

    Raises:
        ValueError: models do not fit together, or a setting makes no sense.
    """
    shares = _weights(models, weights)
    if min(shares) < 0 or not any(shares):
        raise ValueError("weights must not be negative, nor all zero")
    _check_density(density)

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        start, *tuned = parts
        changes = [_trim(one - start, density) for one in tuned]
        elected = np.sign(_sum(changes, shares))
        agreed = [np.where(np.sign(one) == elected, one, 0) for one in changes]
        weight = _sum([(one != 0).astype(start.dtype) for one in agreed], shares)
        merged = _sum(agreed, shares) / np.where(weight > 0, weight, 1)
        return np.asarray(start + start.dtype.type(scale) * merged)

    return _each([base, *models], merge)


def dare(
    base: Tensors,
    models: Sequence[Tensors],
    weights: Sequence[float] | None = None,
    density: float = 0.5,
    seed: int = 0,
) -> Merged:
    """DARE: drop entries of each change at random, rescale the rest (Yu et al. 2024, section 3).

    Each entry stays with probability `density` and is divided by it, so that the expected change
    is the whole one. What is dropped depends on the seed, the model's place and the tensor's name.

    Raises:
        ValueError: models do not fit together, or a setting makes no sense.
    """
    shares = _weights(models, weights)
    _check_density(density)

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        start, *tuned = parts
        changes = []
        for place, one in enumerate(tuned):
            draws = np.random.default_rng([seed, place, *name.encode()]).random(one.shape)
            kept = np.where(draws < density, one - start, 0)
            changes.append(kept / start.dtype.type(density))
        return np.asarray(start + _sum(changes, shares))

    return _each([base, *models], merge)


def _weights(models: Sequence[Tensors], weights: Sequence[float] | None) -> list[float]:
    if not models:
        raise ValueError("there is no model to merge")
    shares = [1.0] * len(models) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(models) or not all(map(isfinite, shares)):
        raise ValueError(f"{len(models)} models and weights {shares}")
    return shares


def _check_density(density: float) -> None:
    if not 0 < density <= 1:
        raise ValueError(f"a density is above 0 and at most 1, got {density}")


def _each(models: Sequence[Tensors], merge: Callable[[str, list[Tensor]], Tensor]) -> Merged:
    """Merge tensor by tensor, after a look at whether all fit."""
    first, merged = models[0], {}
    for place, model in enumerate(models[1:], 1):
        if differing := sorted(set(first) ^ set(model)):
            raise ValueError(f"model {place} has other tensors than model 0: {differing[:5]}")
    for name, tensor in first.items():
        kinds = {(model[name].shape, model[name].dtype.str) for model in models}
        if len(kinds) > 1:
            raise ValueError(f"{name}: shapes or dtypes differ: {sorted(map(str, kinds))}")
        if tensor.dtype.kind != "f":
            raise ValueError(f"{name}: {tensor.dtype} is no floating-point tensor")
        wide = np.result_type(tensor.dtype, np.float32)
        parts = [model[name].astype(wide) for model in models]
        merged[name] = np.asarray(merge(name, parts)).astype(tensor.dtype)
    return merged


def _sum(parts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_k w_k part_k, the same to the last bit in any order of the pairs."""
    scaled = np.stack([part * part.dtype.type(w) for part, w in zip(parts, weights, strict=True)])
    # Addition is not associative; a sorted order is one order.
    return np.asarray(np.sort(scaled, axis=0).sum(axis=0, dtype=scaled.dtype))


def _trim(change: Tensor, density: float) -> Tensor:
    size = np.abs(change).ravel()
    # Rounded against noise such as 0.3 * 10 = 3.0000000000000004.
    keep = int(np.ceil(round(density * size.size, 9)))
    if keep >= size.size:
        return change
    smallest = np.partition(size, size.size - keep)[size.size - keep]
    return np.where(np.abs(change) >= smallest, change, 0)
