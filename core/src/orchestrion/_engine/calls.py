"""The call path as the code of one activation, verifier or reward function sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrion._engine.attempts import Call
from orchestrion._engine.attempts import RetrySettings as RetrySettings
from orchestrion._engine.callpath import CallPath as CallPath
from orchestrion._engine.recording import Recorded as Recorded
from orchestrion._engine.reuse import digest
from orchestrion._errors import RunError
from orchestrion._interfaces import Agent, Answer, Policy, Request, View
from orchestrion._keys import Key
from orchestrion._records import JSON, NO_USAGE, Trajectory, Usage

if TYPE_CHECKING:
    from orchestrion._engine.episode import Engine


class ActivationCalls:
    """The call path as one activation, verifier or reward function sees it (`Calls`).

    Its calls are named by `scope`, or else by `key`. `who` is the caller in reports, `label` for
    people who watch, `episode` the name that nested teams get. Handles may share the list `made`.
    """

    __slots__ = (
        "_engine",
        "_key",
        "_latest",
        "_next",
        "episode",
        "label",
        "made",
        "scope",
        "used",
        "who",
    )

    def __init__(
        self,
        engine: Engine,
        key: Key,
        scope: str = "",
        who: str = "",
        label: str | None = None,
        episode: str = "",
        made: list[str] | None = None,
    ) -> None:
        self._engine, self._key, self.scope = engine, key, scope
        self.who, self.label, self.episode = who, label, episode
        self._next = 0
        self._latest: Call | None = None
        self.used = NO_USAGE
        """Usage of all calls through this handle so far."""
        self.made: list[str] = [] if made is None else made
        """Names of the calls, in order."""

    @property
    def watched(self) -> bool:
        return self._engine.viewer is not None

    def show(self, text: str) -> None:
        if self._engine.viewer is not None:
            self._engine.viewer(self.label or self.who, text)

    async def run(
        self, request: Request, do: Callable[[], Awaitable[Answer]], reserve: Usage = NO_USAGE
    ) -> Answer:
        # Taken before the first await: calls are numbered in the order they are made.
        index, self._next = self._next, self._next + 1
        place = f"{self.scope or self._key.hex()}/{index}"
        engine = self._engine
        call = Call.at(place, request, do, reserve, self.who, engine.stage)
        self.made.append(call.name)
        self._latest = call
        answer = await engine.calls.run(call)
        self._latest = None
        self.used = self.used + answer.usage
        return answer

    def trouble(self) -> str:
        """Return why the latest call is still tried, as the end of a message; "" if it is not."""
        call = self._latest
        if call is None or not call.error:
            return ""
        return f"; attempt {call.failures} at its last call failed: {call.error}"

    async def reuse(self, content: JSON, do: Callable[[], Awaitable[Any]]) -> Any:
        return await self._engine.calls.reuse.get(digest(content), do)

    async def team(
        self,
        view: View,
        key: Key,
        members: Mapping[str, Agent],
        policy: Policy,
        turns: int | None = None,
    ) -> Trajectory:
        trajectory, error = await self._engine.nested(self, view, key, members, policy, turns)
        for turn in trajectory.turns:
            self.used = self.used + turn.usage
        if error:
            raise RunError(error)
        return trajectory
