"""The components of a team as the engine runs them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from attrs import frozen

from orchestrion._interfaces import Agent, Calls, Member, Policy, RewardFunction, Task, View
from orchestrion._keys import Key
from orchestrion._records import Output
from orchestrion._threads import in_thread

Act = Callable[[View, Key, Calls], Coroutine[Any, Any, Output]]


@frozen
class Seat:
    """An agent of a team, with all that the engine needs to know about it."""

    name: str  # in the team
    agent: Agent  # opened
    act: Act  # its `act`, as a coroutine function
    options: frozenset[str]  # of which a policy must choose one
    pure: bool  # whether equal views give equal outputs
    memo: Callable[[View], Any] | None  # returns what its output depends on; None means the view


@frozen
class Team:
    """The components that episodes run with."""

    agents: Mapping[str, Agent]
    roster: tuple[Member, ...]
    policy: Policy
    task: Task
    reward: RewardFunction | None


def seats_of(agents: Mapping[str, Agent]) -> dict[str, Seat]:
    """Return seats for agents by name; plain `act` functions run in threads."""
    return {
        name: Seat(
            name=name,
            agent=agent,
            act=_async_act(agent),
            options=frozenset(options_of(agent)),
            pure=bool(getattr(agent, "pure", False)),
            memo=getattr(agent, "memo", None),
        )
        for name, agent in agents.items()
    }


def options_of(agent: Agent) -> tuple[str, ...]:
    """Return an agent's options, in its order."""
    options = getattr(agent, "options", ())
    if isinstance(options, str):
        raise TypeError(f"options is the text {options!r:.80}, not a sequence of texts")
    return tuple(options)


def member_of(name: str, agent: Agent) -> Member:
    """Return an agent as policies and other agents see it."""
    role = getattr(agent, "role", "")
    ends = getattr(agent, "ends", False) is True
    return Member(name, options_of(agent), role if isinstance(role, str) else "", ends)


def _async_act(agent: Agent) -> Act:
    act: Any = agent.act
    if inspect.iscoroutinefunction(act):
        return act  # type: ignore[no-any-return]

    async def act_in_thread(view: View, key: Key, calls: Calls) -> Output:
        result: Any = await in_thread(act, view, key, calls)
        # A plain function may still hand back an awaitable.
        return await result if inspect.isawaitable(result) else result  # type: ignore[no-any-return]

    return act_in_thread
