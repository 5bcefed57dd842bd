"""What a situation is worth, as `ppo` learns it, and the optimiser of both of its networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from orchestrion_encoders.tensors import generator_of, pack, unpack
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, skip_init, vector_to_parameters

from orchestrion import Array, Key, Saved

__all__ = ["Adam", "Value"]

Floats = NDArray[np.float64]

RATE = 0.05
"""Weight of a new iteration in the running mean and deviation of returns."""


class Adam:
    """Adam (Kingma and Ba 2015) for all weights of a module as one vector, with saved moments.

    `torch.optim` loads the compiler's front end, which takes as long as torch itself.
    """

    def __init__(self, name: str) -> None:
        self.name, self.steps = name, 0
        self._moments = torch.zeros(2, 0)

    def step(self, module: nn.Module, loss: Tensor, rate: float, limit: float | None) -> float:
        """One step; the gradient's norm before limiting. One that is not finite changes nothing."""
        weights = [*module.parameters()]
        gradient = parameters_to_vector(torch.autograd.grad(loss, weights))
        norm = float(gradient.norm())
        if not np.isfinite(norm):
            return norm
        if limit is not None and norm > limit:
            gradient *= limit / norm
        if not self.steps:
            self._moments = torch.zeros(2, len(gradient))
        self.steps += 1
        first, second = self._moments
        first.mul_(0.9).add_(0.1 * gradient)
        second.mul_(0.999).add_(0.001 * gradient.square())
        # 1e-5 instead of 1e-8: near-zero second moments must not turn noise into steps.
        scale = (second / (1 - 0.999**self.steps)).sqrt_().add_(1e-5)
        with torch.no_grad():
            change = (rate / (1 - 0.9**self.steps)) * first / scale
            vector_to_parameters(parameters_to_vector(weights) - change, weights)
        return norm

    def save(self) -> dict[str, Array]:
        """The moments."""
        return {f"{self.name}.moments": pack(self._moments)}

    def load(self, saved: Saved, steps: int, path: str) -> None:
        """Take over saved moments after this many steps."""
        name = f"{self.name}.moments"
        shape = saved.arrays[name].shape if name in saved.arrays else (2, 0)
        self._moments, self.steps = unpack(saved, name, torch.zeros(shape), path), int(steps)


class Value:
    """A network whose unit follows the returns, so that their scale does not matter.

    When the running mean or deviation moves, the last layer is changed so that predictions stay
    as they were (PopArt).
    """

    def __init__(self, hidden: Sequence[int], key: Key) -> None:
        self._hidden, self._key = tuple(hidden), key
        self.network: nn.Sequential = nn.Sequential()
        """Without layers until the first iteration has shown how many numbers it reads."""
        self.optimizer = Adam("value")
        self._mean, self._deviation = 0.0, 1.0

    def predict(self, seen: Tensor) -> Floats:
        """Expected returns [m]."""
        with torch.no_grad():
            units: Floats = self.network(seen)[:, 0].double().numpy()
        return self._mean + self._deviation * units

    def error(self, seen: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
        """The mean squared error in units, for targets [n] of the inputs `rows` [n]."""
        units = ((targets - self._mean) / self._deviation).float()
        result: Tensor = ((self.network(seen)[:, 0][rows] - units) ** 2).mean()
        return result

    def step(self, error: Tensor, rate: float, limit: float | None) -> float:
        """A step of its optimiser; see `Adam.step`."""
        return self.optimizer.step(self.network, error, rate, limit)

    def rescale(self, width: int, returns: Floats) -> None:
        """Follow the mean and deviation of an iteration's returns."""
        mean, deviation = float(returns.mean()), float(returns.std())
        known = len(self.network) > 0
        if known:
            mean = self._mean + RATE * (mean - self._mean)
            deviation = self._deviation + RATE * (deviation - self._deviation)
        # Equal returns have no spread to follow; a tiny unit would blow up what comes next.
        deviation = max(deviation, 1e-3 * abs(mean), 1e-6)
        if known:
            last: Any = self.network[-1]
            with torch.no_grad():
                last.weight *= self._deviation / deviation
                last.bias.mul_(self._deviation).add_(self._mean - mean).div_(deviation)
        else:
            self._build(width)
        self._mean, self._deviation = mean, deviation

    def _build(self, width: int) -> None:
        layers: list[nn.Module] = []
        generator, gains = generator_of(self._key), [2**0.5] * len(self._hidden) + [1.0]
        sizes = pairwise((width, *self._hidden, 1))
        for (before, after), gain in zip(sizes, gains, strict=True):
            # Leaves torch's own generator alone.
            linear = skip_init(nn.Linear, before, after)  # type: ignore[no-untyped-call]
            nn.init.orthogonal_(linear.weight, gain, generator)
            nn.init.zeros_(linear.bias)
            layers += [linear, nn.Tanh()]
        self.network = nn.Sequential(*layers[:-1])

    def save(self) -> Saved:
        """Its state."""
        width = self.network[0].in_features if len(self.network) else None
        arrays = {f"value.{n}": pack(p) for n, p in self.network.named_parameters()}
        data = {"inputs": width, "mean": self._mean, "deviation": self._deviation}
        return Saved({**arrays, **self.optimizer.save()}, {**data, "steps": self.optimizer.steps})

    def load(self, saved: Saved, path: str) -> None:
        """Take over a saved state."""
        data: Any = saved.data
        self.network = nn.Sequential()
        self._mean, self._deviation = float(data["mean"]), float(data["deviation"])
        self.optimizer.load(saved, data["steps"], path)
        if data["inputs"] is not None:
            self._build(int(data["inputs"]))
            for name, parameter in self.network.named_parameters():
                parameter.data = unpack(saved, f"value.{name}", parameter, path)
