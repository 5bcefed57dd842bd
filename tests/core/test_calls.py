"""The one call path: limits, retries, budget, cache, journal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import (
    Agent,
    Answer,
    BudgetError,
    CallError,
    CallLimits,
    Calls,
    Episode,
    Key,
    Output,
    Problem,
    ReplayError,
    Request,
    Scores,
    StoreError,
    Usage,
    View,
)
from orchestrion._engine.attempts import Call
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath, Recorded, RetrySettings
from orchestrion._engine.limiter import ServiceLimiter
from orchestrion._engine.replaying import ReplayPath
from orchestrion._session import EngineSession
from orchestrion.config import Budget as Caps
from orchestrion.testing import Fixed, ListTask, ScriptedAgent, engine_for
from tests import clock
from tests.coroutines import sync

QUICK = RetrySettings(base=0.0, overload_base=0.0, cap=0.0)
ASK = Request("service", {"q": 1})
ONE = Usage(calls=1, input_tokens=10, output_tokens=5, usd=0.25)


def make(
    path: CallPath,
    place: str,
    request: Request,
    do: Callable[[], Awaitable[Answer]],
    reserve: Usage,
) -> Coroutine[Any, Any, Answer]:
    """Make a call at a place in a run."""
    return path.run(Call.at(place, request, do, reserve))


class Memory:
    """A journal in memory that says in which order things became durable."""

    def __init__(self) -> None:
        self.rows: dict[str, Recorded] = {}
        self.commits = 0

    def get(self, key: str) -> Recorded | None:
        return self.rows.get(key)

    def put_many(self, rows: list[Recorded]) -> None:
        self.commits += 1
        self.rows.update((row.key, row) for row in rows)


def answering(*answers: Answer | Exception) -> Callable[[], Awaitable[Answer]]:
    rest = list(answers)

    async def do() -> Answer:
        answer = rest.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return do


def test_a_fault_that_may_pass_is_tried_again_and_spent_once() -> None:
    path = CallPath(Budget(Caps(calls=3)), retry=QUICK)
    do = answering(CallError("busy", "overload"), CallError("reset"), Answer("yes", ONE))
    assert asyncio.run(make(path, "s", ASK, do, ONE)).data == "yes"
    assert path.budget.spent == ONE
    assert path.budget.reserved == Usage()
    assert path.retried == 2


@pytest.mark.parametrize(
    ("faults", "error", "said", "retried"),
    [
        ([CallError("no such model", "permanent")], CallError, "no such model", 0),
        # A malformed answer is tried three times at most.
        ([CallError(f"broken {i}", "malformed") for i in range(5)], CallError, "broken 2", 2),
        # An empty account pauses the run, and so does a service that asks to wait for a day.
        ([CallError("quota exceeded", "quota")], BudgetError, "quota exceeded", 0),
        (
            [CallError("later", "rate_limit", retry_after=86400.0)],
            BudgetError,
            r"later; the service asks to wait 86400 s.*resumed",
            0,
        ),
        # What is no fault of a call is an error in the plugin.
        ([ZeroDivisionError("bug")], ZeroDivisionError, "bug", 0),
    ],
    ids=["permanent", "malformed", "quota", "a day", "bug"],
)
def test_what_will_not_pass_is_not_tried_again(
    faults: list[Exception], error: type[Exception], said: str, retried: int
) -> None:
    path = CallPath(retry=QUICK)
    with pytest.raises(error, match=said):
        asyncio.run(make(path, "s", ASK, answering(*faults, Answer("never")), ONE))
    assert path.retried == retried


def test_a_call_waits_a_little_longer_than_the_service_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("orchestrion._engine.attempts.asyncio.sleep", sleep)
    for i in range(20):
        do = answering(CallError("busy", "overload", retry_after=2.0), Answer("yes"))
        asyncio.run(make(CallPath(retry=QUICK), f"call {i}", ASK, do, ONE))
    assert all(2.0 <= pause <= 2.2 for pause in pauses)
    assert max(pauses) - min(pauses) > 0.05, "or all of them return at the same moment"


@sync
async def test_a_rate_limit_holds_up_all_calls_of_its_service() -> None:
    path = CallPath(retry=QUICK)
    began = time.monotonic()
    do = answering(CallError("slow down", "rate_limit", retry_after=0.05), Answer("yes"))
    assert (await make(path, "a", ASK, do, ONE)).data == "yes"
    limiter = path.budget.limiters[ASK.service]
    assert limiter._limit is not None, "concurrency was not limited before"
    assert limiter._pause_until >= began + 0.05


def test_a_failed_attempt_that_was_paid_for_is_booked() -> None:
    journal = Memory()
    path = CallPath(journal=journal, retry=QUICK)
    do = answering(CallError("broken off", "malformed", spent=ONE), Answer("yes", ONE))
    asyncio.run(make(path, "s", ASK, do, ONE))
    assert path.budget.spent == ONE + ONE
    assert [(row.answer, row.usage) for row in journal.rows.values()] == [(None, ONE), ("yes", ONE)]


def test_waiting_for_a_place_does_not_use_up_the_deadline_of_a_call() -> None:
    """A call at the end of a long queue may still be tried again."""
    retry = RetrySettings(base=0.0, cap=0.0, deadline=0.05)
    request = Request("service", 1, limits=CallLimits(concurrency=1))

    async def slow() -> Answer:
        await asyncio.sleep(0.1)
        return Answer("slow")

    async def both() -> list[Answer]:
        path = CallPath(retry=retry)
        second = answering(CallError("reset"), Answer("second"))
        return list(
            await asyncio.gather(
                make(path, "a", request, slow, ONE), make(path, "b", request, second, ONE)
            )
        )

    assert [answer.data for answer in asyncio.run(both())] == ["slow", "second"]


def test_a_call_that_never_answers_books_its_reservation() -> None:
    async def never() -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    path = CallPath(retry=RetrySettings(attempts=1))
    with pytest.raises(CallError, match=r"no answer within 0\.01 s"):
        asyncio.run(make(path, "s", Request("service", 1, timeout=0.01), never, ONE))
    assert path.budget.spent == ONE


def test_calls_with_one_time_limit_are_cut_off_each_at_its_own_time() -> None:
    async def main() -> list[object]:
        path = CallPath(retry=RetrySettings(attempts=1))

        async def quick() -> Answer:
            await asyncio.sleep(0)
            return Answer("quick", ONE)

        async def never() -> Answer:
            await asyncio.Event().wait()
            raise AssertionError

        def later() -> Awaitable[Answer]:
            # What is awaited need not be a coroutine.
            return asyncio.ensure_future(quick())

        async def ask(i: int) -> object:
            do: Callable[[], Awaitable[Answer]] = never if i % 50 == 0 else (quick, later)[i % 2]
            try:
                return (await make(path, f"s{i}", Request("s", i, timeout=600), do, ONE)).data
            except CallError as error:
                return error.fault

        return list(await asyncio.gather(*map(ask, range(200))))

    said = clock.run(main())
    assert said == ["transient" if i % 50 == 0 else "quick" for i in range(200)]


def test_a_budget_in_dollars_refuses_a_call_of_unknown_price() -> None:
    path = CallPath(Budget(Caps(usd=1.0)))
    with pytest.raises(BudgetError, match=f"price of {ASK.service} is not known"):
        asyncio.run(make(path, "s", ASK, answering(Answer(1)), Usage(usd=float("nan"))))


def test_minutes_run_out_and_stop_nothing_before() -> None:
    with pytest.raises(BudgetError, match=r"budget\.minutes"):
        Budget(Caps(minutes=1), elapsed=61.0).check()
    budget = Budget(Caps(minutes=10), elapsed=60.0)
    budget.check()
    assert 60.0 <= budget.elapsed < 600.0


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    st.integers(0, 40),
)
@settings(deadline=None, max_examples=50)
def test_a_cap_holds_with_any_number_of_calls_in_flight(
    sizes: list[tuple[int, int]], cap: int
) -> None:
    """spent + reserved <= cap at every moment, also when calls take less than they reserved."""
    budget = Budget(Caps(tokens=cap))
    path = CallPath(budget, retry=QUICK)

    async def call(i: int, worst: int, took: int) -> None:
        async def do() -> Answer:
            for _ in range(i % 4):
                await asyncio.sleep(0)
                assert budget.spent.tokens + budget.reserved.tokens <= cap
            return Answer(i, Usage(1, input_tokens=took))

        await make(path, str(i), Request("s", i), do, Usage(1, input_tokens=worst))

    async def main() -> list[object]:
        return await asyncio.gather(
            *(call(i, a + b, a) for i, (a, b) in enumerate(sizes)), return_exceptions=True
        )

    results = asyncio.run(main())
    assert all(result is None or isinstance(result, BudgetError) for result in results)
    assert budget.spent.tokens <= cap
    assert budget.reserved == Usage()


def test_calls_that_are_ready_together_share_commits() -> None:
    journal = Memory()

    async def main() -> None:
        path = CallPath(journal=journal)
        await asyncio.gather(
            *(make(path, f"k{i}", ASK, answering(Answer(i, ONE)), ONE) for i in range(50))
        )

    asyncio.run(main())
    assert len(journal.rows) == 50
    assert journal.commits <= 3


@sync
async def test_a_call_is_durable_before_its_answer_is_used_and_a_resumed_run_spends_nothing() -> (
    None
):
    journal = Memory()
    await make(CallPath(journal=journal), "k", ASK, answering(Answer("a", ONE)), ONE)
    [row] = journal.rows.values()
    assert row.answer == "a"
    again = CallPath(journal=journal)
    assert await make(again, "k", ASK, answering(), ONE) == Answer("a", ONE)
    assert again.budget.spent == Usage()


def test_calls_of_one_name_that_ask_otherwise_are_told_apart() -> None:
    """Episodes that are compared have common keys, and may come to say different things."""
    journal, other = Memory(), Request("service", {"q": 2})

    async def ask(path: CallPath, request: Request, *answers: Answer) -> object:
        return (await make(path, "k", request, answering(*answers), ONE)).data

    async def main() -> list[object]:
        path, replay = CallPath(journal=journal), ReplayPath(journal)
        made = [await ask(path, ASK, Answer("a")), await ask(path, other, Answer("b"))]
        return [*made, await ask(replay, ASK), await ask(replay, other)]

    assert asyncio.run(main()) == ["a", "b", "a", "b"]


def test_calls_of_one_name_that_ask_the_same_at_once_are_one_call() -> None:
    async def main() -> list[Answer]:
        path = CallPath(journal=Memory())
        do = answering(Answer("only", ONE))
        answers = await asyncio.gather(*(make(path, "k", ASK, do, ONE) for _ in range(5)))
        assert path.budget.spent == ONE
        return answers

    assert asyncio.run(main()) == [Answer("only", ONE)] * 5


def test_a_call_that_failed_for_good_is_tried_again_by_a_resume_and_fails_in_a_replay() -> None:
    journal = Memory()
    gone = CallError("gone", "permanent", retry_after=3.0)
    with pytest.raises(CallError):
        asyncio.run(make(CallPath(journal=journal), "k", ASK, answering(gone), ONE))
    replay = ReplayPath(journal)
    with pytest.raises(CallError, match="gone") as found:
        asyncio.run(make(replay, "k", ASK, answering(), ONE))
    assert (found.value.fault, found.value.retry_after) == ("permanent", 3.0)
    resumed = CallPath(journal=journal)
    assert asyncio.run(make(resumed, "k", ASK, answering(Answer("now", ONE)), ONE)).data == "now"
    again = ReplayPath(journal)
    assert asyncio.run(make(again, "k", ASK, answering(), ONE)).data == "now"


COMPUTED = Request("weights", {"q": 1}, computed=True)


def test_a_computed_answer_does_not_wait_for_the_disk_and_can_be_replayed() -> None:
    class Held(Memory):
        used = threading.Event()

        def put_many(self, rows: list[Recorded]) -> None:
            assert self.used.wait(60)
            super().put_many(rows)

    journal = Held()

    async def main() -> None:
        path = CallPath(journal=journal)
        answer = await make(path, "k", COMPUTED, answering(Answer("a", ONE)), ONE)
        assert (answer.data, journal.rows) == ("a", {})
        journal.used.set()
        await path.settle()

    asyncio.run(main())
    replayed = make(ReplayPath(journal), "k", COMPUTED, answering(), ONE)
    assert asyncio.run(replayed).data == "a"


def test_a_resumed_run_computes_an_answer_again() -> None:
    journal = Memory()
    for text in ("first", "second"):
        work = make(CallPath(journal=journal), "k", COMPUTED, answering(Answer(text, ONE)), ONE)
        assert asyncio.run(work).data == text


@sync
async def test_a_computed_answer_that_cannot_be_recorded_ends_the_run() -> None:
    class Full(Memory):
        def put_many(self, rows: list[Recorded]) -> None:
            raise StoreError("the disk is full")

    path = CallPath(journal=Full())
    await make(path, "k", COMPUTED, answering(Answer("a", ONE)), ONE)
    with pytest.raises(StoreError):
        await path.settle()
    with pytest.raises(StoreError):
        await make(path, "next", COMPUTED, answering(Answer("b", ONE)), ONE)


class Keeping(Memory):
    """A journal that also keeps what is under way."""

    keeps_attempts = True

    def put_many(self, rows: list[Recorded]) -> None:
        super().put_many(rows)
        for row in rows:
            self.rows.pop(row.ends, None)
        self.rows.pop("", None)


def test_an_attempt_is_on_record_before_it_is_made() -> None:
    journal = Keeping()

    async def do() -> Answer:
        [row] = journal.rows.values()
        assert (row.kind, row.usage) == ("started", ONE)
        return Answer("a", ONE)

    asyncio.run(make(CallPath(journal=journal), "k", ASK, do, ONE))
    assert [row.kind for row in journal.rows.values()] == ["answer"]


def test_attempts_without_an_answer_are_booked_by_what_became_of_them() -> None:
    journal = Keeping()
    billed = CallError("half an answer", "malformed", spent=Usage(1, usd=0.125))

    async def main() -> None:
        path = CallPath(journal=journal, retry=QUICK)
        do = answering(billed, CallError("busy", "overload"), Answer("a", ONE))
        await make(path, "k", ASK, do, ONE)
        assert path.budget.spent.usd == 0.375

        begun = asyncio.Event()

        async def never() -> Answer:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        task = asyncio.create_task(make(path, "cut", ASK, never, ONE))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await path.drain()

    asyncio.run(main())
    booked = {row.kind: (row.usage, row.facts.attempts) for row in journal.rows.values()}
    assert booked == {
        "billed": (Usage(1, usd=0.125), 1),
        "answer": (ONE, 3),
        "cut": (ONE, 1),
    }


def test_replay_forbids_what_was_not_recorded_or_asks_something_else() -> None:
    journal = Memory()
    asyncio.run(make(CallPath(journal=journal), "k", ASK, answering(Answer("a", ONE)), ONE))
    for place, request in (("other", ASK), ("k", Request("service", {"q": 2}))):
        with pytest.raises(ReplayError, match=r"no recorded call .* or asks something else now"):
            asyncio.run(make(ReplayPath(journal), place, request, answering(Answer(1)), ONE))


class Cache(dict[str, Recorded]):
    """Answers beyond a call path, by the digests of their requests."""

    def put(self, row: Recorded) -> None:
        self[row.key] = row


def test_the_cache_answers_equal_requests_but_never_another_sample() -> None:
    cache = Cache()
    first = Request("s", "q", sample="0", cache=True)
    other = Request("s", "q", sample="1", cache=True)

    async def main(*requests: Request) -> list[object]:
        path = CallPath(cache=cache)
        return [
            (await make(path, f"k{i}", request, answering(Answer(i, ONE)), ONE)).data
            for i, request in enumerate(requests)
        ] + [path.budget.spent.calls]

    assert asyncio.run(main(first, first, other)) == [0, 0, 2, 2]
    assert asyncio.run(main(other, first)) == [2, 0, 0], "a later part of the run"


@pytest.mark.parametrize("width", [1, 5, 64])
def test_concurrency_is_never_above_its_limit_and_reaches_it(width: int) -> None:
    async def main() -> int:
        limiter = ServiceLimiter(CallLimits(concurrency=width))
        most = 0

        async def call() -> None:
            nonlocal most
            async with limiter.slot(0):
                most = max(most, limiter.active)
                await asyncio.sleep(0)

        await asyncio.gather(*(call() for _ in range(200)))
        assert limiter.active == 0
        return most

    assert asyncio.run(main()) == width


@pytest.mark.parametrize("granted", [False, True])
@sync
async def test_a_cancelled_waiter_frees_its_place(granted: bool) -> None:
    limiter = ServiceLimiter(CallLimits(concurrency=1))

    async def hold() -> None:
        async with limiter.slot(0):
            await asyncio.Event().wait()

    holder, waiter = asyncio.create_task(hold()), asyncio.create_task(hold())
    await asyncio.sleep(0)
    holder.cancel()
    if granted:  # a tick later the place is the waiter's, which does not know it yet
        await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    async with asyncio.timeout(20), limiter.slot(0):
        assert limiter.active == 1


def test_requests_per_minute_are_spaced_by_a_clock() -> None:
    now = 0.0
    limiter = ServiceLimiter(CallLimits(requests_per_minute=60), clock=lambda: now)
    assert limiter.waited == 0.0
    bucket = limiter._buckets["requests"]
    for _ in range(10):
        assert bucket.wait(1) == 0
        bucket.level -= 1
    assert bucket.wait(1) == pytest.approx(1.0)
    now = 1.0
    assert bucket.wait(1) == 0


def test_a_rate_limit_shrinks_concurrency_once_per_cool_down_and_success_grows_it_back() -> None:
    now = 0.0
    limiter = ServiceLimiter(CallLimits(concurrency=10), clock=lambda: now)
    limiter.active = 10
    limiter.rate_limited(0.0)
    limiter.rate_limited(0.0)
    assert limiter._limit == 8
    for _ in range(200):
        limiter.succeeded()
    assert limiter._limit == 10


class Caller(Agent):
    """Makes two calls a turn, the second of which may fail."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        await calls.run(ASK, answering(Answer("a", ONE)), ONE)
        if self.fails:
            await calls.run(ASK, answering(CallError("gone", "permanent")), ONE)
        return Output("said", usage=Usage(cost=3))


@pytest.mark.parametrize("fails", [False, True])
def test_what_went_through_calls_is_booked_on_the_turn_once_also_if_it_failed(fails: bool) -> None:
    engine = engine_for({"a": Caller(fails)}, Fixed("a"))
    turn = asyncio.run(engine.run("e", Problem("p"), Key(1))).turns[0]
    if fails:
        assert (turn.status, turn.output.content, turn.usage) == ("failed", "", ONE)
    else:
        assert turn.usage == Usage(1, 10, 5, 0.25, 3.0)


def test_an_exhausted_budget_ends_the_run_not_the_turn() -> None:
    engine = engine_for({"a": Caller()}, Fixed("aa"), calls=CallPath(Budget(Caps(calls=1))))
    with pytest.raises(BudgetError, match=r"budget\.calls: 1 of 1 spent"):
        asyncio.run(engine.run("e", Problem("p"), Key(1)))


def test_a_trainer_has_calls_of_its_own_that_a_resume_does_not_repeat() -> None:
    journal = Memory()

    async def main(*answers: Answer) -> list[object]:
        engine = engine_for({"a": Caller()}, Fixed("a"), calls=CallPath(journal=journal))
        engine.stage = "trainer"
        session = EngineSession(engine, "0/0", Key(1), Key(2))
        do = answering(*answers)
        keys = [session.key.child("reflect", n) for n in range(2)]
        return [(await session.calls(key).run(ASK, do, ONE)).data for key in keys]

    assert asyncio.run(main(Answer("a", ONE), Answer("b", ONE))) == ["a", "b"]
    assert asyncio.run(main()) == ["a", "b"]
    facts = [row.facts for row in journal.rows.values()]
    assert {(one.service, one.who, one.stage) for one in facts} == {
        ("service", "trainer", "trainer")
    }


class Slow(ListTask):
    """Verifies and lets agents work in no time, or never."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        object.__setattr__(self, "gate", gate)

    async def verify(self, *args: Any, **kwargs: Any) -> Scores:
        await self.gate.wait()  # type: ignore[attr-defined]
        return await super().verify(*args, **kwargs)


@pytest.mark.parametrize("who", ["agent", "verifier"])
def test_what_was_too_late_is_too_late_in_a_replay_however_fast_that_is(who: str) -> None:
    journal = Memory()

    async def run(replay: bool) -> Episode:
        never, now = asyncio.Event(), asyncio.Event()
        now.set()
        late = now if replay else never
        engine = engine_for(
            {"a": ScriptedAgent(gate=late if who == "agent" else now)},
            Fixed("a"),
            task=Slow(late if who == "verifier" else now),
            calls=ReplayPath(journal) if replay else CallPath(journal=journal),
            timeout=600,
        )
        return await engine.run("e", Problem("p"), Key(1))

    recorded = clock.run(run(False))
    said = recorded.error if who == "verifier" else recorded.turns[0].error
    assert "no result within 600 s" in said
    assert asyncio.run(run(True)) == recorded
