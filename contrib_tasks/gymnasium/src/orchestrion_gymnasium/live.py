"""Environments that change in place, behind immutable states.

The states of a task are immutable and shared by forks; an environment of Gymnasium or PettingZoo
changes in place. `Live` keeps each environment with its current state. The first step from that
state takes the environment; another step from the same state gets a new environment in which all
actions since the seed are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, finalize

State = TypeVar("State")
Environment = TypeVar("Environment")


class Live(Generic[State, Environment]):
    """Environments by their current state; those of deleted states are closed.

    Args:
        replay: makes an environment in a given state, by seed and actions.
        close: closes an environment.
    """

    def __init__(
        self, replay: Callable[[State], Environment], close: Callable[[Environment], object]
    ) -> None:
        self._replay, self._close = replay, close
        self._at: WeakKeyDictionary[State, finalize[[Environment], State]] = WeakKeyDictionary()

    def take(self, state: State) -> Environment:
        """Return an environment in this state, which the caller may change."""
        closing = self._at.pop(state, None)
        held = None if closing is None else closing.detach()
        if held is None:
            return self._replay(state)
        environment: Environment = held[2][0]
        return environment

    def keep(self, state: State, environment: Environment) -> None:
        """Keep an environment for the next step from this state."""
        self._at[state] = finalize(state, self._close, environment)

    def close(self) -> None:
        """Close all environments."""
        for closing in list(self._at.values()):
            closing()
