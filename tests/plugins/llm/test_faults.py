"""Every fault a service can have, met with the real SDKs over a real socket."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from orchestrion_llm import transport
from orchestrion_llm.faults import ContextOverflowError, hint
from orchestrion_llm.settings import Limits
from orchestrion_llm.transport import LARGEST

from orchestrion import BudgetError, CallError, Key, Usage
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import ActivationCalls, CallPath, RetrySettings
from orchestrion.testing import Fixed, ScriptedAgent, engine_for
from tests.plugins.llm.apis import ASK, QUICK, USAGE, Api, ask, context, once
from tests.service import ModelService, Reply, cut, drip, endless, hang, reply, stream

HTML = "<html><head><style>x{}</style></head><body><h1>502 Bad Gateway</h1></body></html>"
Fault = Callable[[Api], Reply]


def fails(status: int, kind: str, message: str = "it went wrong", **headers: str) -> Fault:
    """An error in the form of the API."""
    return lambda api: reply(status, api.error(kind, message), **headers)


def gives(status: int, body: object = b"", **headers: str) -> Fault:
    """The same body for every API."""
    return lambda api: reply(status, body, **headers)


RETRIED: dict[str, tuple[Fault, str]] = {
    "429": (fails(429, "rate_limit_error"), "rate_limit"),
    "429 html": (gives(429, HTML), "rate_limit"),
    "529": (fails(529, "overloaded_error"), "overload"),
    "503": (gives(503, HTML), "overload"),
    "500 overloaded": (fails(500, "overloaded_error"), "overload"),
    "500": (fails(500, "api_error"), "transient"),
    "500 empty": (gives(500), "transient"),
    "502 html": (gives(502, HTML), "transient"),
    "504": (gives(504, "upstream timed out"), "transient"),
    "408": (gives(408), "transient"),
    "409": (fails(409, "conflict"), "transient"),
    "half a body": (lambda api: cut(api.good(), 20), "transient"),
    "dropped": (lambda api: cut(b"", 0), "transient"),
    "error in a 200": (fails(200, "overloaded_error"), "overload"),
    "empty": (gives(200), "malformed"),
    "broken json": (gives(200, b'{"content": [{"ty'), "malformed"),
    "html": (gives(200, HTML), "malformed"),
    "other json": (gives(200, {"hello": 1}), "malformed"),
    "a list": (gives(200, [1, 2]), "malformed"),
    "a str": (gives(200, '"hello"'), "malformed"),
    "wrong types": (gives(200, {"content": "x", "choices": "x", "output": "x"}), "malformed"),
    "null content": (lambda api: reply(200, api.good(None) | {"content": None}), "malformed"),
    "null reason": (lambda api: reply(200, _without_reason(api)), "malformed"),
    "deep json": (gives(200, b"[" * 100_000), "malformed"),
    "compressed": (
        gives(200, gzip.compress(b"0" * 10_000_000), content_encoding="gzip"),
        "malformed",
    ),
    "too long": (lambda api: endless(LARGEST + 100_000), "malformed"),
}

PERMANENT: dict[str, tuple[Fault, str]] = {
    "400": (
        fails(400, "invalid_request_error", "temperature: unsupported"),
        "temperature: unsupported; asked of m-1: see the settings of models.m",
    ),
    "404": (fails(404, "not_found_error"), r"m-1 \(models.m.model\) the name of a model there"),
    "422": (gives(422, {"detail": "no such field"}), "no such field"),
    "redirect": (
        gives(307, location="http://elsewhere.example/v1"),
        r"redirects are not followed \(to elsewhere.example\): correct models.m.base_url",
    ),
    "moved": (gives(301, location="/v2"), "redirects are not followed"),
}

QUOTA = "You exceeded your current quota, check your billing details"
LIMITS = "You have reached your specified API usage limits."
PAUSED: dict[str, tuple[Fault, str]] = {
    "429 quota": (
        fails(429, "insufficient_quota"),
        "the account is used up; the run can be resumed",
    ),
    "429 quota in words": (fails(429, "error", QUOTA), "used up"),
    "402": (fails(402, "billing_error"), "used up"),
    "400 usage limits": (fails(400, "invalid_request_error", LIMITS), "used up"),
    "400 credit": (
        fails(400, "invalid_request_error", "Your credit balance is too low."),
        "used up",
    ),
    "401": (
        fails(401, "authentication_error", "invalid key"),
        "does not accept the key in TEST_KEY; the run can be resumed",
    ),
    "403": (gives(403, HTML), "does not accept the key in TEST_KEY"),
    "429 for a day": (
        fails(429, "rate_limit_error", retry_after="86400"),
        "asks to wait 86400 s",
    ),
}


def _without_reason(api: Api, reason: str | None = None) -> dict[str, object]:
    body = api.good()
    if api.name == "anthropic":
        body["stop_reason"] = reason
    elif api.name == "chat":
        body["choices"][0]["finish_reason"] = reason
    else:
        body["status"] = reason
    return body


@pytest.mark.parametrize("fault", RETRIED)
def test_faults_that_may_pass_are_retried(api: Api, fault: str) -> None:
    bad, kind = RETRIED[fault]
    with ModelService(bad(api), reply(200, api.good())) as server:
        assert ask(api.settings(server.url)).data["text"] == "hello"
    assert len(server.seen) == 2
    assert server.seen[0].body == server.seen[1].body
    names = {seen.headers["idempotency-key"] for seen in server.seen}
    assert len(names) == 1, "the same call, whatever attempt"
    with ModelService(bad(api)) as server:
        error = once(api.settings(server.url))
    assert error.fault == kind
    assert len(server.seen) == 1, "the SDK's own retries are off"


@pytest.mark.parametrize("fault", PERMANENT)
def test_a_request_that_is_wrong_is_not_tried_again(api: Api, fault: str) -> None:
    bad, words = PERMANENT[fault]
    with ModelService(bad(api)) as server, pytest.raises(CallError, match=words) as caught:
        ask(api.settings(server.url))
    assert caught.value.fault == "permanent"
    assert len(server.seen) == 1


@pytest.mark.parametrize("fault", PAUSED)
def test_faults_of_the_account_pause_the_run(api: Api, fault: str) -> None:
    bad, words = PAUSED[fault]
    with ModelService(bad(api)) as server, pytest.raises(BudgetError, match=words):
        ask(api.settings(server.url))
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, "context_length_exceeded", "This model's maximum context length is 8 tokens"),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ],
)
def test_a_prompt_that_does_not_fit_is_said_to_not_fit(
    api: Api, status: int, kind: str, message: str
) -> None:
    with (
        ModelService(reply(status, api.error(kind, message))) as server,
        pytest.raises(ContextOverflowError, match=r"does not fit .* \(models.m.model\)"),
    ):
        ask(api.settings(server.url))
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
                "date": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            30.0,
        ),
        (
            {
                "retry-after": "Wed, 21 Oct 2026 07:28:00 GMT",
                "date": "Wed, 21 Oct 2026 07:28:30 GMT",
            },
            None,
        ),
        ({}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "inf"}, None),
        *(
            ({"retry-after": text}, None)
            for text in ("soon", "1_0", "\u0663", "0x10", "1, 2", " ", "1e400")
        ),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
    ],
)
def test_hints_are_read_in_every_form_and_rubbish_is_none(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert hint(headers) == seconds


def test_a_hint_is_waited_for_and_reaches_all_callers_of_the_service(api: Api) -> None:
    busy = reply(429, api.error("rate_limit_error"), retry_after_ms="300")
    with ModelService(busy, reply(200, api.good())) as server:
        began = time.monotonic()
        ask(api.settings(server.url))
        assert time.monotonic() - began >= 0.3
    for rubbish in ("NaN", "-1", "never"):
        with ModelService(
            reply(429, api.error("rate_limit_error"), retry_after=rubbish), reply(200, api.good())
        ) as server:
            assert ask(api.settings(server.url)).data["text"] == "hello"


@pytest.mark.parametrize("slow", [drip(0.02), hang()], ids=["drip", "hang"])
def test_the_total_time_of_an_attempt_is_bounded_and_its_reservation_booked(
    api: Api, slow: Reply
) -> None:
    path = CallPath(Budget(), retry=RetrySettings(attempts=1))
    with ModelService(slow) as server:
        settings = api.settings(server.url, timeout=0.3, max_tokens=100)
        began = time.monotonic()
        with pytest.raises(CallError, match=r"no answer within 0\.3 s"):
            ask(settings, path=path)
        assert time.monotonic() - began < 300  # and both go on for ever
    assert path.budget.spent.calls == 1
    assert path.budget.spent.output_tokens == 100


@pytest.mark.parametrize(
    ("bad", "booked"),
    [
        (lambda api: cut(api.good(), 20), True),
        (lambda api: reply(200, b"{}"), True),
        (lambda api: reply(500), False),
        (lambda api: reply(429), False),
    ],
    ids=["half a body", "wrong shape", "500", "429"],
)
def test_an_attempt_that_may_have_been_charged_is_booked(
    api: Api, bad: Fault, booked: bool
) -> None:
    path = CallPath(Budget(), retry=QUICK)
    with ModelService(bad(api), reply(200, api.good())) as server:
        ask(api.settings(server.url), path=path)
    assert path.budget.spent.calls == (2 if booked else 1)


def test_a_refused_connection_and_an_unknown_host_are_transient(api: Api) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = once(api.settings(f"http://127.0.0.1:{port}"))
    assert error.fault == "transient"
    assert "cannot be reached" in str(error)
    error = once(api.settings("http://nowhere.invalid"))
    assert error.fault == "transient"
    assert "cannot be reached" in str(error)


def test_an_untrusted_certificate_is_a_permanent_fault(api: Api, tmp_path: Path) -> None:
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost".split()
    files = ["-keyout", str(tmp_path / "k"), "-out", str(tmp_path / "c")]
    subprocess.run([*make, *files], check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "c", tmp_path / "k")

    with ModelService(hang(), tls=tls) as server:
        error = once(api.settings(server.url))
    assert error.fault == "permanent"
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)


def test_a_connection_broken_in_the_handshake_is_transient(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Somebody who hangs up before the first byte is waited for to the end.
    monkeypatch.setattr(transport, "_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        server = threading.Thread(target=hang_up)
        server.start()
        error = once(api.settings(f"https://127.0.0.1:{listener.getsockname()[1]}"))
        server.join()
    assert error.fault == "transient"


def test_a_refusal_is_an_answer_and_is_not_tried_again(api: Api, watched: bool) -> None:
    body = api.good("I cannot help with that.", "refused")
    answer_ = stream(api.events(body)) if watched else reply(200, body)
    with ModelService(answer_) as server:
        answer = ask(api.settings(server.url), shown=[] if watched else None)
    assert answer.data["stop"] == "refused"
    assert answer.data["text"] == "I cannot help with that."
    assert len(server.seen) == 1


def test_an_empty_answer_counts_as_a_refusal(api: Api) -> None:
    with ModelService(reply(200, api.good(""))) as server:
        assert ask(api.settings(server.url)).data["stop"] == "refused"
    assert len(server.seen) == 1


def test_a_content_filter_before_the_model_is_a_refusal_that_costs_nothing(api: Api) -> None:
    with ModelService(reply(400, api.error("content_filter", "blocked"))) as server:
        answer = ask(api.settings(server.url))
    assert (answer.data["stop"], answer.usage.tokens) == ("refused", 0)


def test_an_answer_cut_at_max_tokens_says_so(api: Api) -> None:
    with ModelService(reply(200, api.good("hel", "length"))) as server:
        answer = ask(api.settings(server.url))
    assert (answer.data["stop"], answer.data["text"]) == ("length", "hel")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (12, 3)


def test_tool_arguments_that_are_not_json_are_passed_on_as_text(api: Api) -> None:
    """They are no fault of the service: nothing is tried again, the text is handed on."""
    if api.name == "anthropic":
        pytest.skip("this API gives objects")
    with ModelService(reply(200, api.good(None, tools=[("c1", "add", '{"a": 1,')]))) as server:
        answer = ask(api.settings(server.url))
    assert answer.data["tool_calls"][0]["arguments"] == '{"a": 1,'
    assert len(server.seen) == 1


def test_a_cancelled_call_is_closed_and_its_place_freed(api: Api) -> None:
    async def cancelling(url: str) -> Budget:
        path = CallPath(Budget(), retry=QUICK)
        engine = engine_for({"a": ScriptedAgent()}, Fixed(), calls=path)
        settings = api.settings(url, limits=Limits(concurrency=1), timeout=30)
        async with settings.open(context()) as model:  # type: ignore[attr-defined]
            first = asyncio.create_task(
                model.complete(ASK, Key(2), ActivationCalls(engine, Key(3)))
            )
            await asyncio.to_thread(server.asked.wait, 10)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            second = await model.complete(ASK, Key(4), ActivationCalls(engine, Key(5)))
            assert second.data["text"] == "hello"
        return path.budget

    with ModelService(hang(), reply(200, api.good())) as server:
        budget = asyncio.run(cancelling(server.url))
    assert budget.reserved == Usage()
    assert budget.spent.calls == 2, "what was cut off may have been charged"


@pytest.mark.parametrize("fault", ["529", "500", "broken json", "429", "dropped"])
def test_a_fallback_model_answers_after_the_last_attempt(api: Api, fault: str) -> None:
    async def asking(first: str, second: str) -> tuple[object, CallPath]:
        path = CallPath(retry=QUICK)
        engine = engine_for({"a": ScriptedAgent()}, Fixed(), calls=path)
        async with api.settings(second, model="m-2").open(context()) as other:  # type: ignore[attr-defined]
            settings = api.settings(first, fallback=other)
            async with settings.open(context()) as model:  # type: ignore[attr-defined]
                answer = await model.complete(ASK, Key(2), ActivationCalls(engine, Key(3)))
        return answer.data, path

    with ModelService(RETRIED[fault][0](api)) as bad, ModelService(reply(200, api.good())) as good:
        data, _ = asyncio.run(asking(bad.url, good.url))
    assert len(bad.seen) == 3, "only when the attempts are used up"
    assert len(good.seen) == 1
    assert data["text"] == "hello"  # type: ignore[index]
    assert ":m-1@127.0.0.1" in data["instead_of"]  # type: ignore[index]


def test_a_fallback_model_is_not_asked_after_a_permanent_fault(api: Api) -> None:
    with ModelService(PERMANENT["400"][0](api)) as bad, ModelService(reply()) as good:
        other = api.settings(good.url)
        with pytest.raises(CallError, match="unsupported"):
            ask(api.settings(bad.url, fallback=other))
    assert good.seen == []


def test_usage_is_what_the_service_states(api: Api, watched: bool) -> None:
    body = api.good()
    with ModelService(stream(api.events(body)) if watched else reply(200, body)) as server:
        answer = ask(api.settings(server.url), shown=[] if watched else None)
    assert not answer.estimated
    assert answer.usage.input_tokens == USAGE.input_tokens
    assert answer.usage.output_tokens == USAGE.output_tokens
