"""Backward induction over what is known: by means, and by what may be hoped for."""

from __future__ import annotations

import numpy as np

from orchestrion_values.optimism.dynamics import Dynamics
from orchestrion_values.optimism.seen import Floats, Mask

__all__ = ["optimistic", "plain"]


def optimistic(model: Dynamics, known: float, bonus: float) -> Floats:
    """Values [t, s, k] where what is hardly known counts as the best possible.

    Args:
        model: what is believed.
        known: tries that an estimate must be worth not to count as the best possible.
        bonus: added to others, over the square root of the tries, as a share of the difference
            between the best and the worst end.
    """
    scale = bonus * (model.high - model.low)
    more = scale / np.sqrt(np.maximum(model.known, 1e-9))
    last = model.last + scale / np.sqrt(np.maximum(model.last_known, 1e-9))
    last = np.where(model.last_known < known, model.high, np.minimum(model.high, last))
    return _values(model, more, model.known < known, last, model.high)


def plain(model: Dynamics) -> Floats:
    """Values [t, s, k] by means alone; what was never tried or seen is worth the least."""
    shape = model.known.shape
    never = np.broadcast_to(~model.tried, shape)
    return _values(model, np.zeros(shape), never, model.last, model.low)


def _values(model: Dynamics, more: Floats, unknown: Mask, last: Floats, guess: float) -> Floats:
    """Values [t, s, k]; -inf where a choice is not allowed.

    Args:
        model: what is believed.
        more: added to the value of each choice [s, k].
        unknown: choices that are worth `guess` [s, k].
        last: what the end pays in each state where the episode is over by itself [s].
        guess: what a state is worth that was never seen.
    """
    horizon, s, k = model.states.allowed.shape
    result = np.empty((horizon, s, k))
    row, to, chance = model.moves
    ahead = np.append(last, guess)
    for t in range(horizon - 1, -1, -1):
        values = model.reward + np.bincount(row, chance * ahead[to], s * k).reshape(s, k) + more
        np.minimum(values, model.high, out=values)
        values[unknown] = guess
        values[~model.states.allowed[t]] = -np.inf
        result[t] = values
        best = values.max(axis=1)
        # Where nothing is known to be allowed, as nobody was there at that time: as if it ended.
        ahead = np.append(np.where(np.isfinite(best), best, last), guess)
    return result
