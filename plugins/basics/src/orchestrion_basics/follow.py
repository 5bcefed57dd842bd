"""A policy that goes where a router agent says."""

from __future__ import annotations

import logging
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
)
from orchestrion_basics.policies import STOP, OneByOne

_WARNINGS = 5
"""Names that are no choice, of which a policy warns."""


@frozen
class Follow:
    """Starts the router, goes where its output says, and comes back to the router.

    The router's output is its turn's `data`, `{"next": "agent"}`, `{"next": "agent", "option":
    "name"}` or `{"next": "stop"}`, or the same name as its text: "agent", "agent:option" or
    "stop". After anything else, after a failed turn, and in place of a choice that the task does
    not allow now, the fallback is taken.

    Args:
        router: the agent that says who is next.
        fallback: "stop", or the choice ("agent" or "agent:option") to start instead.
        after: by agent, the choice that always follows its turn, or "stop" to end the episode,
            before the router is asked again.
    """

    router: str
    fallback: str = "stop"
    after: Mapping[str, str] = Factory(dict)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Policy]:
        known: dict[str, Activation | None] = {choice_name(c): c for c in choices(ctx.roster)}
        router = next((c for c in known.values() if c is not None and c.agent == self.router), None)
        if router is None:
            raise UsageError(f"{ctx.path}.router: no agent {self.router!r} in the team")
        known["stop"] = None
        agents = [member.name for member in ctx.roster if member.name != self.router]
        for agent in self.after:
            if agent not in agents:
                near = did_you_mean(agent, agents)
                raise UsageError(f"{ctx.path}.after: {agent!r} is no agent beside the router{near}")
        for path, name in (
            ("fallback", self.fallback),
            *((f"after.{agent}", name) for agent, name in self.after.items()),
        ):
            if name not in known:
                raise UsageError(
                    f"{ctx.path}.{path}: {name!r} is not a choice of this team"
                    f"{did_you_mean(name, known)}; its choices: {', '.join(known)}"
                )
        after = {agent: known[name] for agent, name in self.after.items()}
        for agent in after:
            if cycle := _cycle(agent, after):
                raise UsageError(
                    f"{ctx.path}.after: {' -> '.join(cycle)} is a cycle, which never comes back to "
                    "the router; remove one of its entries"
                )
        yield _Following(ctx.path, router, self.fallback, known, after)


@frozen
class _Following(OneByOne):
    path: str
    router: Activation
    fallback: str
    known: dict[str, Activation | None]
    after: dict[str, Activation | None]
    warned: set[str] = Factory(set)

    def decide_one(self, situation: Situation, key: Key) -> Decision:
        last = situation.trajectory.last
        choice: Activation | None = self.router
        if last is not None and last.agent in self.after:
            following = self.after[last.agent]
            if following is None:
                return STOP
            if not is_blocked(following, situation.observation):
                return Decision((following,))
        elif last is not None and last.agent == self.router.agent:
            wanted = self._wanted(last)
            if wanted not in self.known:
                self._warn(last, wanted)
                wanted = self.fallback
            choice = self.known[wanted]
        for candidate in (choice, self.known[self.fallback]):
            if candidate is None:
                break
            if not is_blocked(candidate, situation.observation):
                return Decision((candidate,))
        return STOP

    def _wanted(self, turn: Turn) -> str:
        """Return the name that the router gave; empty if it gave none."""
        data: Any = turn.output.data
        if turn.status != "completed":
            return ""
        if not isinstance(data, dict):
            return turn.output.content.strip()
        name, option = data.get("next"), data.get("option")
        if not isinstance(name, str) or not isinstance(option, str | None):
            return ""
        return name if option is None else f"{name}:{option}"

    def _warn(self, turn: Turn, wanted: str) -> None:
        if turn.status != "completed" or wanted in self.warned or len(self.warned) >= _WARNINGS:
            return
        self.warned.add(wanted)
        named = (
            f"named {wanted[:100]!r}, which is not a choice of this team"
            if wanted
            else ("named nobody; it has to return data such as {'next': 'agent'}")
        )
        logging.getLogger("orchestrion_basics").warning(
            "%s: the router %r %s%s; the fallback is taken: %s",
            self.path,
            self.router.agent,
            named,
            did_you_mean(wanted, self.known),
            self.fallback,
        )


def _cycle(agent: str, after: Mapping[str, Activation | None]) -> list[str]:
    """Return the agents of the cycle that an agent starts, itself at both ends; else nothing."""
    path = [agent]
    while (following := after.get(path[-1])) is not None and following.agent not in path[1:]:
        path.append(following.agent)
        if following.agent == agent:
            return path
    return []
