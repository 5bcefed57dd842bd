"""A learned value of what an agent was asked, for `gae`: one linear readout an agent.

It reads the last layer of the agent's own model before the first token of the response, which is
not trained by it, and is fitted in closed form to what came of earlier iterations: ridge
regression, so that there is nothing to tune and no step to diverge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from orchestrion_local.interfaces import Trainable

from orchestrion import Array, Saved
from orchestrion_marl.calls import Call
from orchestrion_marl.rows import Floats
from orchestrion_marl.updating import micro_batches

__all__ = ["Critic"]

RIDGE = 1.0
MEMORY = 0.9
"""Share of what was seen before that counts after an iteration."""


class Critic:
    """Values by agent.

    Args:
        agents: names of the team.
    """

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents = tuple(agents)
        self._products: dict[str, Floats] = {}
        """Sums of x x' and x y by agent, as one array of width + 1 rows and width + 2 columns."""

    def values(self, calls: Sequence[Call], models: Mapping[str, Trainable], most: int) -> Floats:
        """Of each call, by what was learned before, shape [B]; then learn from these."""
        values = np.zeros(len(calls))
        seen: dict[str, tuple[list[int], list[Floats]]] = {}
        for name, model in models.items():
            places = [i for i, call in enumerate(calls) if call.generation.model == name]
            for place, state in zip(places, _states(model, calls, places, most), strict=True):
                kept = seen.setdefault(calls[place].agent, ([], []))
                kept[0].append(place)
                kept[1].append(np.append(state, 1.0))
        for agent, (places, states) in seen.items():
            x = np.stack(states)
            y = np.array([calls[i].outcome for i in places])
            weights = self._weights(agent, x.shape[1])
            values[places] = x @ weights if weights is not None else y.mean()
            self._learn(agent, x, y)
        return values

    def _weights(self, agent: str, width: int) -> Floats | None:
        products = self._products.get(agent)
        if products is None or products.shape != (width, width + 1):
            return None
        solved = np.linalg.solve(products[:, :width] + RIDGE * np.eye(width), products[:, width])
        return np.asarray(solved, np.float64)

    def _learn(self, agent: str, x: Floats, y: Floats) -> None:
        fresh = np.concatenate((x.T @ x, (x.T @ y)[:, None]), axis=1)
        before = self._products.get(agent)
        known = before is not None and before.shape == fresh.shape
        self._products[agent] = fresh + (MEMORY * before if known and before is not None else 0.0)

    def save(self) -> Saved:
        """What was learned."""
        arrays = {
            f"critic/{agent}": Array("F64", one.shape, np.ascontiguousarray(one, "<f8").tobytes())
            for agent, one in self._products.items()
        }
        return Saved(arrays, sorted(self._products))

    def load(self, saved: Saved) -> None:
        """See `Stateful.load`."""
        self._products = {}
        for agent in saved.data:
            array = saved.arrays[f"critic/{agent}"]
            flat = np.frombuffer(array.data, "<f8").astype(np.float64)
            self._products[agent] = flat.reshape(array.shape)


@torch.no_grad()
def _states(
    model: Trainable, calls: Sequence[Call], places: Sequence[int], most: int
) -> list[Floats]:
    found: list[Floats] = [np.zeros(0)] * len(places)
    said = [calls[i].generation for i in places]
    sizes = np.array([len(one.prompt) + len(one.response) for one in said], np.int64)
    for chosen in micro_batches(sizes, most):
        hidden = model.score([said[i] for i in chosen], hidden=True).hidden
        assert hidden is not None
        for i, row in zip(chosen, hidden.double().cpu().numpy(), strict=True):
            found[i] = row
    return found
