"""Convert observations and actions of spaces for agents, policies and records."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from orchestrion import JSON, RunError, UsageError

WIDEST = 10_000
"""The most numbers of one observation; one with more is mostly a picture."""
UNBOUNDED = 1e6
"""Larger bounds do not show the size of usual values."""
LISTED = 20
"""The most elements of an array whose bounds are written in words."""


def plain(value: Any) -> JSON:
    """Return an observation or an action as JSON: arrays as lists, by exactly their values.

    Raises:
        TypeError: it has a part that is not JSON.
    """
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


class Features:
    """Converts observations of a space to numbers from -1 to 1, for learned policies.

    Bounded numbers are scaled by their bounds, other numbers x become x / (1 + |x|), and discrete
    values are one-hot.

    Raises:
        UsageError: the number of numbers is not fixed, or too large.
    """

    def __init__(self, space: spaces.Space[Any], where: str) -> None:
        flat = spaces.flatten_space(space) if space.is_np_flattenable else None
        if not isinstance(flat, spaces.Box) or len(flat.shape) != 1 or flat.shape[0] > WIDEST:
            raise UsageError(
                f"{where}: observations of {space} cannot be features: want at most {WIDEST} "
                "numbers, always equally many; register the environment with a wrapper that "
                "observes less, such as gymnasium.wrappers.TransformObservation"
            )
        low, high = flat.low.astype(float), flat.high.astype(float)
        self._space, self.width = space, int(flat.shape[0])
        self._kinds = (low == 0) & (high == 1)
        self._bounded = (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED) & (low < high)
        low, high = np.where(self._bounded, low, -1.0), np.where(self._bounded, high, 1.0)
        self._middle, self._half = (low + high) / 2, (high - low) / 2

    def __call__(self, observation: Any) -> tuple[float, ...]:
        """Return the features of an observation."""
        flat = np.asarray(spaces.flatten(self._space, observation), dtype=float)
        moved = (flat - self._middle) / self._half
        with np.errstate(invalid="ignore"):
            squashed = np.where(np.isinf(flat), np.sign(flat), flat / (1 + np.abs(flat)))
        features = np.where(self._kinds, flat, np.where(self._bounded, moved, squashed))
        if np.isnan(features).any():
            raise RunError(f"the environment observed what is not a number: {observation!r:.200}")
        return tuple(np.clip(features, -1.0, 1.0).tolist())


def described(space: spaces.Space[Any]) -> dict[str, JSON]:
    """Return a description of the actions, as JSON for agents.

    Raises:
        UsageError: such actions cannot be written as JSON.
    """
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "start": int(space.start), "n": int(space.n)}
    if isinstance(space, spaces.Box):
        whole = bool(np.issubdtype(space.dtype, np.integer))
        low, high = _finite(plain(space.low)), _finite(plain(space.high))
        return {"kind": "box", "low": low, "high": high, "whole": whole}
    if isinstance(space, spaces.MultiDiscrete):
        last = space.start + space.nvec - 1
        return {"kind": "box", "low": plain(space.start), "high": plain(last), "whole": True}
    if isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape, int), np.ones(space.shape, int)
        return {"kind": "box", "low": plain(low), "high": plain(high), "whole": True}
    if isinstance(space, spaces.Tuple):
        return {"kind": "list", "parts": [described(part) for part in space.spaces]}
    if isinstance(space, spaces.Dict):
        return {"kind": "object", "parts": {n: described(s) for n, s in space.spaces.items()}}
    raise UsageError(f"actions of {space} cannot be written by agents; wrap the environment")


def _finite(bound: Any) -> JSON:
    """Return bounds with None for infinite ones."""
    if isinstance(bound, list):
        return [_finite(part) for part in bound]
    return bound if math.isfinite(bound) else None


def in_words(space: spaces.Space[Any]) -> str:
    """Return a description of the actions in words, for people and models."""
    if isinstance(space, spaces.Discrete):
        return f"a whole number from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.Tuple):
        return "a list of: " + "; ".join(in_words(part) for part in space.spaces)
    if isinstance(space, spaces.Dict):
        parts = (f'"{name}": {in_words(part)}' for name, part in space.spaces.items())
        return "an object with " + "; ".join(parts)
    bounds = described(space)
    shape = "x".join(map(str, space.shape or ()))
    what = "whole numbers" if bounds["whole"] else "numbers"
    few = np.size(bounds["low"]) <= LISTED
    within = f" from {json.dumps(bounds['low'])} to {json.dumps(bounds['high'])}" if few else ""
    return f"a list of {what} of shape {shape}{within}" if shape else f"a number{within}"


def to_action(space: spaces.Space[Any], value: Any) -> Any:
    """Return an agent's JSON value as an action of a space.

    Raises:
        ValueError: it is not an action of the space.
    """
    try:
        action = _action(space, value)
    except (TypeError, ValueError, OverflowError, KeyError):
        action = None
    if action is None or not space.contains(action):
        raise ValueError(f"want {in_words(space)}; got {value!r:.80}")
    return action


def _action(space: spaces.Space[Any], value: Any) -> Any:
    """Return a value in the types of a space; return None or raise if it has another form."""
    if isinstance(space, spaces.Discrete):
        return None if isinstance(value, bool) or int(value) != value else np.int64(value)
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, list | tuple) or len(value) != len(space.spaces):
            return None
        return tuple(_action(*pair) for pair in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            return None
        return {name: _action(part, value[name]) for name, part in space.spaces.items()}
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.shape != space.shape:
        return None
    typed = array.astype(space.dtype)
    # Only rounding to the precision of the type may change the number.
    return typed if np.allclose(typed, array) else None
