"""Players: they pay a row's price and name it; what then happens is the environment's to draw.

The environment is immutable and forks, so chance belongs to `Task.step`. A player reads from
`observation.data["agents"]` what its row does next:

    {"cost": 0.02, "says": "works on plan"}        a price, and a line for people
    {"cost": 0.0, "says": "stops", "final": true}  ends the episode
    {"costs": {"1": 1.1, "1+2": 1.2}}              a price for each option
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from itertools import combinations
from typing import Annotated

from attrs import frozen

from orchestrion import (
    Agent,
    Calls,
    Key,
    Meta,
    Observation,
    OpenContext,
    Output,
    Usage,
    UsageError,
    View,
    no_calls,
)

FIRST = "output"
"""The option that places a committee's output slot."""
ENDING = ("stop", "submit", "abstain")
"""The rows that end an episode."""

Slots = Annotated[int, Meta(ge=2, le=6)]


@frozen
class BenchAgent(Agent):
    """Plays one row of a relay or stop table, at its price.

    Args:
        plays: the row, e.g. "planner"; "stop", "submit" and "abstain" end the episode. Empty
            means the agent's own name in the team.
        role: what it can do, in words, for policies that go by that; see `relay.described`.
    """

    plays: str = ""
    role: str = ""

    ceiling = no_calls

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Agent]:
        """Tell policies of a row that ends the episode."""
        row = self.plays or ctx.path.rpartition(".")[2]
        yield _Ending(self.plays, self.role) if row in ENDING else self

    def check_task(self, name: str, observation: Observation | None) -> None:
        """Refuse a task whose table does not have the row of the agent with this name."""
        play(self.plays or name, None, observation)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Pay the price; the task's `step` draws what comes of it."""
        return play(self.plays or view.agent, None, view.observation)


@frozen
class _Ending(BenchAgent):
    ends = True


@frozen
class CommitteeAgent(Agent):
    """Places one type of member in the next slot of a committee.

    Its options say which of the slots placed before read the new one: "1" is the output slot,
    "1+3" the output and the third. The first member placed is the output itself: "output".

    Args:
        plays: the type of member; empty means the agent's own name in the team.
        slots: as the task's.
    """

    plays: str = ""
    slots: Slots = 4

    @property
    def options(self) -> Sequence[str]:
        """Every set of slots that may read the new one."""
        return options_for(self.slots)

    def check_task(self, name: str, observation: Observation | None) -> None:
        """Refuse a task whose table does not have the row of the agent with this name."""
        play(self.plays or name, self.options[0], observation)

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Pay for the member and its live edges."""
        return play(self.plays or view.agent, view.option, view.observation)


@lru_cache
def options_for(slots: int) -> tuple[str, ...]:
    """Return the options of a committee's agents: "output", then sets of earlier slots by size."""
    places = [str(place) for place in range(1, slots)]
    sets = (combinations(places, size) for size in range(1, slots))
    return (FIRST, *("+".join(chosen) for group in sets for chosen in group))


def play(row: str, option: str | None, observation: Observation | None) -> Output:
    """Return what playing a row gives now.

    Raises:
        UsageError: the observation is not one of a benchmark, or its table has no such row.
    """
    try:
        entry = observation.data["agents"][row]  # type: ignore[union-attr]
        cost = entry["cost"] if option is None else entry["costs"][option]
    except (AttributeError, KeyError, TypeError):
        raise UsageError(_lost(row, option, observation)) from None
    data = {"plays": row} if option is None else {"plays": row, "option": option}
    text = f"{row} {entry['says']}"
    return Output(text, data, Usage(cost=cost), entry.get("final", False))


def _lost(row: str, option: str | None, observation: Observation | None) -> str:
    data = observation.data if observation is not None else None
    rows = data.get("agents") if isinstance(data, dict) else None
    if not isinstance(rows, dict):
        return f"{row!r} plays in the tasks relay, stop and committee only"
    if row not in rows:
        return f"the task's table has no row {row!r}; set `plays` to one of {', '.join(rows)}"
    return f"row {row!r} has no option {option!r}; use bench-agent or committee-agent as fits"
