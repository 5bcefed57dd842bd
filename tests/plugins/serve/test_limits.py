"""What a key may use, what a request may take, and what the metrics say of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_serve import Settings
from orchestrion_serve import limits as limits_module
from orchestrion_serve.keys import Keys
from orchestrion_serve.limits import Account, Accounts, KeyLimits
from orchestrion_serve.refusals import Refusal

from orchestrion import StoreError, Usage, UsageError
from tests.coroutines import sync
from tests.plugins.serve.support import (
    ANN,
    BEN,
    CHAT,
    GATE,
    HERE,
    WAIT,
    Server,
    chat,
    config,
    keys_of,
    served,
)

PAYS, BROKE = {"use": f"{HERE}:Pays"}, {"use": f"{HERE}:Broke"}


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Configs by their names; a server is opened with those that its test asks."""
    folder = tmp_path_factory.mktemp("teams")
    agents: dict[str, dict[str, Any]] = {
        "echo": {"only": "Says"},
        "dear": {"first": "Says", "second": "Waits"},
        "paid": {"only": {**PAYS, "waits": "after"}},
        "cut": {"only": {**PAYS, "waits": "before"}},
        "unpriced": {"only": {**PAYS, "usd": None}},
        "burns": {"only": {**BROKE, "fault": "malformed", "usd": 0.25}},
        "empty": {"only": {**BROKE, "fault": "quota"}},
        "busy": {"only": {**BROKE, "fault": "rate_limit", "wait": 1000}},
    }
    return {
        **{name: config(folder, name, team) for name, team in agents.items()},
        "capped": config(folder, "capped", {"only": {**PAYS, "usd": None}}, budget={"usd": 1}),
    }


@pytest.fixture(scope="module")
def server(teams: dict[str, str]) -> Iterator[Server]:
    with served(*teams.values(), settings=Settings(max_usd=1.0)) as running:
        yield running


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(0, 60)), max_size=60),
    st.integers(1, 5),
    st.integers(1, 100),
)
def test_no_minute_has_more_than_its_limit_and_retry_after_is_enough(
    arrivals: list[tuple[float, int]], requests: int, tokens: int
) -> None:
    clock, let_in = Clock(), list[tuple[float, int]]()
    account = Account(KeyLimits(requests, tokens), clock, lambda: None)
    for pause, used in arrivals:
        clock.now += pause
        try:
            account.admit()
        except Refusal as refusal:
            clock.now += int(refusal.headers["retry-after"]) - 1.001
            with pytest.raises(Refusal):
                account.admit()
            clock.now += 1.001
            account.admit()
        account.charge(Usage(1, used, 0))
        let_in.append((clock.now, used))
        minute = [count for at, count in let_in if at > clock.now - 60]
        assert len(minute) <= requests
        assert sum(minute[:-1]) < tokens, "the last one was let in below the limit"


def test_money_is_counted_by_day_and_in_all_and_survives_a_restart(tmp_path: Path) -> None:
    file, clock = tmp_path / "keys.spent", Clock()
    clock.now = 10 * 86_400 + 1.0
    limits = {"ann": KeyLimits(usd_a_day=1.0, usd=2.5), "ben": KeyLimits(requests=1)}

    async def spend(usd: float) -> Accounts:
        accounts = Accounts(limits, file, clock)
        ann = accounts.of("ann")
        assert ann is not None
        ann.admit()
        ann.charge(Usage(usd=usd))
        ann.charge(Usage(usd=float("nan")))
        accounts.close()
        return accounts

    def refusal() -> Refusal:
        with closing(Accounts(limits, file, clock)) as accounts:
            ann = accounts.of("ann")
            assert ann is not None
            with pytest.raises(Refusal) as caught:
                ann.admit()
        return caught.value

    asyncio.run(spend(1.0))
    assert (refusal().status, refusal().headers["retry-after"]) == (429, "86399")
    clock.now += 86_400
    asyncio.run(spend(1.5))
    assert (refusal().status, refusal().code) == (402, "insufficient_quota")
    clock.now += 86_400
    assert refusal().status == 402
    for text in ("[1]", '{"ann": [NaN, 0, 0]}', '{"ann": [-5, 0, 0]}'):
        file.write_text(text)
        with pytest.raises(UsageError, match="is not what this server wrote"):
            Accounts(limits, file)


def test_two_servers_do_not_spend_the_money_of_one_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"ann {'a' * 64} usd=1")
    first = Keys.read(file).accounts
    with pytest.raises(
        StoreError, match=r"keys\.spent: another server counts what these keys spend"
    ):
        Keys.read(file)
    first.close()
    first.close()
    Keys.read(file).accounts.close()
    file.write_text(f"ann {'a' * 64} requests/minute=60")
    several = [Keys.read(file) for _ in range(2)]
    assert len(several) == 2, "no money is counted, so nothing is written"


@sync
async def test_spend_that_could_not_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "SAVING", 0.0)
    monkeypatch.setattr(limits_module, "AGAIN", 0.0)
    tries = list[Path]()
    written = asyncio.Event()

    def write(file: Path, pieces: list[bytes]) -> None:
        tries.append(file)
        if len(tries) == 1:
            raise StoreError("the disk is full")
        written.set()

    monkeypatch.setattr(limits_module, "write_atomic", write)
    accounts = Accounts({"ann": KeyLimits(usd=1)}, tmp_path / "keys.spent")
    account = accounts.of("ann")
    assert account is not None
    account.charge(Usage(usd=0.5))
    async with asyncio.timeout(WAIT):
        await written.wait()
    assert len(tries) == 2
    accounts.close()


def test_a_key_beyond_its_limit_is_told_when_and_others_go_on(teams: dict[str, str]) -> None:
    keys = keys_of(ann=KeyLimits(requests=2), ben=KeyLimits(usd=0.5))
    with served(teams["echo"], keys=keys) as server:
        assert [server.ask("echo", ANN)[0] for _ in range(2)] == [200, 200]
        status, data, headers = server.ask("echo", ANN)
        assert (status, data["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(headers["retry-after"]) <= 60
        codes = [server.code("echo", BEN) for _ in range(3)]
        assert codes == [(200, ""), (200, ""), (402, "insufficient_quota")]
        assert server.ask("echo", "c" * 32)[0] == 401


def test_a_request_bounds_its_own_time_and_cost_within_the_servers(server: Server) -> None:
    GATE.reset()
    status, data, headers = server.ask("dear", x_orchestrion_max_usd="0.2")
    assert (status, data["error"]["code"]) == (402, "cost_limit")
    assert headers["x-should-retry"] == "false"
    assert server.record()["usd"] == 0.25
    assert server.code("dear", x_orchestrion_timeout="0.05") == (504, "timeout")
    assert GATE.cancelled.wait(WAIT)
    assert server.ask("echo", x_orchestrion_max_usd="5")[0] == 200
    assert server.code("unpriced", x_orchestrion_max_usd="5") == (402, "unknown_price")
    assert server.record()["usd"] is None
    for wrong in ("0", "-1", "nan", "1e9", "a", "1 2"):
        assert server.ask("echo", x_orchestrion_timeout=wrong)[0] == 400


def test_what_a_cancelled_turn_paid_is_booked(teams: dict[str, str]) -> None:
    keys = keys_of(ann=KeyLimits(usd=0.5))
    with served(teams["echo"], teams["paid"], keys=keys) as server:
        with closing(server.connect()) as connection:
            headers = {"content-type": "application/json", "authorization": f"Bearer {ANN}"}
            connection.request("POST", CHAT, chat("paid", stream=True), headers)
            assert GATE.came.acquire(timeout=WAIT)
        record = server.record()
        assert (record["error"], record["usd"], record["tokens"]) == ("client_gone", 0.5, 50)
        assert server.code("echo", ANN) == (402, "insufficient_quota")


def test_what_a_stopping_server_cancels_is_booked_on_disk(
    teams: dict[str, str], tmp_path: Path
) -> None:
    spent = tmp_path / "keys.spent"
    keys = keys_of(spent, ann=KeyLimits(usd=100))
    stopping = served(teams["cut"], keys=keys, settings=Settings(drain=0.01))
    with ThreadPoolExecutor(1) as pool, stopping as server:
        asked = pool.submit(server.code, "cut", ANN)
        assert GATE.came.acquire(timeout=WAIT)
        asyncio.run_coroutine_threadsafe(server.running.drain(), server.loop).result(WAIT)
        assert json.loads(spent.read_text())["ann"][0] == 0.5
        assert asked.result(WAIT) == (503, "stopping")


def test_a_key_pays_for_failed_turns_and_for_attempts_without_an_answer(
    teams: dict[str, str],
) -> None:
    keys = keys_of(ann=KeyLimits(usd=0.5))
    with served(teams["echo"], teams["burns"], keys=keys) as server:
        assert server.ask("burns", ANN)[0] == 502
        record = server.record()
        assert (record["usd"], record["tokens"]) == (0.5, 40)
        assert server.code("echo", ANN) == (402, "insufficient_quota")


def test_what_a_team_waits_for_or_cannot_pay_is_told_apart_without_its_internals(
    server: Server,
) -> None:
    assert server.code("empty") == (402, "insufficient_quota")
    assert "/secret/place" in server.record()["reason"]
    assert server.code("capped") == (402, "unknown_price")
    status, data, headers = server.ask("busy")
    assert (status, data["error"]["code"]) == (503, "service_waits")
    assert headers["retry-after"] == "1000"


def test_metrics_count_by_model_and_status_and_name_no_tenant(teams: dict[str, str]) -> None:
    with served(teams["echo"], keys=keys_of(annotated_tenant=None)) as server:
        for model in ("echo", "echo", "other\nforged 1"):
            server.ask(model, ANN)
        server.ask()
        assert server.answer("/metrics")[0] == 401
        own = {"authorization": f"Bearer {ANN}"}
        _, text, headers = server.answer("/metrics", headers=own)
        assert headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['orchestrion_requests_total{model="echo",status="200"}'] == "2.0"
    assert lines['orchestrion_requests_total{model="",status="404"}'] == "1.0"
    assert lines['orchestrion_requests_total{model="",status="401"}'] == "2.0"
    assert lines['orchestrion_request_seconds_count{model="echo"}'] == "2.0"
    assert lines['orchestrion_tokens_total{model="echo"}'] == "10.0"
    assert lines['orchestrion_usd_total{model="echo"}'] == "0.5"
    assert lines["orchestrion_in_flight"] == "0.0"
    assert "tenant" not in text
    assert "forged" not in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("authorization", f"Bearer {ANN}")] * 2, 200),
        ([("authorization", f"Bearer {ANN}"), ("x-api-key", ANN)], 200),
        ([("authorization", "Basic x"), ("x-api-key", ANN)], 200),
        ([("authorization", f"Bearer {ANN}"), ("authorization", f"Bearer {BEN}")], 400),
        ([("authorization", f"Bearer {BEN}"), ("authorization", f"Bearer {ANN}")], 400),
        ([("authorization", f"Bearer {ANN}"), ("x-api-key", BEN)], 400),
        ([("x-api-key", ANN), ("idempotency-key", "1"), ("idempotency-key", "2")], 400),
    ],
)
def test_headers_that_say_who_pays_do_not_contradict_each_other(
    teams: dict[str, str], headers: list[tuple[str, str]], status: int
) -> None:
    body = chat()
    with (
        served(teams["echo"], keys=keys_of(ann=None, ben=None)) as server,
        closing(server.connect()) as connection,
    ):
        connection.putrequest("POST", CHAT)
        for name, value in [("content-type", "application/json"), *headers]:
            connection.putheader(name, value)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        assert response.status == status
        assert (b"contradicting_headers" in response.read()) == (status == 400)


def test_what_is_in_flight_when_the_server_stops_is_answered_each_with_its_own(
    teams: dict[str, str],
) -> None:
    room = Settings(concurrency=8)
    with (
        served(teams["echo"], teams["dear"], settings=room) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        asked = {text: pool.submit(server.ask, "dear", "", text) for text in "abcdefgh"}
        for _ in asked:
            assert GATE.came.acquire(timeout=WAIT)
        assert server.code() == (429, "too_many_requests")
        draining = asyncio.run_coroutine_threadsafe(server.running.drain(), server.loop)
        while server.code() != (503, "stopping"):
            pass  # until it refuses new ones
        server.open_gate()
        for text, future in asked.items():
            status, data, _ = future.result(WAIT)
            assert (status, data["choices"][0]["message"]["content"]) == (200, text)
        draining.result(WAIT)
