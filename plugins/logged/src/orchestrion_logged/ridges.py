"""Ridge regressions, one per choice: the value of a choice in a situation, and a lower bound.

The features of a choice are the standardised numbers of the situation and the choice; the one-hot
category of the situation; and, if that lowers the leave-one-out error, random Fourier features of
all these for nonlinear values (Rahimi & Recht 2007, "Random features for large-scale kernel
machines").

    value(x, a) = w_a . phi(x, a) + b_a
    bound(x, a) = value(x, a) - caution * sqrt(phi' C_a phi),  C_a = s_a^2 (Phi' Phi + alpha I)^-1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from orchestrion_encoders.interfaces import Encoded
from orchestrion_values import pack, unpack

from orchestrion import Saved, Situation
from orchestrion_logged.decisions import Floats, Mask

if TYPE_CHECKING:
    from orchestrion_values import ValuePolicy

Encode = Callable[[Sequence[Situation]], Encoded]

RARE = 0.25
"""A number that is nonzero in a smaller share of cases counts as an indicator."""
NEVER = -1e9
"""The score of a choice without enough logged decisions."""


@frozen(eq=False)
class Inputs:
    """n situations with k choices as numbers."""

    numbers: Floats  # of each situation and choice [n, k, p]
    categories: tuple[str, ...]  # of the problems [n]

    def __getitem__(self, rows: Any) -> Inputs:
        at = np.arange(len(self.categories))[rows]
        return Inputs(self.numbers[at], tuple(self.categories[i] for i in at.tolist()))


def inputs_of(situations: Sequence[Situation], encode: Encode) -> Inputs:
    """Return situations as numbers, by an encoder of the policy."""
    encoded = encode(situations)
    n, k, _ = encoded.choices.shape
    context = np.broadcast_to(encoded.context[:, None], (n, k, encoded.context.shape[1]))
    numbers = np.concatenate([context, encoded.choices], axis=2)
    return Inputs(numbers, tuple(situation.problem.category for situation in situations))


@frozen(eq=False)
class FeatureMap:
    """Turns the inputs of a choice into d features."""

    mean: Floats  # of the numbers [p]
    scale: Floats  # of the numbers [p]
    categories: tuple[str, ...]  # c of them have a feature of their own
    weights: Floats  # of the Fourier features [p + c, f]; f is 0 without them
    phases: Floats  # of the Fourier features [f]

    @classmethod
    def of(cls, inputs: Inputs, fourier: int, draw: np.random.Generator) -> FeatureMap:
        """Return a map fitted on some inputs, with a number of Fourier features."""
        flat = inputs.numbers.reshape(-1, inputs.numbers.shape[2])
        spread = flat.std(axis=0)
        # Rare indicators, like hashed words, are not standardised: that would give the rarest the
        # most weight.
        rare = (flat != 0).mean(axis=0) < RARE
        scale = np.where(rare, np.abs(flat).max(axis=0, initial=0.0), spread)
        scale = np.where(spread > 1e-9, scale, 1.0)
        names = tuple(sorted(set(inputs.categories)))
        names = names if len(names) > 1 else ()
        width = len(scale) + len(names)
        # The length scale is the typical distance of two inputs; two categories differ by 2 in sum
        # of squares.
        size = float(((spread / scale) ** 2).sum()) + (1 if names else 0)
        weights = draw.normal(size=(width, fourier)) / np.sqrt(max(size, 1e-9))
        return cls(flat.mean(axis=0), scale, names, weights, draw.uniform(0, 2 * np.pi, fourier))

    def __call__(self, inputs: Inputs, place: int) -> Floats:
        """Return the features of one choice [n, d]."""
        z = (inputs.numbers[:, place] - self.mean) / self.scale
        if self.categories:
            is_own = [[name == own for own in self.categories] for name in inputs.categories]
            own_features = np.array(is_own, np.float64).reshape(len(z), len(self.categories))
            z = np.concatenate([z, own_features], axis=1)
        bent = np.cos(z @ self.weights + self.phases) * np.sqrt(2 / max(len(self.phases), 1))
        return np.concatenate([z, bent], axis=1)


class Ridges:
    """A model of the policy `values`; estimates use it too.

    Args:
        features: of inputs.
        coef: [k, d].
        intercept: [k].
        covariance: of the coefficients and, last, the intercept [k, d + 1, d + 1].
        supported: whether the log has enough decisions of a choice [k].
        caution: scores are values minus so many standard errors.
        encode: turns situations into numbers.
    """

    name = "ridges"

    def __init__(
        self,
        features: FeatureMap,
        coef: Floats,
        intercept: Floats,
        covariance: Floats,
        supported: Mask,
        caution: float = 0.0,
        encode: Encode | None = None,
    ) -> None:
        self.features, self.coef, self.intercept = features, coef, intercept
        self.covariance, self.supported = covariance, supported
        self.caution, self.encode = caution, encode

    def values(self, inputs: Inputs) -> Floats:
        """Return the value of each choice [n, k]."""
        choices = zip(self.coef, self.intercept, strict=True)
        columns = [self.features(inputs, a) @ w + b for a, (w, b) in enumerate(choices)]
        return np.stack(columns, axis=1)

    def bounds(self, inputs: Inputs) -> Floats:
        """Return the lower bound of each choice [n, k]; `NEVER` without support."""
        result = np.full((len(inputs.categories), len(self.coef)), NEVER)
        for a in np.flatnonzero(self.supported).tolist():
            phi = self.features(inputs, a)
            result[:, a] = phi @ self.coef[a] + self.intercept[a]
            if self.caution:
                design = np.concatenate([phi, np.ones((len(phi), 1))], axis=1)
                spread = np.einsum("nd,de,ne->n", design, self.covariance[a], design)
                result[:, a] -= self.caution * np.sqrt(np.maximum(spread, 0))
        return result

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """See `Model.scores`."""
        assert self.encode is not None
        # Rounded, so that a choice does not depend on the rest of the batch.
        rounded: Floats = self.bounds(inputs_of(situations, self.encode)).round(9)
        return rounded

    def save(self) -> Saved:
        """See `Model.save`."""
        f = self.features
        arrays = {
            "mean": f.mean, "scale": f.scale, "weights": f.weights, "phases": f.phases,
            "coef": self.coef, "intercept": self.intercept, "covariance": self.covariance,
        }  # fmt: skip
        data = {
            "categories": list(f.categories),
            "supported": self.supported.tolist(),
            "caution": self.caution,
        }
        return Saved(pack(arrays), data)

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> Ridges:
        """Return what `save` saved."""
        a = unpack(saved.arrays)
        data: Any = saved.data
        features = FeatureMap(
            a["mean"], a["scale"], tuple(data["categories"]), a["weights"], a["phases"]
        )
        supported = np.array(data["supported"], np.bool_)
        learned = (a["coef"], a["intercept"], a["covariance"])
        return cls(features, *learned, supported, float(data["caution"]), policy.encode_alike)
