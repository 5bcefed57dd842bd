"""What calls cost, and that a budget holds whatever happens."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_llm.models import OpenAIModel
from orchestrion_llm.prices import LongPrice, Price, Tokens, known_price, usage_of

from orchestrion import BudgetError, Key
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion.testing import Fixed, ScriptedAgent, engine_for
from tests.plugins.llm.apis import APIS, ASK, QUICK, Api, Caps, ask, context
from tests.plugins.llm.test_requests import noted
from tests.service import ModelService, reply

PRICE = Price(input=10.0, output=50.0, cached_input=1.0, cache_write=12.5)


def test_each_kind_of_token_has_its_rate() -> None:
    tokens = Tokens(input=1_000_000, output=100_000, cached=500_000, written=200_000)
    assert PRICE.usd(tokens) == pytest.approx(0.3 * 10 + 0.5 * 1 + 0.2 * 12.5 + 0.1 * 50)
    plain = Price(input=10.0, output=50.0)
    assert plain.usd(tokens) == pytest.approx(0.3 * 10 + 0.5 * 10 + 0.2 * 10 + 5)
    assert plain.writing().usd(tokens) == pytest.approx(0.3 * 10 + 0.5 * 10 + 0.2 * 20 + 5)


def test_uses_of_the_services_own_tools_are_reserved_and_without_a_price_unknown() -> None:
    request = {**ASK, "vendor_tools": {"web_search": 3}}
    with ModelService(reply(200, Api("responses").good())) as server:
        for tools, more in (({"web_search": 0.01}, 0.03), ({}, math.nan)):
            priced = evolve(PRICE, tools=tools)
            plain, own = (
                noted(Api("responses").settings(server.url, price=priced), one)[1]
                for one in (ASK, request)
            )
            tokens = own.input_tokens - plain.input_tokens
            assert tokens >= 3 * 20_000
            assert own.usd - plain.usd == pytest.approx(more + tokens * 12.5 / 1e6, nan_ok=True)


def test_what_is_written_to_the_cache_for_an_hour_has_its_own_rate() -> None:
    tokens = Tokens(input=1_000_000, output=0, written=1_000_000, written_hour=400_000)
    assert PRICE.usd(tokens) == pytest.approx(0.6 * 12.5 + 0.4 * 20)
    own = Price(input=10.0, output=50.0, cache_write=12.5, cache_write_hour=15.0)
    assert own.usd(tokens) == pytest.approx(0.6 * 12.5 + 0.4 * 15)


def test_hour_long_writes_are_booked_as_such_and_reserved_where_they_are_asked_for() -> None:
    api = Api("anthropic")
    body = api.good()
    body["usage"] |= {
        "cache_creation_input_tokens": 1000,
        "cache_read_input_tokens": 2000,
        "input_tokens": 100,
        "cache_creation": {"ephemeral_1h_input_tokens": 1000, "ephemeral_5m_input_tokens": 0},
    }
    extra = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    with ModelService(reply(200, body)) as server:
        settings = api.settings(server.url, price=PRICE, extra=extra)
        answer = ask(settings)
    assert answer.usage.usd == pytest.approx((100 * 10 + 2000 * 1 + 1000 * 20 + 3 * 50) / 1e6)
    reserve = noted(settings)[1]
    assert reserve.usd == pytest.approx((reserve.input_tokens * 20 + 4096 * 50) / 1e6)
    short = noted(api.settings("http://h:1", price=PRICE))[1]
    assert short.usd == pytest.approx((short.input_tokens * 12.5 + 4096 * 50) / 1e6)


def test_a_long_prompt_is_charged_as_one() -> None:
    price = Price(1.0, 2.0, long=LongPrice(over=100, input=3.0, output=4.0))
    assert price.usd(Tokens(100, 1_000_000)) == pytest.approx(2.0001)
    assert price.usd(Tokens(101, 1_000_000)) == pytest.approx(4.000303)


rates = st.floats(0, 100)
prices = st.builds(
    Price,
    rates,
    rates,
    st.none() | rates,
    st.none() | rates,
    st.none() | rates,
    st.none() | st.builds(LongPrice, rates, rates, over=st.integers(1, 300)),
)


@given(prices, st.integers(0, 500), st.integers(0, 50), st.data())
def test_a_reservation_is_never_less_than_what_is_charged(
    price: Price, most_in: int, most_out: int, data: st.DataObject
) -> None:
    taken = data.draw(st.integers(0, most_in))
    cached = data.draw(st.integers(0, taken))
    written = data.draw(st.integers(0, taken - cached))
    hour = data.draw(st.integers(0, written))
    tokens = Tokens(taken, data.draw(st.integers(0, most_out)), cached, written, hour)
    price = price.writing() if data.draw(st.booleans()) else price
    most = price.most(most_in, most_out, hour=hour > 0)
    assert price.usd(tokens) <= most * (1 + 1e-9) + 1e-12


def test_a_call_without_price_costs_nan() -> None:
    usage = usage_of(Tokens(3, 4), None)
    assert math.isnan(usage.usd)
    assert usage.cost == 0.0, "rewards stay numbers"


@pytest.mark.parametrize(
    ("vendor", "model", "of"),
    [
        ("openai", "gpt-5", "gpt-5"),
        ("openai", "gpt-5-2025-08-07", "gpt-5"),
        ("openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai", "gpt-5-unheard-of", None),
        ("openai", "gpt", None),
        ("openai", "claude-opus-5-5", None),
        ("anthropic", "claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("anthropic", "claude-sonnet-99", None),
    ],
)
def test_a_dated_snapshot_has_the_price_of_its_model(
    vendor: str, model: str, of: str | None
) -> None:
    price = known_price(vendor, model)
    assert price == (None if of is None else known_price(vendor, of))
    assert (price is None) == (of is None)


@pytest.mark.parametrize(
    ("vendor", "model"),
    [
        ("openai", "gpt-5-mini"),
        ("openai", "gpt-5.1"),
        ("openai", "gpt-5.5"),
        ("openai", "gpt-6-sol"),
        ("openai", "gpt-6.1-sol"),
        ("openai", "o3"),
        ("openai", "o4-mini"),
        ("anthropic", "claude-haiku-5-5"),
        ("anthropic", "claude-mythos-5-2"),
        ("anthropic", "claude-sonnet-5-5"),
    ],
)
def test_models_of_today_have_prices_that_can_be_true(vendor: str, model: str) -> None:
    price = known_price(vendor, model)
    assert price is not None
    assert 0 < price.input < price.output
    assert price.cached_input is not None
    assert 0 < price.cached_input < price.input


def test_a_long_prompt_and_a_dearer_service_tier_have_prices_of_their_own() -> None:
    price = known_price("openai", "gpt-6-sol")
    assert price is not None
    assert price.long is not None
    assert price.long.input > price.input
    fast = known_price("openai", "gpt-6-sol", extra={"service_tier": "priority"})
    assert fast is not None
    assert fast.output > price.output


def test_what_is_not_sold_by_input_and_output_has_no_price() -> None:
    assert known_price("openai", "text-embedding-3-small") is None


def test_other_sellers_are_known_by_their_address_and_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("a look-up went to the network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert known_price("openai", "mistral-large-latest", "https://api.mistral.ai/v1") is not None
    assert known_price("openai", "gpt-5", "http://localhost:8000/v1") is None
    assert known_price("openai", "gpt-5", "https://models.example.com/v1") is None


def test_a_look_up_is_what_imports_the_library() -> None:
    script = """if True:
        import sys
        import orchestrion_llm.models, orchestrion_llm.prices
        assert "genai_prices" not in sys.modules
        assert orchestrion_llm.prices.known_price("openai", "gpt-5-mini")
        assert "genai_prices" in sys.modules
    """
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_price_in_the_config_wins_and_other_sellers_have_other_prices() -> None:
    def reserved(**more: Any) -> float:
        return float(noted(OpenAIModel(model="gpt-5", **more))[1].usd)

    assert reserved(max_tokens=1_000_000) == pytest.approx(10.0, abs=0.01)
    assert reserved(max_tokens=1_000_000, price=Price(0, 1)) == pytest.approx(1.0)
    assert math.isnan(reserved(base_url="http://h/v1"))
    assert reserved(base_url="http://h/v1", price=Price(0, 0)) == 0.0


def test_a_dollar_budget_refuses_a_model_without_price(
    api: Api,
) -> None:
    path = CallPath(Budget(Caps(usd=1.0)), retry=QUICK)
    with (
        ModelService(reply(200, api.good())) as server,
        pytest.raises(BudgetError, match=r"give its `?price"),
    ):
        ask(api.settings(server.url), path=path)
    assert server.seen == []


def test_a_dollar_budget_suggests_a_similar_model_name() -> None:
    path = CallPath(Budget(Caps(usd=1.0)), retry=QUICK)
    with pytest.raises(BudgetError, match=r"`price` .*did you mean 'gpt-5-mini'\?"):
        ask(OpenAIModel(model="gpt-5-mimi", key_env="TEST_KEY", preflight=False), path=path)


def test_an_image_is_reserved_by_its_tokens_and_not_by_its_bytes(api: Api) -> None:
    def reserved(data: str) -> int:
        image = {"type": "image", "media_type": "image/png", "data": data}
        request: Any = {"messages": [{"role": "user", "content": [image]}]}
        return int(noted(api.settings("http://h:1", image_tokens=700), request)[1].input_tokens)

    assert reserved("AAAA" * 100_000) == reserved("AAAA")
    assert 700 < reserved("AAAA") < 1400


def test_a_reservation_is_the_prompts_bytes_and_the_most_of_output(api: Api) -> None:
    text = "wörld " * 50
    request = {"messages": [{"role": "user", "content": text}], "max_tokens": 30}
    _, reserve = noted(api.settings("http://h:1", price=PRICE), request)
    assert reserve.calls == 1
    assert len(text.encode()) < reserve.input_tokens < len(text.encode()) + 300
    assert reserve.output_tokens == 30
    assert reserve.usd == pytest.approx((reserve.input_tokens * 12.5 + 30 * 50) / 1e6)
    tools = {**request, "tools": [{"name": "t", "schema": {"type": "object"}}]}
    assert noted(api.settings("http://h:1"), tools)[1].input_tokens > reserve.input_tokens + 1000


def test_the_ceiling_bounds_every_reservation(api: Api) -> None:
    async def ceilings() -> Any:
        settings = api.settings("http://h:1", price=PRICE, max_tokens=77)
        async with settings.open(context()) as model:  # type: ignore[attr-defined]
            return model.ceiling(1000)

    most = asyncio.run(ceilings())
    assert (most.calls, most.output_tokens) == (1, 77)
    assert most.input_tokens >= 1000
    assert most.usd == pytest.approx((most.input_tokens * 12.5 + 77 * 50) / 1e6)


@pytest.mark.parametrize(
    ("api", "capped"), list(zip(APIS, ["calls", "tokens", "usd"], strict=True)), ids=str
)
def test_with_100_calls_in_flight_a_budget_is_never_passed(api: Api, capped: str) -> None:
    """Over the real SDK: each answer takes 12 + 3 tokens, far less than each reservation."""
    caps = {"calls": Caps(calls=37), "tokens": Caps(tokens=9000), "usd": Caps(usd=0.05)}[capped]
    budget = Budget(caps)
    path = CallPath(budget, retry=QUICK)
    held: list[bool] = []

    def within() -> bool:
        spent, reserved = budget.spent, budget.reserved
        return (
            (caps.calls is None or spent.calls + reserved.calls <= caps.calls)
            and (caps.tokens is None or spent.tokens + reserved.tokens <= caps.tokens)
            and (caps.usd is None or spent.usd + reserved.usd <= caps.usd + 1e-12)
        )

    async def flood(url: str) -> list[Any]:
        engine = engine_for({"a": ScriptedAgent()}, Fixed(), calls=path)
        settings = api.settings(url, price=PRICE, max_tokens=20)
        async with settings.open(context()) as model:  # type: ignore[attr-defined]

            async def one(i: int) -> Any:
                calls = ActivationCalls(engine, Key(3).child(i))
                try:
                    return await model.complete(ASK, Key(2).child(i), calls)
                finally:
                    held.append(within())

            return await asyncio.gather(*map(one, range(100)), return_exceptions=True)

    with ModelService(reply(200, api.good())) as server:
        found = asyncio.run(flood(server.url))
    answered = [one for one in found if not isinstance(one, BaseException)]
    refused = [one for one in found if isinstance(one, BudgetError)]
    assert len(answered) + len(refused) == 100
    assert len(answered) == (37 if capped == "calls" else 100), "what did not fit at once waited"
    assert all(held)
    assert len(server.seen) == len(answered), "what the budget refused was not sent"
    assert budget.spent.calls == len(answered)
    assert budget.reserved.calls == 0
