"""Upper bounds of what calls take: never below what is taken, and unknown where nobody says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import (
    Agent,
    Answer,
    Calls,
    Key,
    Output,
    Problem,
    ReplayError,
    Request,
    Usage,
    View,
    no_calls,
    team_ceiling,
    times,
)
from orchestrion._bounds import reading, route_of, worst
from orchestrion._forecast import tokens_of
from orchestrion._offline import no_network
from orchestrion.testing import Fixed, ScriptedAgent, engine_for


@frozen
class Talker(Agent):
    """Reads everything, once for each call, and says so many words."""

    calls: int = 1
    words: int = 3

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        heard = " ".join([view.problem.text, *(turn.output.content for turn in view.turns)])
        for n in range(self.calls):
            size = len(heard.split())

            async def do(size: int = size) -> Answer:
                return Answer("", Usage(1, size, self.words, 0.5))

            await calls.run(Request("s", [heard, n]), do)
        return Output("word " * self.words)

    def ceiling(self, tokens: int) -> Usage:
        return times(Usage(1, tokens, self.words, 0.5), self.calls)


class Tool(ScriptedAgent):
    ceiling = no_calls


def bound(agents: dict[str, Agent], steps: Sequence[str], turns: int) -> Usage:
    taken = reading(agents, [tuple(agents)] * turns, 1)
    assert taken is not None
    return sum(taken[0], Usage())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), max_size=6),
)
def test_no_episode_takes_more_than_its_bound(
    sizes: list[tuple[int, int]], order: list[int]
) -> None:
    agents: dict[str, Agent] = {str(i): Talker(*size) for i, size in enumerate(sizes)}
    steps = [str(i % len(sizes)) for i in order]
    engine = engine_for(agents, Fixed(steps))
    took = asyncio.run(engine.run("e", Problem("p", "word"), Key(1))).usage
    engine.close()
    most = bound(agents, steps, len(steps))
    assert took.calls <= most.calls
    assert took.input_tokens <= most.input_tokens
    assert took.output_tokens <= most.output_tokens
    assert took.usd <= most.usd


def test_who_does_not_say_is_unknown_and_not_free() -> None:
    assert reading({"a": Talker(), "b": ScriptedAgent()}, [("a",), ("b",)], 9) is None
    assert team_ceiling({"a": Talker(), "b": ScriptedAgent()}, None, 2, 9) is None
    assert reading({"a": Talker(), "b": Tool()}, [("a",), ("b",)], 9) is not None


def test_a_tool_that_does_not_say_how_much_it_writes_is_taken_at_an_assumption() -> None:
    taken = reading({"t": Tool(), "a": Talker()}, [("t",), ("a",)], 10, free_output=100)
    assert taken is not None
    assert taken[0][1].input_tokens == 110


def test_a_price_that_is_not_known_stays_unknown() -> None:
    assert math.isnan(worst([Usage(usd=1.0), Usage(usd=math.nan)]).usd)
    assert math.isnan(times(Usage(usd=math.nan), 3).usd)


class Routed(Fixed):
    def route(self, turns: int | None) -> list[tuple[str, ...]]:
        return [("a",), ("b", ""), ("c",)]


def test_turns_that_may_be_left_out_make_room_for_later_ones() -> None:
    assert route_of(Routed(), "abc", None) == [("a",), ("b", ""), ("c",)]
    assert route_of(Routed(), "abc", 2) == ["abc"] * 2, "a, then b or c"
    assert route_of(Fixed(), "abc", None) is None


def test_a_nested_team_takes_what_its_turns_take() -> None:
    members = {"a": Talker(words=5), "b": Talker(calls=2, words=1)}
    # Two turns, each with two calls at most, the second of which reads five words more.
    assert team_ceiling(members, None, 2, 10) == Usage(4, 2 * 10 + 2 * 15, 5 * 2, 2.0)


def test_tokens_are_bounded_by_bytes() -> None:
    assert tokens_of(Problem("p", "äö", {"a": "x"}, hidden="left out")) == 4 + len('{"a":"x"}')


def test_where_the_network_is_forbidden_nobody_gets_through() -> None:
    async def connect() -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    def look_up() -> Awaitable[object]:
        return asyncio.get_running_loop().getaddrinfo("example.invalid", 80)

    async def run(what: Callable[[], Awaitable[object]]) -> None:
        await what()

    for what in (connect, look_up):
        with no_network(ReplayError, "nobody is asked"), pytest.raises(ReplayError, match="nobody"):
            asyncio.run(run(what))
    with pytest.raises(OSError):  # there is nobody, but the way is free again
        asyncio.run(run(connect))
