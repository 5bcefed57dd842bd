"""A learned value: what return to expect, given what the policy saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrion import CheckpointError, Key, Saved
from orchestrion.records import Array
from orchestrion_reinforce.arrays import pack, unpack
from orchestrion_reinforce.gradient import Ints
from orchestrion_reinforce.network import Adam, Floats, Network, Tape, clip_norm

__all__ = ["Value"]

RATE = 0.05
"""Weight of a new iteration in the running mean and deviation of returns."""


class Value:
    """A network whose unit follows the returns, so that their scale does not matter.

    When the running mean or deviation moves, the last layer is changed so that predictions stay
    as they were (PopArt, van Hasselt et al. 2016).

    Args:
        hidden: widths of the hidden layers.
        key: of the first weights.
    """

    def __init__(self, hidden: Sequence[int], key: Key) -> None:
        self._hidden, self._key = tuple(hidden), key
        self._network: Network | None = None
        self._adam = Adam(0)
        self._mean, self._deviation, self._seen = 0.0, 1.0, 0
        self._passed: tuple[Floats, Tape] | None = None
        """The last forward pass, as long as the weights are those it was made with."""

    def predict(self, inputs: Floats) -> Floats:
        """Expected returns [m]."""
        return self._mean + self._deviation * self._pass(inputs).out[:, 0]

    def _pass(self, inputs: Floats) -> Tape:
        if self._passed is None or self._passed[0] is not inputs:
            self._passed = inputs, self._ready(inputs.shape[1]).record(inputs)
        return self._passed[1]

    def rescale(self, returns: Floats) -> None:
        """Follow the mean and deviation of an iteration's returns."""
        mean, deviation = float(returns.mean()), float(returns.std())
        if self._seen:
            mean = self._mean + RATE * (mean - self._mean)
            deviation = self._deviation + RATE * (deviation - self._deviation)
        # Equal returns have no spread to follow; a tiny unit would blow up what comes next.
        deviation = max(deviation, 1e-3 * abs(mean), 1e-6)
        if self._seen and self._network is not None:
            self._passed = None
            weight, bias = self._network.views(self._network.parameters)[-1]
            weight *= self._deviation / deviation
            bias[:] = (self._deviation * bias + self._mean - mean) / deviation
        self._mean, self._deviation, self._seen = mean, deviation, self._seen + 1

    def step(
        self,
        inputs: Floats,
        targets: Floats,
        rate: float,
        limit: float | None,
        rows: Ints | None = None,
    ) -> float:
        """One step towards the targets; their mean squared error before it, in units.

        A gradient that is not finite changes nothing, and gives a NaN.

        Args:
            inputs: [m, width].
            targets: returns [n].
            rate: of Adam.
            limit: on the gradient's norm.
            rows: the input each target belongs to [n]; None if they are in the same order.
        """
        if rows is None:
            rows = np.arange(len(inputs))
        tape = self._pass(inputs)
        network = self._ready(inputs.shape[1])
        error = tape.out[rows, 0] - (targets - self._mean) / self._deviation
        by_input: Floats = np.bincount(rows, error / len(error), len(inputs)).astype(np.float64)
        gradient, norm = clip_norm(network.gradient(tape, by_input[:, None]), limit)
        if not np.isfinite(norm):
            return float("nan")
        self._adam.step(network.parameters, gradient, rate)
        self._passed = None
        return float(np.mean(error * error))

    def _ready(self, width: int) -> Network:
        if self._network is None:
            generator = np.random.Generator(np.random.PCG64(self._key.integer()))
            self._network = Network((width, *self._hidden, 1), "tanh", generator)
            self._adam = Adam(len(self._network.parameters))
        return self._network

    def save(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and data of its state."""
        data = {
            "inputs": None if self._network is None else self._network.widths[0],
            "mean": self._mean,
            "deviation": self._deviation,
            "seen": self._seen,
            "steps": self._adam.steps,
        }
        if self._network is None:
            return {}, data
        arrays = {
            "value.parameters": pack(self._network.parameters),
            "value.first": pack(self._adam.first),
            "value.second": pack(self._adam.second),
        }
        return arrays, data

    def load(self, saved: Saved, data: dict[str, Any], path: str) -> None:
        """Take over a saved state."""
        self._network, self._adam, self._passed = None, Adam(0), None
        self._mean, self._deviation = float(data["mean"]), float(data["deviation"])
        self._seen = int(data["seen"])
        if data["inputs"] is None:
            return
        network = self._ready(int(data["inputs"]))
        shape = network.parameters.shape
        if saved.arrays["value.parameters"].shape != shape:
            raise CheckpointError(
                f"{path}: the saved value network has another shape; give the trainer the "
                "value_hidden it was saved with"
            )
        network.parameters[:] = unpack(saved, "value.parameters", shape, path)
        self._adam.first = unpack(saved, "value.first", shape, path)
        self._adam.second = unpack(saved, "value.second", shape, path)
        self._adam.steps = int(data["steps"])
