"""What the stub server draws: answers, latencies, troubles; asked by the real SDKs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import Any

import anthropic
import openai
import pytest
from orchestrion_offline.server import StubServer, serving
from orchestrion_offline.settings import Serving, Troubles
from orchestrion_offline.speakers.plain import Echo
from orchestrion_offline.speakers.steps import Solver
from orchestrion_offline.steps import draw_sheet

from orchestrion import Key
from tests.contrib_agents.offline.asks import Asks, given_asks, raw, with_asks

SHEET = draw_sheet("mixed", 6, 418, Key(2))
# ---------------------------------------------------------------- draws


def many(asks: Asks, count: int) -> list[Awaitable[tuple[Any, ...]]]:
    return [asks.chat("m", SHEET.text, f"key-{n}") for n in range(count)]


def test_answers_depend_only_on_key_and_body() -> None:
    solver = Solver(skills={}, skill=0.4)

    async def at_once(asks: Asks) -> list[Any]:
        return list(await asyncio.gather(*many(asks, 24)))

    async def backwards(asks: Asks) -> list[Any]:
        return [await answer for answer in many(asks, 24)[::-1]][::-1]

    quick = with_asks(at_once, solver)
    late = Serving(latency=0.03, spread=1.0, law="lognormal")
    assert quick == with_asks(at_once, solver, late) == with_asks(backwards, solver)
    assert len({answer[0] for answer in quick}) > 5
    assert quick != with_asks(at_once, solver, Serving(seed=1))


def test_latency_follows_its_law_and_is_drawn_from_the_request() -> None:
    for law, spread in (("uniform", 0.5), ("lognormal", 0.4)):
        serving_ = Serving(latency=0.2, spread=spread, law=law)  # type: ignore[arg-type]
        delays = sorted(serving_.delay(Key(n)) for n in range(2000))
        assert abs(delays[1000] - 0.2) < 0.02
        if law == "uniform":
            assert 0.1 <= delays[0] < 0.11
            assert 0.29 < delays[-1] <= 0.3
        assert serving_.delay(Key(3)) == serving_.delay(Key(3))


@given_asks(Echo(), Serving(latency=0.6))
async def test_latency_passes_before_an_answer_and_calls_wait_together(asks: Asks) -> None:
    await asks.chat("m", "warm up")
    began = time.perf_counter()
    await asyncio.gather(*(asks.messages("m", str(n)) for n in range(100)))
    # A hundred that waited one after the other would take a minute, however fast the machine is.
    assert 0.6 <= time.perf_counter() - began < 100 * 0.6


def test_an_answer_takes_the_time_of_its_tokens() -> None:
    server = StubServer({"m": Echo()}, Serving(tokens_per_second=100))
    message = {"role": "user", "content": "x" * 80}  # 20 tokens
    for stream in (False, True):
        body = {"model": "m", "max_tokens": 50, "messages": [message], "stream": stream}
        headers = {"x-api-key": "k"}
        reply = server.handle("POST", "/v1/messages", headers, json.dumps(body).encode())
        delays = [delay for delay, _ in reply.parts]
        assert sum(delays) == pytest.approx(0.2)
        assert len(set(delays[1:-1])) == stream, "pieces of a stream are equally far apart"


def test_a_repeated_request_without_a_key_is_drawn_again() -> None:
    async def work(asks: Asks) -> list[Any]:
        return [await asks.chat("m", SHEET.text) for _ in range(12)]

    solver = Solver(skills={}, skill=0.4)
    results = with_asks(work, solver)
    assert len({answer[0] for answer in results}) > 3
    assert results == with_asks(work, solver)


# ---------------------------------------------------------------- troubles

FAULTS: dict[str, tuple[type[Exception], ...]] = {
    "rate_limited": (openai.RateLimitError, anthropic.RateLimitError),
    "rate_limited_bare": (openai.RateLimitError, anthropic.RateLimitError),
    "server_error": (openai.InternalServerError, anthropic.InternalServerError),
    "overloaded": (openai.InternalServerError, anthropic.OverloadedError),
    "broken_json": (json.JSONDecodeError,),
    "dropped": (openai.APIConnectionError, anthropic.APIConnectionError),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sdk_raises_the_error_of_an_injected_fault(fault: str) -> None:
    async def work(asks: Asks) -> None:
        for ask in asks.wires.values():
            with pytest.raises(FAULTS[fault]) as caught:
                await ask("m", "x")
            response = getattr(caught.value, "response", None)
            if fault.startswith("rate_limited"):
                assert response is not None
                hint = response.headers.get("retry-after")
                assert hint == ("7" if fault == "rate_limited" else None)
            if fault == "overloaded":
                status = response.status_code  # type: ignore[union-attr]
                assert status == (529 if ask == asks.messages else 503)

    with_asks(work, Echo(), Serving(troubles=Troubles(**{fault: 1.0}, retry_after=7)))


@pytest.mark.parametrize("fault", ["dropped", "broken_json"])
def test_a_stream_that_breaks_has_no_end(fault: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * 50}], "stream": True}
    behaviour = Serving(troubles=Troubles(**{fault: 1.0}))

    async def work() -> bytes:
        async with serving({"m": Echo()}, behaviour) as server:
            _, results = await raw(server, "/v1/chat/completions", json.dumps(body).encode())
            return results

    results = asyncio.run(work())
    assert b"word" in results
    assert b"[DONE]" not in results
    assert results.endswith(b"0\r\n\r\n") is (fault == "broken_json")


def test_a_retry_after_a_fault_gives_the_same_answer() -> None:
    solver = Solver(skills={}, skill=0.4)
    troubles = Serving(troubles=Troubles(server_error=0.3, rate_limited_bare=0.2))

    async def stubborn(asks: Asks) -> tuple[list[Any], int]:
        failed, results = 0, []
        for n in range(30):
            while True:
                try:
                    results.append(await asks.chat("m", SHEET.text, f"key-{n}"))
                    break
                except openai.APIStatusError:
                    failed += 1
        return results, failed

    async def smooth(asks: Asks) -> list[Any]:
        return list(await asyncio.gather(*many(asks, 30)))

    results, failed = with_asks(stubborn, solver, troubles)
    assert results == with_asks(smooth, solver)
    assert 10 < failed < 70


def test_faults_have_the_set_frequency() -> None:
    troubles = Troubles(rate_limited=0.1, server_error=0.2, dropped=0.05)
    drawn = [troubles.fault(Key(n)) for n in range(4000)]
    for name, share in (
        ("rate_limited", 0.1),
        ("server_error", 0.2),
        ("dropped", 0.05),
        ("", 0.65),
    ):
        assert abs(drawn.count(name) / 4000 - share) < 0.03
    assert not troubles.ending(Key(1))


def test_refusals_and_truncations_stay_when_a_call_is_repeated() -> None:
    async def work(asks: Asks) -> list[Any]:
        results = [await ask("m", "abcdefgh" * 4, "k1") for ask in asks.wires.values()]
        assert results == [await ask("m", "abcdefgh" * 4, "k1") for ask in asks.wires.values()]
        return results

    for text, stop, *_ in with_asks(work, Echo(), Serving(troubles=Troubles(refusal=1.0))):
        assert (text, stop) == ("I cannot help with that.", "refused")
    for text, stop, _, _, wrote in with_asks(
        work, Echo(), Serving(troubles=Troubles(truncation=1.0))
    ):
        assert (text, stop, wrote) == ("abcdefgh" * 2, "length", 4)


def test_shares_of_troubles_above_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"got 1\.2, expected at most 1"):
        Troubles(dropped=0.6, server_error=0.6)


@given_asks(Echo(), Serving(requests_per_minute=3))
async def test_a_rate_limit_sends_the_time_to_wait(asks: Asks) -> None:
    for n in range(3):
        await asks.chat("m", str(n))
    with pytest.raises(openai.RateLimitError) as caught:
        await asks.chat("m", "one too many")
    wait = float(caught.value.response.headers["retry-after"])
    assert 19 < wait <= 20
