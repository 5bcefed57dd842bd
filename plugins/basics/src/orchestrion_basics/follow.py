"""A policy that goes where a router agent says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from attrs import Factory, frozen

from orchestrion import (
    Activation,
    Decision,
    Key,
    OpenContext,
    Policy,
    Situation,
    Turn,
    UsageError,
    choice_name,
    choices,
    did_you_mean,
    is_blocked,
    parse_choice,
)
from orchestrion_basics.policies import STOP, OneByOne


@frozen
class Follow:
    """Starts the router, goes where its output says, and comes back to the router.

    The router's typed output is its turn's `data`: `{"next": "agent"}`, `{"next": "agent",
    "option": "name"}` or `{"next": "stop"}`. Anything else, a failed turn and an agent that the
    task does not allow now are answered with the fallback.

    Args:
        router: the agent that says who is next.
        fallback: "stop", or the choice ("agent" or "agent:option") to start instead.
        after: by agent, the choice that always follows its turn, before the router is asked again.
    """

    router: str
    fallback: str = "stop"
    after: Mapping[str, str] = Factory(dict)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        fallback = None
        if self.fallback != "stop":
            fallback = parse_choice(self.fallback, ctx.roster, f"{ctx.path}.fallback")
        known = {choice_name(choice): choice for choice in choices(ctx.roster)}
        router = next((choice for choice in known.values() if choice.agent == self.router), None)
        if router is None:
            raise UsageError(f"{ctx.path}.router: no agent {self.router!r} in the team")
        agents = [member.name for member in ctx.roster]
        for agent in self.after:
            if agent not in agents or agent == self.router:
                near = did_you_mean(agent, [name for name in agents if name != self.router])
                raise UsageError(f"{ctx.path}.after: {agent!r} is no agent beside the router{near}")
        after = {
            agent: parse_choice(name, ctx.roster, f"{ctx.path}.after.{agent}")
            for agent, name in self.after.items()
        }
        for agent in after:
            if cycle := _cycle(agent, after):
                raise UsageError(
                    f"{ctx.path}.after: {' -> '.join(cycle)} is a cycle, which never comes back to "
                    "the router; remove one of its entries"
                )
        yield _Following(router, fallback, known, after)


@frozen
class _Following(OneByOne):
    router: Activation
    fallback: Activation | None
    known: dict[str, Activation]
    after: dict[str, Activation]

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        last = situation.trajectory.last
        choice: Activation | None = self.router
        following = self.after.get(last.agent) if last is not None else None
        if following is not None and not is_blocked(following, situation.observation):
            return Decision((following,))
        if last is not None and last.agent == self.router.agent:
            wanted = self._wanted(last)
            if wanted == "stop":
                return STOP
            choice = self.known.get(wanted)
        for candidate in (choice, self.fallback):
            if candidate is not None and not is_blocked(candidate, situation.observation):
                return Decision((candidate,))
        return STOP

    def _wanted(self, turn: Turn) -> str:
        data: Any = turn.output.data
        if turn.status != "completed" or not isinstance(data, dict):
            return ""
        name, option = data.get("next"), data.get("option")
        if not isinstance(name, str) or not isinstance(option, str | None):
            return ""
        return name if option is None else f"{name}:{option}"


def _cycle(agent: str, after: Mapping[str, Activation]) -> list[str]:
    """Return the agents of the cycle that an agent starts, itself at both ends; else nothing."""
    path = [agent]
    while (following := after.get(path[-1])) is not None and following.agent not in path[1:]:
        path.append(following.agent)
        if following.agent == agent:
            return path
    return []
