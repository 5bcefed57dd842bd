"""The ensemble that `fitted` fits, as arrays: scale, linear values, trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import asdict, frozen
from numpy.typing import NDArray

from orchestrion_values.arrays import Floats, Ints, under
from orchestrion_values.transitions import Transitions, widened

WIDE, COMPONENTS = 96, 32
"""Wider blocks of the context are projected on so many principal components."""
BLOCK = 4096


@frozen(eq=False)
class Scale:
    """Scales numbers of situations: z = (context - mean) @ project.

    Args:
        mean: of the context [w].
        project: to d numbers [w, d].
        middle: mean of the numbers of choices [v].
        width: their standard deviation, 1 if they do not vary [v].
    """

    mean: Floats
    project: Floats
    middle: Floats
    width: Floats

    @classmethod
    def of(cls, data: Transitions, strength: float = 1.0) -> Scale:
        """Return the scale of these situations.

        Each block of the context gets a total variance of 1: in a narrow one all numbers are equal,
        a wide one is projected on its principal components and weighted by `strength`.
        """
        mean, start = data.context.mean(axis=0), 0
        parts = []
        for width in data.blocks or (len(mean),):
            block = data.context[:, start : start + width] - mean[start : start + width]
            project = np.zeros((len(mean), 0))
            if width:
                shape = _components(block) * strength if width > WIDE else _alike(block)
                project = np.zeros((len(mean), shape.shape[1]))
                project[start : start + width] = shape
            parts.append(project)
            start += width
        deviation = data.choices.std(axis=(0, 1))
        width_of = np.where(deviation > 1e-9, deviation, 1.0)
        return cls(mean, np.concatenate(parts, axis=1), data.choices.mean(axis=(0, 1)), width_of)

    def situations(self, context: Floats, category: Ints, categories: int) -> Floats:
        """Return z [n, d + categories]: the scaled context and the one-hot category."""
        z = (context - self.mean) @ self.project
        # Linear values do not extrapolate far outside the data.
        z = np.clip(z, -1.5, 1.5)
        if categories < 2:
            return z
        # With equal shares, a linear value of an unknown category is the mean over all of them.
        known = np.full((len(z), categories), 1 / categories)
        at = np.flatnonzero(category >= 0)
        known[at] = 0.0
        known[at, category[at]] = 1.0
        return np.concatenate([z, known], axis=1)

    def of_choices(self, choices: Floats) -> Floats:
        """Return the scaled numbers of choices x [n, k, v]."""
        known = len(self.middle)
        result: Floats = (widened(choices, known)[:, :, :known] - self.middle) / self.width
        return result


def _alike(block: Floats) -> Floats:
    """Return a matrix that scales all varying numbers to equal deviation [w, d]."""
    spread = block.std(axis=0)
    varied = np.flatnonzero(spread > 1e-9)
    result = np.zeros((len(spread), len(varied)))
    result[varied, np.arange(len(varied))] = 1 / (spread[varied] * max(1.0, len(varied) ** 0.5))
    return result


def _components(block: Floats) -> Floats:
    """Return the principal components with their own deviations [w, d]."""
    values, vectors = np.linalg.eigh(block.T @ block / len(block))
    best = vectors[:, ::-1][:, :COMPONENTS]
    # The sign of a component depends on the library's version.
    best = best * np.where(best[abs(best).argmax(axis=0), np.arange(best.shape[1])] < 0, -1, 1)
    result: Floats = best / max(1e-9, values.clip(0).sum() ** 0.5)
    return result


@frozen(eq=False)
class Trees:
    """A forest as arrays: node 0 of each tree is its root; leaves have `left` -1.

    Args:
        left: [trees, nodes].
        right: likewise.
        feature: that a node compares.
        threshold: values up to it go left.
        value: prediction of a leaf.
        weight: of the predictions, 0 to 1.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    value: Floats
    weight: float

    @classmethod
    def of(cls, grown: Sequence[Any], weight: float) -> Trees:
        """Return fitted trees of scikit-learn as arrays."""
        trees = [tree.tree_ for tree in grown]
        size = max(tree.node_count for tree in trees)

        def table(of: Any, kind: Any) -> Any:
            result = np.zeros((len(trees), size), kind)
            for row, tree in zip(result, trees, strict=True):
                row[: tree.node_count] = of(tree)
            return result

        return cls(
            table(lambda t: t.children_left, np.int32),
            table(lambda t: t.children_right, np.int32),
            table(lambda t: t.feature, np.int32),
            table(lambda t: t.threshold, np.float64),
            table(lambda t: t.value[:, 0, 0], np.float64),
            weight,
        )

    def predict(self, rows: NDArray[Any]) -> Floats:
        """Return the weighted mean of all trees [n]."""
        x = rows.astype(np.float32)  # as the trees were grown
        count, size = self.left.shape
        first = np.arange(count) * size
        left, right = (self.left + first[:, None]).ravel(), (self.right + first[:, None]).ravel()
        inner = self.left.ravel() >= 0
        feature, threshold, value = self.feature.ravel(), self.threshold.ravel(), self.value.ravel()
        total = np.zeros(len(x))
        for begin in range(0, len(x), BLOCK):
            part = x[begin : begin + BLOCK]
            node = np.broadcast_to(first, (len(part), count)).copy()
            at, tree = np.nonzero(inner[node])
            while len(at):
                here = node[at, tree]
                goes = part[at, feature[here]] <= threshold[here]
                here = np.where(goes, left[here], right[here])
                node[at, tree] = here
                going = inner[here]
                at, tree = at[going], tree[going]
            total[begin : begin + BLOCK] = value[node].sum(axis=1)
        result: Floats = self.weight * total / len(self.left)
        return result


@frozen(eq=False)
class Fitted:
    """An ensemble of m value functions of k choices; member 0 is the mean.

    Args:
        scale: of the numbers.
        categories: names, in the order of the last numbers of z.
        shared: weights of z for all choices [m, d].
        bias: of the choices [m, k].
        own: weights of z by choice [m, k, d].
        told: weights of the choices' own numbers [m, v].
        centre: added to every value.
        trees: of the residuals of the linear part; None with few decisions.
        lost: root mean squared error on left-out episodes, in rewards.
    """

    scale: Scale
    categories: tuple[str, ...]
    shared: Floats
    bias: Floats
    own: Floats
    told: Floats
    centre: float
    trees: Trees | None = None
    lost: float = 0.0

    def values(self, context: Floats, choices: Floats, category: Ints) -> Floats:
        """Return Q of every member, situation and choice [m, n, k]."""
        z = self.scale.situations(context, category, len(self.categories))
        x = self.scale.of_choices(choices)
        result = self.linear(z, x)
        if self.trees is not None:
            result += self.trees.predict(rows_of(z, x)).reshape(result.shape[1:])
        return result

    def linear(self, z: Floats, x: Floats) -> Floats:
        """Return the linear part [m, n, k]."""
        result: Floats = self.own @ z.T  # [m, k, n]
        result += (self.shared @ z.T)[:, None] + self.bias[:, :, None] + self.centre
        if x.shape[2]:
            result += np.moveaxis(x @ self.told.T, 2, 0).swapaxes(1, 2)
        return result.swapaxes(1, 2)

    def save(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return arrays and plain data."""
        arrays = {name: getattr(self, name) for name in WEIGHTS}
        arrays |= {f"scale.{name}": array for name, array in asdict(self.scale).items()}
        trees = {} if self.trees is None else asdict(self.trees)
        weight = trees.pop("weight", None)
        arrays |= {f"trees.{name}": array for name, array in trees.items()}
        return arrays, {
            "categories": list(self.categories),
            "centre": self.centre,
            "lost": self.lost,
            "weight": weight,
        }

    @classmethod
    def load(cls, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> Fitted:
        trees = None
        if data["weight"] is not None:
            trees = Trees(**under(arrays, "trees."), weight=data["weight"])
        return cls(
            Scale(**under(arrays, "scale.")),
            tuple(data["categories"]),
            **{name: arrays[name] for name in WEIGHTS},
            centre=data["centre"],
            trees=trees,
            lost=data["lost"],
        )


WEIGHTS = ("shared", "bias", "own", "told")


def rows_of(z: Floats, x: Floats) -> Floats:
    """Return the features of trees for every situation and choice [n k, d + v + k]."""
    n, k, _ = x.shape
    each = np.broadcast_to(z[:, None], (n, k, z.shape[1]))
    which = np.broadcast_to(np.eye(k), (n, k, k))
    return np.concatenate([each, x, which], axis=2).reshape(n * k, -1)
