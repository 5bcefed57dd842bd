"""Environments with state of their own, behind states that never change.

A task's states are immutable and shared by forks; an environment of Gymnasium or PettingZoo
changes in place. `Live` keeps an environment beside the one state at which it is. Whoever goes
on from that state takes it along; whoever goes on from a state that another fork left, gets a
fresh environment on which all actions since the seed were done again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, finalize

State = TypeVar("State")
Environment = TypeVar("Environment")


class Live(Generic[State, Environment]):
    """Environments by the state at which each is; those of forgotten states are closed.

    Args:
        replay: makes an environment that is at a state, by seed and actions.
        close: closes one.
    """

    def __init__(
        self, replay: Callable[[State], Environment], close: Callable[[Environment], object]
    ) -> None:
        self._replay, self._close = replay, close
        self._at: WeakKeyDictionary[State, finalize[[Environment], State]] = WeakKeyDictionary()

    def take(self, state: State) -> Environment:
        """Return an environment at this state; it is the caller's to go on with."""
        closing = self._at.pop(state, None)
        held = None if closing is None else closing.detach()
        if held is None:
            return self._replay(state)
        environment: Environment = held[2][0]
        return environment

    def keep(self, state: State, environment: Environment) -> None:
        """Keep an environment for whoever goes on from this state."""
        self._at[state] = finalize(state, self._close, environment)

    def close(self) -> None:
        """Close all environments."""
        for closing in list(self._at.values()):
            closing()
