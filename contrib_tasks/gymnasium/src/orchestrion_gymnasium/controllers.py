"""Controllers: agents whose output is an action of an environment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from attrs import Attribute, field, frozen

from orchestrion import (
    JSON,
    Agent,
    Calls,
    Key,
    Meta,
    OpenContext,
    Output,
    Usage,
    View,
    load_function,
    no_calls,
)

Cost = Annotated[float, Meta(ge=0)]
WIDE = 1.0
"""The bound of random numbers where a range has none."""


def seen_by(view: View) -> Mapping[str, Any]:
    """Return the `observation`, the `actions`, and in some games the `allowed` ones.

    In a game of several players, they are those of the first player that this agent plays.

    Raises:
        ValueError: the task shows no environment.
    """
    data = None if view.observation is None else view.observation.data
    if isinstance(data, Mapping) and isinstance(data.get("players"), Mapping):
        seats = data["players"].values()
        data = next((seat for seat in seats if view.agent in seat["agents"]), None)
    if not isinstance(data, Mapping) or "actions" not in data:
        raise ValueError(
            f"nothing to act on for {view.agent!r}: a controller needs a task that shows it an "
            "environment, such as `gymnasium`"
        )
    return data


@frozen
class Constant(Agent):
    """Always takes the same action; with several, the policy chooses one as its option.

    Args:
        actions: an action by name, such as `{left: 0, right: 1}`.
        cost: what a turn costs.
    """

    actions: dict[str, JSON] = field()
    cost: Cost = 0.0

    ceiling = no_calls
    pure = True

    @actions.validator
    def _check_some(self, attribute: Attribute[Any], value: dict[str, JSON]) -> None:
        if not value:
            raise ValueError("name at least one action, such as `{left: 0}`")

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the actions, if there are several."""
        return tuple(self.actions) if len(self.actions) > 1 else ()

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return the action of the option."""
        name = next(iter(self.actions)) if view.option is None else view.option
        return Output(name, {"action": self.actions[name]}, Usage(cost=self.cost))

    def memo(self, view: View) -> JSON:
        """Return what the output depends on beside the option: nothing."""
        return None


@frozen
class RandomController(Agent):
    """Takes a random action, of the allowed ones where the environment names them.

    Args:
        cost: what a turn costs.
    """

    cost: Cost = 0.0

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Return a random action."""
        data = seen_by(view)
        draw = iter(key.uniforms(_size(data["actions"])))
        action = _draw(data["actions"], data.get("allowed"), draw.__next__)
        return Output("", {"action": action}, Usage(cost=self.cost))


def _size(actions: Any) -> int:
    """Return how many numbers an action has at most."""
    if actions["kind"] == "discrete":
        return 1
    if actions["kind"] == "box":
        return _leaves(actions["low"])
    parts = actions["parts"]
    return sum(map(_size, parts.values() if isinstance(parts, Mapping) else parts))


def _leaves(value: Any) -> int:
    return sum(map(_leaves, value)) if isinstance(value, list | tuple) else 1


def _draw(actions: Any, allowed: Any, draw: Callable[[], float]) -> JSON:
    """Return one of the described actions, chosen by draws from 0 to 1."""
    if actions["kind"] == "discrete":
        choices = allowed or range(actions["start"], actions["start"] + actions["n"])
        return choices[int(draw() * len(choices))]
    if actions["kind"] == "box":
        return _within(actions["low"], actions["high"], actions["whole"], draw)
    parts = actions["parts"]
    if isinstance(parts, Mapping):
        return {name: _draw(part, None, draw) for name, part in parts.items()}
    return [_draw(part, None, draw) for part in parts]


def _within(low: Any, high: Any, whole: bool, draw: Callable[[], float]) -> JSON:
    if isinstance(low, list | tuple):
        return [_within(a, b, whole, draw) for a, b in zip(low, high, strict=True)]
    if low is None:
        low = -WIDE if high is None else min(-WIDE, high - 2 * WIDE)
    if high is None:
        high = max(WIDE, low + 2 * WIDE)
    if whole:
        return int(low + int(draw() * (high - low + 1)))
    return float(low + draw() * (high - low))


@frozen
class FunctionController(Agent):
    """Takes the action that a function of yours returns for the observation.

    Args:
        function: "package.module:name" installed, or in the folder of the command; called with the
            observation as JSON (arrays are lists). Its result must depend on nothing else.
        cost: what a turn costs.
    """

    function: Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
    cost: Cost = 0.0

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Import the function."""
        yield _Opened(self.cost, load_function(self.function, f"{ctx.path}.function", given=1))


@frozen
class _Opened(Agent):
    cost: float
    function: Callable[[Any], Any]

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        from orchestrion_gymnasium.spaces import plain  # brings NumPy and Gymnasium

        action = plain(self.function(seen_by(view)["observation"]))
        return Output(json.dumps(action), {"action": action}, Usage(cost=self.cost))
