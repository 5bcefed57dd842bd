"""Upper bounds of what calls take: never below what is taken, and unknown where nobody says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from operator import le

import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import astuple

from orchestrion import (
    Agent,
    Answer,
    Calls,
    Key,
    Output,
    Plan,
    Problem,
    ReplayError,
    Request,
    Usage,
    View,
    no_calls,
    team_ceiling,
    times,
)
from orchestrion._bounds import turn_ceilings, turns_of, worst
from orchestrion._forecast import tokens_of
from orchestrion._offline import is_local, is_loopback, no_network
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


@example([(0, 3), (0, 1), (1, 1)], [0, 2])
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
    longest = max(words for _, words in sizes)  # who makes no call may still write so much
    bounds = turn_ceilings(agents, len(steps), 1, free_output=longest)
    assert bounds is not None
    assert all(map(le, astuple(took), astuple(sum(bounds[0], Usage()))))


def test_who_does_not_say_is_unknown_and_not_free() -> None:
    assert turn_ceilings({"a": Talker(), "b": ScriptedAgent()}, 2, 9) is None
    assert team_ceiling({"a": Talker(), "b": ScriptedAgent()}, None, 2, 9) is None
    assert turn_ceilings({"a": Talker(), "b": Tool()}, 2, 9) is not None


def test_a_tool_that_does_not_say_how_much_it_writes_is_taken_at_an_assumption() -> None:
    bounds = turn_ceilings({"t": Tool(), "a": Talker()}, 2, 10, free_output=100)
    assert bounds is not None
    assert bounds[0][1].input_tokens == 110
    # Also where a call of it is known, but no tokens, as of an agent elsewhere with a fixed price.
    bounds = turn_ceilings({"far": Talker(words=0), "a": Talker()}, 2, 10, free_output=100)
    assert bounds is not None
    assert bounds[0][1].input_tokens == 110


def test_a_price_that_is_not_known_stays_unknown() -> None:
    assert math.isnan(worst([Usage(usd=1.0), Usage(usd=math.nan)]).usd)
    assert math.isnan(times(Usage(usd=math.nan), 3).usd)


def test_an_episode_ends_at_the_limit_or_where_the_policy_ends() -> None:
    class Short(Fixed):
        longest = 3

    assert [turns_of(Short(), limit) for limit in (None, 2, 9)] == [3, 2, 3]
    assert turns_of(Fixed(), 9) == 9
    assert turns_of(Fixed(), None) is None


def test_a_nested_team_takes_what_its_turns_take() -> None:
    members = {"a": Talker(words=5), "b": Talker(calls=2, words=1)}
    # Two turns, each with two calls at most, the second of which reads five words more.
    assert team_ceiling(members, None, 2, 10) == Usage(4, 2 * 10 + 2 * 15, 5 * 2, 2.0)
    assert team_ceiling(members, None, None, 10) is None


def test_plans_add_up() -> None:
    first = Plan(1, 2, 3, 4, Usage(5), (("a", 6),), longest=7)
    second = Plan(10, 20, 30, 40, Usage(50), (("b", 60),), longest=6)
    total = Plan(11, 22, 33, 44, Usage(55), (("a", 6), ("b", 60)), longest=7)
    assert first + second == total


def test_tokens_are_bounded_by_bytes() -> None:
    assert tokens_of(Problem("p", "äö", {"a": "x"}, hidden="left out")) == 4 + len('{"a":"x"}')


@pytest.mark.parametrize(
    ("host", "local", "loopback"),
    [
        ("localhost", True, True),
        ("127.0.0.1", True, True),
        ("::1", True, True),
        ("model.localhost", False, True),
        ("0.0.0.0", False, True),
        ("10.0.0.1", False, False),
        ("example.org", False, False),
    ],
)
def test_hosts_of_this_machine_are_known(host: str, local: bool, loopback: bool) -> None:
    assert (is_local(host), is_loopback(host)) == (local, loopback)


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
