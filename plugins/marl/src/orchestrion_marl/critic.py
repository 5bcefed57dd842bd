"""The values of the estimator `gae`."""

from __future__ import annotations

import numpy as np

from orchestrion import Array, Saved
from orchestrion_marl.advantages import Floats

RIDGE = 1.0
"""Added to the squared features of the value regression."""
MEMORY = 0.9
"""Share of earlier iterations that the value regression keeps."""


class Critic:
    """Value of an agent's prompt: a ridge regression of rewards for each agent.

    Its features are the last layer of the agent's own model before the first token of the
    response, which it does not train. It is solved in closed form from the calls of earlier
    iterations, so that it has no learning rate and cannot diverge.
    """

    def __init__(self) -> None:
        self._products: dict[str, Floats] = {}
        """Sums of x x' and x y by agent, one array of shape [width, width + 1]."""

    def values(self, agent: str, x: Floats, y: Floats) -> Floats:
        """Return the values of prompts with features x, shape [B]; then learn the rewards y.

        Without earlier calls all values are the mean of y.
        """
        fresh = np.concatenate((x.T @ x, (x.T @ y)[:, None]), axis=1)
        before = self._products.get(agent)
        if before is None or before.shape != fresh.shape:
            self._products[agent] = fresh
            return np.full(len(y), y.mean())
        width = x.shape[1]
        weights = np.linalg.solve(before[:, :width] + RIDGE * np.eye(width), before[:, width])
        self._products[agent] = fresh + MEMORY * before
        return np.asarray(x @ weights, np.float64)

    def save(self) -> Saved:
        """Return the sums that were learned."""
        arrays = {
            f"critic/{agent}": Array("F64", sums.shape, np.ascontiguousarray(sums, "<f8").tobytes())
            for agent, sums in self._products.items()
        }
        return Saved(arrays, sorted(self._products))

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        self._products = {}
        for agent in saved.data:
            array = saved.arrays[f"critic/{agent}"]
            flat = np.frombuffer(array.data, "<f8").astype(np.float64)
            self._products[agent] = flat.reshape(array.shape)
