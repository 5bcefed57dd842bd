"""The values of the estimator `gae`."""

from __future__ import annotations

import numpy as np

from orchestrion import Array, Saved
from orchestrion_marl.rows import Floats

RIDGE = 1.0
"""Added to the squared features of the value regression."""
MEMORY = 0.9
"""Share of earlier iterations that the value regression keeps."""


class Critic:
    """Value of an agent's prompt, or before each of its tokens: a ridge regression of rewards.

    Each agent has its own. Its features are the last layer of the agent's own model before the
    first token of the response, or before each, which it does not train. It is solved in closed
    form from the calls of earlier iterations, so that it has no learning rate and cannot diverge.
    """

    def __init__(self) -> None:
        self._products: dict[str, Floats] = {}
        """Sums of x x' and x y by agent, one array of shape [width, width + 1]."""
        self._fresh: dict[str, Floats] = {}
        """The same of what `values` was given since the last `learn`."""
        self._weights: dict[str, Floats] = {}
        """Of the regression, shape [width], by agent; computed from the sums when needed."""

    def values(self, agent: str, states: Floats, reward: float) -> Floats | None:
        """Return the values of states of one call, shape [n]; note them and its reward.

        None if there were no calls of the agent in earlier iterations.

        Args:
            agent: name of the agent.
            states: shape [n, width].
            reward: of the call.
        """
        x = np.concatenate((states, np.ones((len(states), 1))), axis=1)
        y = np.full((len(x), 1), reward)
        sums = x.T @ np.concatenate((x, y), axis=1)
        self._fresh[agent] = self._fresh[agent] + sums if agent in self._fresh else sums
        before = self._products.get(agent)
        if before is None or before.shape != sums.shape:
            return None
        if agent not in self._weights:
            width = x.shape[1]
            squares = before[:, :width] + RIDGE * np.eye(width)
            self._weights[agent] = np.asarray(
                np.linalg.solve(squares, before[:, width]), np.float64
            )
        return np.asarray(x @ self._weights[agent], np.float64)

    def learn(self) -> None:
        """Learn from what was noted."""
        for agent, fresh in self._fresh.items():
            before = self._products.get(agent)
            if before is not None and before.shape == fresh.shape:
                fresh = fresh + MEMORY * before
            self._products[agent] = fresh
        self._fresh, self._weights = {}, {}

    def save(self) -> Saved:
        """Return the sums that were learned."""
        arrays = {
            f"critic/{agent}": Array("F64", sums.shape, np.ascontiguousarray(sums, "<f8").tobytes())
            for agent, sums in self._products.items()
        }
        return Saved(arrays, sorted(self._products))

    def load(self, saved: Saved) -> None:
        self._products, self._fresh, self._weights = {}, {}, {}
        for agent in saved.data:
            array = saved.arrays[f"critic/{agent}"]
            flat = np.frombuffer(array.data, "<f8").astype(np.float64)
            self._products[agent] = flat.reshape(array.shape)
