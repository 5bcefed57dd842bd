"""Backward induction over what is known: by means, and by what may be hoped for."""

from __future__ import annotations

import numpy as np

from orchestrion_values.optimism.dynamics import Dynamics
from orchestrion_values.optimism.seen import Floats

__all__ = ["optimistic", "plain"]


def optimistic(model: Dynamics, known: float, bonus: float) -> Floats:
    """Values [t, s, k] where what is hardly known counts as the best possible.

    Args:
        model: what is believed.
        known: tries that an estimate must be worth not to count as the best possible.
        bonus: added to others, in spreads, over the square root of the tries.
    """
    extra = bonus * model.spread / np.sqrt(np.maximum(model.known, 1e-9))
    last = np.where(
        model.last_known < known,
        model.high,
        np.minimum(
            model.high,
            model.last + bonus * model.spread / np.sqrt(np.maximum(model.last_known, 1e-9)),
        ),
    )
    return _values(model, extra, model.known < known, last, model.high)


def plain(model: Dynamics, doubt: float = 0.0) -> Floats:
    """Values [t, s, k] by means alone; what was never seen is worth the least."""
    extra = -doubt * model.spread / np.sqrt(np.maximum(model.known, 1e-9))
    return _values(model, extra, np.zeros(model.known.shape, np.bool_), model.last, model.low)


def _values(model: Dynamics, extra: Floats, unknown, last: Floats, never: float) -> Floats:
    states = model.states
    horizon, s, k = states.allowed.shape
    result = np.empty((horizon, s, k))
    ahead = np.append(last, never)
    for t in range(horizon - 1, -1, -1):
        values = model.reward + (model.to @ ahead).reshape(s, k) + extra
        np.minimum(values, model.high, out=values)
        values[unknown] = model.high
        values[~states.allowed[t]] = -np.inf
        result[t] = values
        best = values.max(axis=1)
        # Where nothing is allowed, as where nobody has ever been at that time.
        ahead = np.append(np.where(np.isfinite(best), best, last), never)
    return result
