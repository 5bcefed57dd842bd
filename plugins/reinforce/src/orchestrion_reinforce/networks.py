"""The network of the policy `neural`: what scores the choices in a situation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from orchestrion_encoders.interfaces import Encoded
from orchestrion_encoders.tensors import Inputs, serial, tensors
from torch import Tensor, nn

if TYPE_CHECKING:
    from orchestrion_reinforce.neural import Neural

__all__ = ["Scorer"]

Floats = NDArray[np.float64]

HINT = 16.0
"""What numbers of choices are multiplied by, so that their weights need not grow as far."""
START = 0.01
"""Scale of the last layer's first weights: all choices are almost equally likely at first."""


class Scorer(nn.Module):
    """Layers that read the situation, and a last one that weighs what is known of each choice.

    Args:
        settings: of the policy.
        context: how many numbers describe a situation.
        choice: how many describe each choice.
        outputs: how many choices have an output of their own; 0 scores all by their numbers.
        reader: reads the turns [m, t, u] and their lengths to [m, `reads`], if there are any.
        reads: see there.
        generator: draws the first weights, orthogonal as in PPO's reference implementations.
    """

    def __init__(
        self,
        settings: Neural,
        context: int,
        choice: int,
        outputs: int,
        reader: nn.Module | None,
        reads: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.activation, self.outlook = settings.activation, settings.outlook
        self.reader = reader
        weights: dict[str, nn.Parameter] = {}

        def layer(name: str, bias: str, rows: int, columns: int, gain: float) -> None:
            first = nn.init.orthogonal_(torch.empty(rows, columns), gain, generator)
            weights[name], weights[bias] = nn.Parameter(first), nn.Parameter(torch.zeros(columns))

        sizes: Sequence[int] = (context + reads, *settings.hidden)
        for i, (before, after) in enumerate(pairwise(sizes)):
            layer(f"body{i}", f"bias{i}", before, after, 2**0.5)
        layer("head", "head_bias", sizes[-1], outputs + choice, START)
        self.weights = nn.ParameterDict(weights)

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits [m, k]; what is not allowed is up to the caller."""
        if self.reader is not None:
            read = self.reader(inputs.turns, inputs.lengths)
            inputs = inputs._replace(context=torch.cat([inputs.context, read], 1))
        scores: Tensor = self._score(dict(self.weights.items()), torch.tanh, inputs)
        return scores

    def exactly(self) -> Callable[[Encoded], Floats]:
        """The function in double precision, as it is now: what the policy decides by.

        On arrays where it can be: for one situation that is four times as fast as on tensors.
        """
        if self.reader is not None:
            exact = copy.deepcopy(self).double()

            def read(encoded: Encoded) -> Floats:
                with serial(), torch.inference_mode():
                    result: Floats = exact(tensors(encoded, torch.float64)).numpy()
                return result

            return read
        weights = {name: w.detach().double().numpy() for name, w in self.weights.items()}
        return lambda encoded: self._score(
            weights, np.tanh, Inputs(encoded.context, encoded.choices, encoded.prior)
        )

    def _score(self, weights: Mapping[str, Any], tanh: Callable[[Any], Any], inputs: Inputs) -> Any:
        """Scores [m, k], of tensors and arrays alike.

        A choice's numbers are weighed by outputs of the network: what is learned of a number, in a
        situation, holds for all choices alike, also for ones that were never seen. Linear in them,
        so that there is little to learn the few agents of one team by heart with. If choices have
        places, each also has an output of its own.
        """
        z, layer = inputs.context, 0
        while f"body{layer}" in weights:
            z = z @ weights[f"body{layer}"] + weights[f"bias{layer}"]
            z, layer = tanh(z) if self.activation == "tanh" else z.clip(0), layer + 1
        out, x = z @ weights["head"] + weights["head_bias"], inputs.choices
        own = out.shape[1] - x.shape[2]
        scores = out
        if x.shape[2]:
            scores = HINT * (x * out[:, None, own:]).sum(-1)
            if own:
                scores = out[:, :own] + scores
        return scores if inputs.prior is None else scores + self.outlook * inputs.prior
