"""A budget with many calls in flight: who waits, who is refused, and what is booked."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import (
    Agent,
    Answer,
    BudgetError,
    CallError,
    CallLimits,
    Calls,
    Key,
    Output,
    Problem,
    Request,
    Usage,
    View,
)
from orchestrion._engine.budget import Budget, paying
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion.config import Budget as Caps
from orchestrion.testing import Fixed, engine_for
from tests.core.test_calls import ASK, ONE, QUICK, Keeping, Memory, answering, make
from tests.coroutines import sync


def dollars(usd: float) -> Usage:
    return Usage(1, usd=usd)


def tokens(count: int) -> Usage:
    return Usage(input_tokens=count)


@sync
async def test_versions_with_other_caps_count_each_others_calls_in_flight() -> None:
    old = Budget(Caps(usd=1.0))
    new = old.continued(Caps(usd=2.0))
    await old.reserve(dollars(1.0))
    await new.reserve(dollars(1.0))
    assert new.reserved.usd == 2.0
    waiting = asyncio.ensure_future(new.reserve(dollars(0.5)))
    await asyncio.sleep(0)
    assert not waiting.done()
    old.settle(dollars(1.0), dollars(0.5))
    await asyncio.wait_for(waiting, 10)
    new.settle(dollars(1.0), dollars(1.0))
    new.settle(dollars(0.5), dollars(0.5))
    assert old.spent.usd == 2.0
    with pytest.raises(BudgetError):
        await old.reserve(dollars(0.5))


@sync
async def test_a_call_that_does_not_fit_is_not_taken_for_one_of_a_model() -> None:
    with pytest.raises(BudgetError, match="raise it, or lower `max_tokens` if the call asks a mod"):
        await Budget(Caps(usd=1.0)).reserve(dollars(2.0))


def test_a_budget_is_kept_no_longer_than_its_version() -> None:
    newest = Budget(Caps(usd=1.0))
    for number in range(2, 5):  # reloads, each with other caps
        newest = newest.continued(Caps(usd=float(number)))
    assert len(newest._sharing) == 1


def test_a_version_goes_on_with_the_limiters_before_it_unless_their_limits_are_others() -> None:
    old = Budget(Caps(usd=1.0))
    limits = CallLimits(concurrency=1)
    limiter = old.limiter("service", limits)
    idle = old.continued(Caps(usd=2.0))  # a version that made no call
    assert idle.continued(Caps(usd=3.0)).limiter("service", limits) is limiter
    assert old.continued(None).limiter("service", CallLimits(concurrency=2)) is not limiter


def test_runs_that_share_an_allowance_share_its_budget_its_limiters_and_its_time() -> None:
    allowance = Budget(Caps(calls=4), Usage(calls=1), elapsed=60.0)
    paths = [CallPath(allowance, retry=QUICK) for _ in "ab"]

    async def do() -> Answer:
        return Answer("yes", Usage(calls=1))

    async def main() -> None:
        for number, path in enumerate([*paths, paths[0]]):
            await make(path, str(number), Request("s", number), do, Usage(calls=1))
        with pytest.raises(BudgetError):
            await make(paths[1], "more", Request("s", "more"), do, Usage(calls=1))

    asyncio.run(main())
    assert allowance.spent.calls == 4
    assert list(allowance.limiters) == ["s"]
    assert allowance.elapsed >= 60


def test_a_reservation_that_does_not_fit_waits_for_those_in_flight() -> None:
    """60 calls at once, each of which could take a 23rd of the budget, and takes little."""
    budget = Budget(Caps(usd=1.0))
    path = CallPath(budget, retry=QUICK)
    together = 0

    async def ask(i: int) -> object:
        async def do() -> Answer:
            nonlocal together
            together = max(together, budget.reserved.calls)
            await asyncio.sleep(0)
            return Answer(i, dollars(0.0004))

        return (await make(path, str(i), Request("s", i), do, dollars(0.0426))).data

    async def main() -> list[object]:
        return list(await asyncio.gather(*map(ask, range(60))))

    assert asyncio.run(main()) == list(range(60))
    assert together == 23
    assert budget.spent.usd == pytest.approx(60 * 0.0004)


def test_reservations_that_state_no_calls_are_held_all_the_same() -> None:
    """An agent may reserve dollars alone: one settlement must not forget the others in flight."""
    budget = Budget(Caps(usd=0.1))
    path = CallPath(budget, retry=QUICK)

    async def ask(i: int) -> None:
        async def do() -> Answer:
            await asyncio.sleep(0)
            return Answer(i, Usage(usd=0.01))

        await make(path, str(i), Request("s", i), do, Usage(usd=0.01))

    async def main() -> list[BaseException | None]:
        return await asyncio.gather(*map(ask, range(60)), return_exceptions=True)

    assert sum(isinstance(one, BudgetError) for one in asyncio.run(main())) >= 50
    assert budget.spent.usd <= 0.1 + 1e-9


@pytest.mark.parametrize("usd", [-1.0, float("inf")])
@pytest.mark.parametrize("how", ["answer", "fault"])
def test_usage_of_a_call_that_is_none_is_refused_and_booked_in_full(how: str, usd: float) -> None:
    budget = Budget(Caps(usd=1.0))
    path = CallPath(budget, retry=QUICK)

    async def do() -> Answer:
        if how == "fault":
            raise CallError("broken", "permanent", spent=Usage(1, usd=usd))
        return Answer("x", Usage(1, usd=usd))

    with pytest.raises(ValueError, match=r"Usage\.usd is"):
        asyncio.run(make(path, "a", Request("s", "a"), do, dollars(0.25)))
    assert budget.spent.usd == 0.25


def test_the_first_that_waits_is_served_first_however_much_it_needs() -> None:
    path = CallPath(Budget(Caps(tokens=10)), retry=QUICK)
    began: list[str] = []

    async def ask(name: str, worst: int) -> None:
        async def do() -> Answer:
            began.append(name)
            await asyncio.sleep(0)
            return Answer(name, Usage())

        await make(path, name, Request("s", name), do, Usage(input_tokens=worst))

    async def main() -> None:
        sizes = {"a": 6, "large": 10, "b": 4, "c": 6}
        await asyncio.gather(*(ask(name, size) for name, size in sizes.items()))

    asyncio.run(main())
    assert began == ["a", "large", "b", "c"]


def test_who_pays_is_told_what_is_spent_in_a_block_and_nothing_after_it() -> None:
    path = CallPath(retry=QUICK)
    told: list[Usage] = []
    do = answering(CallError("broken off", "malformed", spent=tokens(3)), *[Answer(1, ONE)] * 2)

    async def main() -> None:
        with paying(told.append):
            await asyncio.gather(make(path, "in", ASK, do, ONE))
            path.book(dollars(2.0))
        await make(path, "after", ASK, do, ONE)

    asyncio.run(main())
    assert told == [tokens(3), ONE, dollars(2.0)]


def test_a_budget_stop_cuts_nothing_off_and_loses_no_answer() -> None:
    """What is in flight is awaited, and recorded although the journal is slow."""
    journal, late = Keeping(), threading.Event()
    write = journal.put_many

    def slow(rows: list[Recorded]) -> None:
        if any(row.kind == "answer" for row in rows):
            assert late.wait(60)
        write(rows)

    journal.put_many = slow  # type: ignore[method-assign]
    path = CallPath(Budget(Caps(usd=1.0)), journal=journal, retry=QUICK)
    ready = asyncio.Event()

    async def do() -> Answer:
        await ready.wait()
        return Answer("paid", dollars(0.3))

    async def too_large() -> None:
        ready.set()
        await make(path, "large", Request("s", "large"), answering(), dollars(0.8))

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for i in range(2):
                group.create_task(make(path, f"{i}", Request("s", i), do, dollars(0.4)))
            while path.budget.reserved.calls < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            group.create_task(too_large())

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as found:
            await run()
        assert [str(error).partition(":")[0] for error in found.value.exceptions] == ["budget.usd"]
        assert [row.kind for row in journal.rows.values()] == ["started", "started"]
        asyncio.get_running_loop().call_soon(late.set)
        await path.drain()

    asyncio.run(main())
    assert [row.kind for row in journal.rows.values()] == ["answer", "answer"]
    assert path.budget.spent == dollars(0.6) + dollars(0)


def test_a_call_inside_another_goes_before_those_that_are_not() -> None:
    """The outer call keeps its reservation until the inner one is done."""
    path = CallPath(Budget(Caps(tokens=10)), retry=QUICK)

    async def inner() -> Answer:
        return await make(path, "in", Request("s", "in"), answering(Answer(1)), tokens(4))

    async def main() -> list[object]:
        outer = asyncio.create_task(make(path, "out", Request("s", "out"), inner, tokens(6)))
        # Waits for the outer one, and must not keep the inner one waiting behind it.
        other = make(path, "other", Request("s", "other"), answering(Answer(2)), tokens(10))
        return [answer.data for answer in await asyncio.gather(outer, other)]

    assert asyncio.run(main()) == [1, 2]


def test_a_call_inside_another_is_refused_rather_than_left_to_wait_for_it() -> None:
    path = CallPath(Budget(Caps(tokens=10)), retry=QUICK)

    async def inner() -> Answer:
        return await make(path, "in", Request("s", "in"), answering(Answer(1)), tokens(5))

    with pytest.raises(BudgetError, match=r"0 of 10 spent and 6 reserved"):
        asyncio.run(make(path, "out", Request("s", "out"), inner, tokens(6)))


def test_money_that_waits_for_a_place_is_not_waited_for_by_whoever_has_the_place() -> None:
    """A call inside another asks a service whose one place is taken by a call without money."""
    path = CallPath(Budget(Caps(tokens=10)), retry=QUICK)
    busy = CallLimits(concurrency=1)

    def to(name: str, worst: int, do: Callable[[], Awaitable[Answer]]) -> Awaitable[Answer]:
        return make(path, name, Request("busy", name, limits=busy), do, tokens(worst))

    async def inner() -> Answer:
        for _ in range(5):
            await asyncio.sleep(0)
        return await to("in", 4, answering(Answer(1)))

    async def main() -> list[object]:
        outer = make(path, "out", Request("free", "out"), inner, tokens(6))
        others = [to(f"other {i}", 8, answering(Answer(2))) for i in range(3)]
        return [answer.data for answer in await asyncio.gather(outer, *others)]

    assert asyncio.run(main()) == [1, 2, 2, 2]


def test_a_call_that_was_cut_off_before_it_was_sent_costs_nothing() -> None:
    """It waits for a place, for the journal, or for money."""
    journal, late = Keeping(), threading.Event()
    write = journal.put_many

    def slow(rows: list[Recorded]) -> None:
        assert late.wait(60)
        write(rows)

    journal.put_many = slow  # type: ignore[method-assign]
    budget = Budget(Caps(calls=2))
    path = CallPath(budget, journal=journal, retry=QUICK)
    limits = CallLimits(concurrency=1)

    async def main() -> None:
        tasks = [
            asyncio.create_task(
                make(path, f"{i}", Request("s", i, limits=limits), answering(), ONE)
            )
            for i in range(4)
        ]
        while budget.reserved.calls < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        late.set()
        await path.drain()

    asyncio.run(main())
    assert journal.rows == {}
    assert (budget.spent, budget.reserved) == (Usage(), Usage())


Tree = tuple[int, int, list["Tree"]]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.just([])),
    lambda inside: st.tuples(st.integers(0, 9), st.integers(0, 3), st.lists(inside, max_size=3)),
    max_leaves=12,
)


@given(st.lists(trees, max_size=8), st.integers(0, 30), st.sets(st.integers(0, 7)))
def test_calls_inside_calls_end_whatever_is_cancelled(
    forest: list[Tree], cap: int, cancelled: set[int]
) -> None:
    """Each call has an answer, is refused, or was cancelled; nothing stays set aside."""
    budget = Budget(Caps(tokens=cap))
    path = CallPath(budget, retry=QUICK)

    async def call(name: str, tree: Tree) -> Answer:
        worst, waits, parts = tree

        async def do() -> Answer:
            for _ in range(waits):
                await asyncio.sleep(0)
            assert budget.spent.tokens + budget.reserved.tokens <= cap
            async with asyncio.TaskGroup() as group:
                for i, part in enumerate(parts):
                    group.create_task(call(f"{name}.{i}", part))
            return Answer(name, tokens(worst // 2))

        # One service for each depth: a place in it is not kept while another is waited for.
        service = Request(f"{name.count('.')}", name, limits=CallLimits(concurrency=2))
        return await make(path, name, service, do, tokens(worst))

    async def main() -> None:
        tasks = [asyncio.create_task(call(f"{i}", tree)) for i, tree in enumerate(forest)]
        for i in cancelled:
            await asyncio.sleep(0)
            if i < len(tasks):
                tasks[i].cancel()
        # Far more than it takes: a hang is an error here, not a test that never ends.
        done, hanging = await asyncio.wait(tasks, timeout=30) if tasks else (set(), set())
        assert not hanging
        for task in done:
            error = None if task.cancelled() else task.exception()
            assert error is None or isinstance(error, BudgetError | ExceptionGroup)

    asyncio.run(main())
    assert budget.reserved == Usage()
    assert budget.spent.tokens <= cap


def test_what_a_turn_states_is_durable_before_the_next_turn() -> None:
    """One row for each agent and stage, which adds up; turns that cost no money have none."""
    journal = Memory()
    seen: list[float] = []
    path = CallPath(Budget(Caps(usd=10.0)), journal=journal)

    @frozen
    class Stating(Agent):
        usd: float

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            seen.append(sum(row.usage.usd for row in journal.rows.values()))
            return Output(usage=Usage(usd=self.usd, cost=1.0))

    agents = {"paid": Stating(0.5), "free": Stating(0.0)}
    engine = engine_for(agents, Fixed(["free", "paid", "free", "free"]), calls=path)
    engine.stage = "trainer"
    asyncio.run(engine.run("e", Problem("p"), Key(1)))
    assert seen == [0.0, 0.0, 0.5, 0.5]
    [row] = journal.rows.values()
    assert (row.kind, row.facts.who, row.facts.stage) == ("stated", "paid", "trainer")
    assert path.budget.take_stated() == Usage(cost=3.0), "for the next commit"


def test_costs_in_the_agents_own_unit_have_a_cap() -> None:
    """The turn that goes beyond it is the last; what a call reserves cannot go beyond it."""
    journal = Memory()
    path = CallPath(Budget(Caps(cost=10.0)), journal=journal)

    @frozen
    class Stating(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            return Output(usage=Usage(cost=4.0))

    engine = engine_for({"a": Stating()}, Fixed(["a"] * 9), calls=path)
    with pytest.raises(BudgetError, match=r"budget\.cost: 12 of 10 spent$"):
        asyncio.run(engine.run("e", Problem("p"), Key(1)))
    assert path.budget.take_stated() == Usage(), "each turn is on record at once"
    assert journal.commits == 3
    with pytest.raises(BudgetError, match=r"budget\.cost: 9 of 10 spent; the next call could"):
        asyncio.run(Budget(Caps(cost=10.0), Usage(cost=9.0)).reserve(Usage(1, cost=2.0)))
    with pytest.raises(BudgetError, match=r"budget\.cost is set but the price of x is not known"):
        asyncio.run(Budget(Caps(cost=10.0)).reserve(Usage(1, cost=math.nan), "x"))


def test_a_service_that_takes_more_than_was_set_aside_is_booked_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = CallPath(Budget(Caps(usd=10.0)), retry=QUICK)
    more = Usage(1, 20, 5, 0.5)

    async def main() -> None:
        for i in range(3):
            await make(path, f"{i}", ASK, answering(Answer(i, more)), ONE)

    with caplog.at_level(logging.WARNING, "orchestrion"):
        asyncio.run(main())
    assert path.budget.spent.usd == 1.5
    [said] = caplog.messages
    assert said.startswith("service took 20 input and 5 output tokens, 0.5 US dollars, more than")
