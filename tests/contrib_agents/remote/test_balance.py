"""Which address is asked: the least busy one that does not rest; the others if that was free."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_remote.balance import FIRST_REST, LONGEST_REST, Balancer

from orchestrion import Answer, CallError, Fault, Usage

RESERVE = Usage(1)


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def balancer(names: str, clock: Clock) -> Balancer[str]:
    return Balancer({name: name for name in names}, 1000, clock=clock)


def ask(who: Balancer[str], failures: dict[str, CallError], asked: list[str]) -> Answer:
    async def one(name: str, at: str) -> Answer:
        asked.append(at)
        if at in failures:
            raise failures[at]
        return Answer(at)

    return asyncio.run(who.call(one, RESERVE))


def test_calls_go_to_the_address_with_the_fewest_in_flight() -> None:
    async def main() -> list[int]:
        gate, all_came = asyncio.Event(), asyncio.Event()
        active, most = Counter[str](), list[int]()
        who = balancer("abc", Clock())

        async def one(name: str, at: str) -> Answer:
            active[at] += 1
            if sum(active.values()) == 30:
                all_came.set()
            most.append(max(active.values()) - min(active[name] for name in "abc"))
            await gate.wait()
            return Answer(at)

        calls = [asyncio.create_task(who.call(one, RESERVE)) for _ in range(30)]
        async with asyncio.timeout(60):
            await all_came.wait()
        gate.set()
        await asyncio.gather(*calls)
        return [*most, *active.values()]

    *most, a, b, c = asyncio.run(main())
    assert max(most) == 1
    assert (a, b, c) == (10, 10, 10)


def test_a_free_failure_is_made_up_for_elsewhere_within_the_attempt() -> None:
    clock, asked = Clock(), list[str]()
    who = balancer("ab", clock)
    assert ask(who, {"a": CallError("no connection")}, asked).data == "b"
    assert asked == ["a", "b"]
    # It rests, although it was used less.
    ask(who, {}, asked)
    ask(who, {}, asked)
    assert asked[2:] == ["b", "b"]
    clock.now = FIRST_REST
    for expected in "aba":
        ask(who, {}, asked)
        assert asked[-1] == expected


def test_a_failure_that_may_have_cost_something_is_left_to_the_call_path() -> None:
    who, asked = balancer("ab", Clock()), list[str]()
    failure = CallError("the connection broke", spent=RESERVE)
    with pytest.raises(CallError, match="broke"):
        ask(who, {"a": failure}, asked)
    assert asked == ["a"]
    # The call path's next attempt goes elsewhere.
    assert ask(who, {"a": failure}, asked).data == "b"


@pytest.mark.parametrize("fault", ["permanent", "malformed", "quota"])
def test_what_is_wrong_everywhere_is_tried_once(fault: Fault) -> None:
    who, asked = balancer("ab", Clock()), list[str]()
    with pytest.raises(CallError):
        ask(who, {"a": CallError("no", fault)}, asked)
    assert asked == ["a"]


def test_when_all_fail_the_call_fails_and_all_are_tried_again_next_time() -> None:
    who, asked = balancer("ab", Clock()), list[str]()
    failures = {name: CallError(f"{name} is down", "overload") for name in "ab"}
    for _ in range(2):
        with pytest.raises(CallError, match="is down"):
            ask(who, failures, asked)
    assert Counter(asked) == {"a": 2, "b": 2}


def test_an_address_rests_as_long_as_it_asks_for() -> None:
    clock, asked = Clock(), list[str]()
    who = balancer("ab", clock)
    ask(who, {"a": CallError("wait", "rate_limit", retry_after=90)}, asked)
    clock.now = 89.0
    assert ask(who, {}, asked).data == "b"
    clock.now = 90.0
    assert ask(who, {}, asked).data == "a"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 20)), max_size=12))
def test_a_healthy_address_always_answers(events: list[tuple[str, bool, float]]) -> None:
    """Whatever failed before: as long as one address works, no call with free faults fails."""
    clock = Clock()
    who = balancer("abc", clock)
    down = set[str]()
    for name, goes_down, later in events:
        (down.add if goes_down and len(down | {name}) < 3 else down.discard)(name)
        clock.now += later
        asked = list[str]()
        answer = ask(who, {name: CallError("down") for name in down}, asked)
        assert answer.data not in down
        assert len(asked) == len(set(asked))


def test_rests_are_bounded() -> None:
    clock = Clock()
    who = balancer("a", clock)
    for _ in range(50):
        with pytest.raises(CallError):
            ask(who, {"a": CallError("down")}, [])
    assert max(one.rests_until for one in who._places) == LONGEST_REST


def test_an_address_that_failed_is_asked_for_its_health_first() -> None:
    healthy, asked = set[str](), list[str]()

    async def check(name: str, at: str) -> None:
        asked.append(f"health of {at}")
        if at not in healthy:
            raise CallError("not healthy", "overload")

    clock = Clock()
    who = Balancer({"a": "a", "b": "b"}, 1000, check, clock)
    ask(who, {"a": CallError("down")}, asked)
    clock.now = 10.0
    ask(who, {}, asked)
    healthy.add("a")
    clock.now = 20.0
    ask(who, {}, asked)
    assert asked == ["a", "b", "health of a", "b", "health of a", "a"]


def test_no_answer_in_time_books_the_reservation_and_rests_the_address() -> None:
    async def main() -> CallError:
        who = Balancer({"a": "a"}, 0.01)

        async def never(name: str, at: str) -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

        with pytest.raises(CallError) as caught:
            await who.call(never, RESERVE)
        assert who._places[0].failures == 1
        return caught.value

    error = asyncio.run(main())
    assert (error.fault, error.spent) == ("transient", RESERVE)
