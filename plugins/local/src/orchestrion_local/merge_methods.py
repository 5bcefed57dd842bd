"""Merging the parameters of fine-tuned models: pure functions over mappings of arrays.

Sources: model soups, Wortsman et al. 2022; slerp, Shoemake 1985; task arithmetic, Ilharco et al.
2023; TIES, Yadav et al. 2023; DARE, Yu et al. 2024.

Merging is only meaningful between fine-tunes of one base model. All models must have the same
names, shapes and dtypes; a difference is an error. Everything is computed in float32 (float64
stays float64) and returned in the dtype of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]
Tensors = Mapping[str, Tensor]
Merged = dict[str, Tensor]

PARALLEL = 0.9995
"""Above this cosine two tensors are averaged linearly: the arc is nearly straight."""


def linear(models: Sequence[Tensors], weights: Sequence[float] | None = None) -> Merged:
    """Return the weighted average sum_k w_k theta_k / sum_k w_k (Wortsman et al. 2022).

    Raises:
        ValueError: models do not fit together, or weights are not finite or sum to 0.
    """
    shares = _weights(models, weights)
    total = fsum(shares)
    if abs(total) < 1e-12 * fsum(map(abs, shares)) or total == 0:
        raise ValueError("the weights sum to 0; an average needs another sum")

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        return _sum(parts, [share / total for share in shares])

    return _by_tensor(models, merge)


def slerp(first: Tensors, second: Tensors, t: float) -> Merged:
    """Return the spherical interpolation of two models, tensor by tensor (Shoemake 1985).

    sin((1 - t) a) / sin a * theta_1 + sin(t a) / sin a * theta_2, where a is the angle between the
    flattened tensors. Nearly parallel tensors and all-zero tensors are interpolated linearly.

    Args:
        first: the result at t = 0.
        second: the result at t = 1.
        t: from 0 to 1.

    Raises:
        ValueError: models do not fit together; t is outside [0, 1]; two tensors point in opposite
            directions, so that no arc between them is the shortest.
    """
    if not 0 <= t <= 1:
        raise ValueError(f"t must be from 0 to 1, got {t}")

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        a, b = parts
        # The inputs themselves, without rounding.
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

    return _by_tensor([first, second], merge)


def task_arithmetic(
    base: Tensors, models: Sequence[Tensors], weights: Sequence[float] | None = None
) -> Merged:
    """Return base + sum_k w_k (theta_k - base), weights 1 by default (Ilharco et al. 2023, sec. 2).

    Raises:
        ValueError: models do not fit together, or weights are not finite.
    """
    shares = _weights(models, weights)

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        start, *tuned = parts
        return np.asarray(start + _sum([part - start for part in tuned], shares))

    return _by_tensor([base, *models], merge)


def ties(
    base: Tensors,
    models: Sequence[Tensors],
    weights: Sequence[float] | None = None,
    density: float = 0.2,
) -> Merged:
    """Return the models merged by TIES: trim, elect signs, average (Yadav et al. 2023, alg. 1).

    Each change theta_k - base keeps its largest entries, a share `density` of each tensor. The
    sign of an entry is that of the weighted sum of what is kept; entries with that sign are
    averaged by weight. Entries as large as the smallest kept one are all kept, so that their order
    in memory changes nothing.

    Args:
        base: the model that the others were tuned from.
        models: the tuned ones.
        weights: not negative; 1 each by default. Only their ratios matter.
        density: share of entries to keep, above 0 to 1.

    Raises:
        ValueError: models do not fit together, weights are negative, not finite or all zero, or
            the density is out of range.
    """
    shares = _weights(models, weights)
    if min(shares) < 0 or not any(shares):
        raise ValueError("weights must not be negative, and at least one must be positive")
    _check_density(density)

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        start, *tuned = parts
        changes = [_trim(part - start, density) for part in tuned]
        elected = np.sign(_sum(changes, shares))
        agreed = [np.where(np.sign(change) == elected, change, 0) for change in changes]
        weight = _sum([(change != 0).astype(start.dtype) for change in agreed], shares)
        merged = _sum(agreed, shares) / np.where(weight > 0, weight, 1)
        return np.asarray(start + merged)

    return _by_tensor([base, *models], merge)


def dare(
    base: Tensors,
    models: Sequence[Tensors],
    weights: Sequence[float] | None = None,
    density: float = 0.5,
    seed: int = 0,
) -> Merged:
    """Return the models merged by DARE: drop and rescale (Yu et al. 2024, section 3).

    Each entry of a change is kept with probability `density` and divided by it, so that the
    expected change is unaltered. Which entries are dropped depends on the seed, the position of
    the model and the name of the tensor.

    Raises:
        ValueError: models do not fit together, weights are not finite, or the density is out of
            range.
    """
    shares = _weights(models, weights)
    _check_density(density)

    def merge(name: str, parts: list[Tensor]) -> Tensor:
        start, *tuned = parts
        changes = []
        for position, part in enumerate(tuned):
            draws = np.random.default_rng([seed, position, *name.encode()]).random(part.shape)
            kept = np.where(draws < density, part - start, 0)
            changes.append(kept / start.dtype.type(density))
        return np.asarray(start + _sum(changes, shares))

    return _by_tensor([base, *models], merge)


def _weights(models: Sequence[Tensors], weights: Sequence[float] | None) -> list[float]:
    if not models:
        raise ValueError("there is no model to merge")
    shares = [1.0] * len(models) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(models) or not all(map(isfinite, shares)):
        raise ValueError(f"{len(models)} models need a finite weight each, got {shares}")
    return shares


def _check_density(density: float) -> None:
    if not 0 < density <= 1:
        raise ValueError(f"a density must be above 0 and at most 1, got {density}")


def _by_tensor(models: Sequence[Tensors], merge: Callable[[str, list[Tensor]], Tensor]) -> Merged:
    """Check that all models fit together, and merge tensor by tensor."""
    first, merged = models[0], {}
    for position, model in enumerate(models[1:], 1):
        if differing := sorted(set(first) ^ set(model)):
            raise ValueError(f"model {position} has other tensors than model 0: {differing[:5]}")
    for name, tensor in first.items():
        kinds = {(model[name].shape, model[name].dtype.str) for model in models}
        if len(kinds) > 1:
            raise ValueError(f"{name}: shapes or dtypes differ: {sorted(map(str, kinds))}")
        if tensor.dtype.kind != "f":
            raise ValueError(f"{name}: expected a floating-point tensor, got {tensor.dtype}")
        wide = np.result_type(tensor.dtype, np.float32)
        parts = [model[name].astype(wide) for model in models]
        merged[name] = np.asarray(merge(name, parts)).astype(tensor.dtype)
    return merged


def _sum(parts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return sum_k w_k part_k, to the last bit independent of the order of the pairs."""
    scaled = np.stack([part * part.dtype.type(w) for part, w in zip(parts, weights, strict=True)])
    # Addition is not associative: sort first.
    return np.asarray(np.sort(scaled, axis=0).sum(axis=0, dtype=scaled.dtype))


def _trim(change: Tensor, density: float) -> Tensor:
    size = np.abs(change).ravel()
    # Rounded against noise such as 0.3 * 10 = 3.0000000000000004.
    keep = int(np.ceil(round(density * size.size, 9)))
    if keep >= size.size:
        return change
    smallest = np.partition(size, size.size - keep)[size.size - keep]
    return np.where(np.abs(change) >= smallest, change, 0)
