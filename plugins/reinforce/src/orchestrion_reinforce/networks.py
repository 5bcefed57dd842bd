"""Networks: what scores the choices in a situation, and what a situation is worth.

`score` is written for torch tensors and numpy arrays alike. Training runs it on tensors in single
precision; deciding runs it on arrays in double precision, which for one situation is four times as
fast (13 against 52 microseconds with two layers of 64) and for 256 as fast.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from orchestrion_encoders.interfaces import Encoded
from orchestrion_encoders.tensors import Inputs, serial, tensors
from torch import Tensor, nn

__all__ = ["Scorer", "Widths", "multilayer"]

Floats = NDArray[np.float64]
Activation = Literal["tanh", "relu"]

HINT = 16.0
"""What numbers of choices are multiplied by, so that their weights need not grow as far."""
START = 0.01
"""Scale of the last layer's first weights: all choices are almost equally likely at first."""


class Widths(NamedTuple):
    """How many numbers describe a situation, each choice, and each turn."""

    context: int
    choice: int
    turn: int


def score(weights: Mapping[str, Any], act: Callable[[Any], Any], inputs: Inputs) -> Any:
    """Scores of choices [m, k] by arrays or tensors `weights`, without their prior.

    With a `head`, every choice has an output of its own, and further outputs are the weights of
    the choices' numbers: what is learned of a number holds for all choices alike. Without one,
    choices are scored by one function of the situation and their numbers; the product lets it
    match what the situation needs with what the choice offers.
    """
    z, layer = inputs.context, 0
    while f"body{layer}" in weights:
        z = act(z @ weights[f"body{layer}"] + weights[f"bias{layer}"])
        layer += 1
    x = inputs.choices
    if "head" in weights:
        out = z @ weights["head"] + weights["head_bias"]
        k = x.shape[1]
        if not x.shape[2]:
            return out
        return out[:, :k] + HINT * (x * out[:, None, k:]).sum(-1)
    offers = act(x @ weights["offer"] + weights["offer_bias"])
    needs = (z @ weights["need"] + weights["need_bias"])[:, None]
    joint = act(
        (offers * needs) @ weights["match"] + offers @ weights["own"] + weights["joint_bias"]
    )
    return (joint @ weights["score"])[:, :, 0]


class Scorer(nn.Module):
    """The network of a policy.

    Args:
        widths: of its inputs.
        hidden: widths of the layers that read the situation; the last one also that of what is
            made of a choice.
        activation: between layers.
        outputs: how many choices have an output of their own; 0 scores them by their numbers.
        outlook: weight of the prior.
        reader: reads the turns [m, t, u] and their lengths to [m, `reads`], if there are any.
        reads: see there.
        generator: draws the first weights, orthogonal as in PPO's reference implementations.
    """

    def __init__(
        self,
        widths: Widths,
        hidden: Sequence[int],
        activation: Activation,
        outputs: int,
        outlook: float,
        reader: nn.Module | None,
        reads: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.activation, self.outlook, self.reader = activation, outlook, reader
        weights: dict[str, Tensor] = {}

        def layer(name: str, bias: str, rows: int, columns: int, gain: float = 2**0.5) -> None:
            weights[name] = nn.init.orthogonal_(torch.empty(rows, columns), gain, generator)
            if bias:
                weights[bias] = torch.zeros(columns)

        sizes = (widths.context + reads, *hidden)
        for i, (before, after) in enumerate(pairwise(sizes)):
            layer(f"body{i}", f"bias{i}", before, after)
        last = sizes[-1]
        if outputs:
            layer("head", "head_bias", last, outputs + widths.choice, START)
        else:
            layer("offer", "offer_bias", widths.choice, last)
            layer("need", "need_bias", last, last)
            layer("match", "joint_bias", last, last)
            layer("own", "", last, last)
            layer("score", "", last, 1, START)
        self.weights = nn.ParameterDict({name: nn.Parameter(w) for name, w in weights.items()})

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits [m, k]; what is not allowed is up to the caller."""
        if self.reader is not None:
            read = self.reader(inputs.turns, inputs.lengths)
            inputs = inputs._replace(context=torch.cat([inputs.context, read], 1))
        act = torch.tanh if self.activation == "tanh" else torch.relu
        scores: Tensor = score(dict(self.weights.items()), act, inputs)
        return scores if inputs.prior is None else scores + self.outlook * inputs.prior

    def exactly(self) -> Callable[[Encoded], Floats]:
        """The function in double precision, as it is now: what the policy decides by."""
        if self.reader is not None:
            return self._with_turns(copy.deepcopy(self).double())
        weights = {name: w.detach().double().numpy() for name, w in self.weights.items()}
        relu: Callable[[Any], Any] = lambda z: np.maximum(z, 0.0)  # noqa: E731
        act: Callable[[Any], Any] = np.tanh if self.activation == "tanh" else relu

        def run(encoded: Encoded) -> Floats:
            scores = score(weights, act, Inputs(encoded.context, encoded.choices))
            prior = encoded.prior
            result: Floats = scores if prior is None else scores + self.outlook * prior
            return result

        return run

    @staticmethod
    def _with_turns(exact: Scorer) -> Callable[[Encoded], Floats]:
        def run(encoded: Encoded) -> Floats:
            assert encoded.turns is not None
            with serial(), torch.inference_mode():
                result: Floats = exact(tensors(encoded, torch.float64)).numpy()
            return result

        return run


def multilayer(sizes: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers with tanh between them, orthogonal at first."""
    layers: list[nn.Module] = []
    for i, (before, after) in enumerate(pairwise(sizes)):
        with torch.random.fork_rng([]):  # its own first weights come from the global generator
            linear = nn.Linear(before, after)
        last = i == len(sizes) - 2
        nn.init.orthogonal_(linear.weight, 1.0 if last else 2**0.5, generator)
        nn.init.zeros_(linear.bias)
        layers += [linear] if last else [linear, nn.Tanh()]
    return nn.Sequential(*layers)
