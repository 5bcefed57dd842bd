"""The networks of this plugin: what scores choices, and what tells a situation's worth.

Sources: orthogonal first weights as in PPO's reference implementations (Huang et al. 2022, "The 37
implementation details"), Adam (Kingma and Ba 2015), PopArt (van Hasselt et al. 2016). Departures:

- choices have numbers of their own, which the last layer's outputs weigh, see `Scorer.score`
- the policy decides by the same weights in double precision, on arrays where it can
- layers are plain tensors: `torch.nn.utils.skip_init` loads sympy
- the value's unit follows the means and deviations of whole iterations' returns (PopArt: second
  moments, sample by sample)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from orchestrion_encoders.interfaces import Encoded
from orchestrion_encoders.tensors import Inputs, Network, generator_of, serial, tensors
from torch import Tensor, nn

from orchestrion import Key

Floats = NDArray[np.float64]

HINT = 16.0
"""Factor of the numbers of choices, so that smaller weights suffice."""
RATE = 0.05
"""Weight of a new iteration in the running mean and deviation of returns."""


def dense(sizes: Sequence[int], last: float, generator: torch.Generator) -> nn.ParameterDict:
    """Return first weights and biases of layers of these widths; `last` scales the last ones."""
    weights = nn.ParameterDict()
    for i, (before, after) in enumerate(pairwise(sizes)):
        gain = last if i == len(sizes) - 2 else 2**0.5
        first = nn.init.orthogonal_(torch.empty(before, after), gain, generator)
        weights[f"body{i}"], weights[f"bias{i}"] = first, torch.zeros(after)
    return weights


def through(weights: Mapping[str, Any], x: Any, activation: Callable[[Any], Any]) -> Any:
    """Apply layers to rows [m, inputs], of tensors or arrays."""
    for i in range(len(weights) // 2):
        x = (activation(x) if i else x) @ weights[f"body{i}"] + weights[f"bias{i}"]
    return x


class Scorer(Network):
    """Layers that read the situation, and a last one that weighs what is known of each choice.

    Args:
        weights: of the layers, from the situation's numbers to outputs: of choices that have one of
            their own, and then of the numbers of each choice.
        tanh: whether that stands between layers, or else relu.
        outlook: fixed weight of what encoders think of a choice.
        reader: reads the turns [m, t, u] and their lengths to further numbers, if there are any.
    """

    def __init__(
        self, weights: nn.ParameterDict, tanh: bool, outlook: float, reader: nn.Module | None
    ) -> None:
        super().__init__()
        self.weights, self.tanh, self.outlook, self.reader = weights, tanh, outlook, reader

    def forward(self, inputs: Inputs) -> Tensor:
        """Return logits [m, k]; the caller masks choices that are not allowed."""
        if self.reader is not None:
            read = self.reader(inputs.turns, inputs.lengths)
            inputs = inputs._replace(context=torch.cat([inputs.context, read], 1))
        scores: Tensor = self.score(dict(self.weights.items()), torch.tanh, inputs)
        return scores

    def exactly(self) -> Callable[[Encoded], Floats]:
        """Return the function in double precision, as it is now: what the policy decides by.

        On arrays where it can be: for one situation that is four times as fast as on tensors.
        """
        if self.reader is not None:
            exact = copy.deepcopy(self).double()

            def read(encoded: Encoded) -> Floats:
                with serial(), torch.inference_mode():
                    return np.asarray(exact(tensors(encoded, torch.float64)).numpy())

            return read
        weights = {name: w.detach().double().numpy() for name, w in self.weights.items()}
        return lambda encoded: self.score(
            weights, np.tanh, Inputs(encoded.context, encoded.choices, encoded.prior)
        )

    def score(self, weights: Mapping[str, Any], tanh: Callable[[Any], Any], inputs: Inputs) -> Any:
        """Return scores [m, k], of tensors and arrays alike.

        A choice's numbers are weighed by outputs of the network: what is learned of a number, in a
        situation, holds for all choices alike, also for ones that were never seen. Linear in them,
        so that there is little to learn the few agents of one team by heart with. If choices have
        places, each also has an output of its own.
        """
        out = through(weights, inputs.context, tanh if self.tanh else lambda z: z.clip(0))
        numbers = inputs.choices.shape[2]
        own = out.shape[1] - numbers
        scores = out[:, :own] if own else 0.0
        if numbers:
            scores = scores + HINT * (inputs.choices * out[:, None, own:]).sum(-1)
        return scores if inputs.prior is None else scores + self.outlook * inputs.prior


class Value(Network):
    """The value of situations, in a unit that follows the returns, whatever their scale.

    When the running mean or deviation moves, the last layer is changed so that predictions stay
    as they were.

    Args:
        width: number of inputs.
        hidden: widths of the hidden layers.
        key: draws the first weights.

    Attributes:
        unit: mean and deviation of returns; 0 before the first iteration.
    """

    def __init__(self, width: int, hidden: Sequence[int], key: Key) -> None:
        super().__init__()
        self.width, self.unit = width, (0.0, 0.0)
        self.weights = dense((width, *hidden, 1), 1.0, generator_of(key))

    def forward(self, seen: Tensor) -> Tensor:
        """Return expected returns of situations [m, width], in units [m]."""
        units: Tensor = through(dict(self.weights.items()), seen, torch.tanh)[:, 0]
        return units

    def predict(self, seen: Tensor) -> Floats:
        """Return expected returns [m]."""
        with torch.no_grad():
            units: Floats = self(seen).double().numpy()
        return self.unit[0] + self.unit[1] * units

    def error(self, seen: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """Return the mean squared error in units, for targets [n] of the inputs `rows` [n]."""
        units = ((targets - self.unit[0]) / self.unit[1]).float()
        result: Tensor = ((self(seen)[rows] - units) ** 2).mean()
        return result

    def rescale(self, returns: Floats) -> None:
        """Follow the mean and deviation of an iteration's returns."""
        mean, deviation = float(returns.mean()), float(returns.std())
        old_mean, old_deviation = self.unit
        if old_deviation:
            mean = old_mean + RATE * (mean - old_mean)
            deviation = old_deviation + RATE * (deviation - old_deviation)
        # Equal returns have no deviation; a tiny unit would make the next ones explode.
        deviation = max(deviation, 1e-3 * abs(mean), 1e-6)
        if old_deviation:
            weight, bias = [weight.data for weight in self.parameters()][-2:]
            weight *= old_deviation / deviation
            bias.mul_(old_deviation).add_(old_mean - mean).div_(deviation)
        self.unit = mean, deviation
