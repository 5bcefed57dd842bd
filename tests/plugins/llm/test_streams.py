"""Answers that come in pieces: the same answer, shown as it comes, and never half of one."""

from __future__ import annotations

import time

import pytest
from orchestrion_llm.prices import Price

from orchestrion import CallError
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath, RetrySettings
from tests.plugins.llm.apis import QUICK, Api, ask, event, once
from tests.service import ModelService, reply, stream

TOOLS = [("call_1", "add", '{"a":1,"b":[2,3]}'), ("call_2", "look", "{}")]


@pytest.mark.parametrize("case", ["text", "tools", "length", "refused", "text and tools"])
def test_a_streamed_answer_is_the_one_that_would_have_come_in_one_piece(
    api: Api, case: str
) -> None:
    body = {
        "text": lambda: api.good("Hello, wörld."),
        "tools": lambda: api.good(None, tools=TOOLS),
        "length": lambda: api.good("Hel", "length"),
        "refused": lambda: api.good("No.", "refused"),
        "text and tools": lambda: api.good("I look.", tools=TOOLS),
    }[case]()
    shown: list[str] = []
    with ModelService(stream(api.events(body))) as server:
        streamed = ask(api.settings(server.url, price=Price(1, 2)), shown=shown)
    assert server.seen[0].data["stream"] is True
    with ModelService(reply(200, body)) as server:
        whole = ask(api.settings(server.url, price=Price(1, 2)))
    assert server.seen[0].data["stream"] is False, "some servers stream unless they are told"
    assert streamed == whole
    if case in ("text", "text and tools", "length"):
        assert "".join(shown) == whole.data["text"]
        assert len(shown) > 1, "it is shown piece by piece"


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_stream_that_breaks_off_anywhere_is_retried_and_none_of_it_used(
    api: Api, end: str
) -> None:
    events = api.events(api.good("Hello, world."))
    good = stream(events)
    whole = len(events) if end == "drop" else reason_at(api, events)
    for kept in range(whole - (end == "drop" and api.name == "chat")):
        broken = stream(events[:kept], end)
        path = CallPath(Budget(), retry=QUICK)
        with ModelService(broken, good) as server:
            answer = ask(api.settings(server.url), path=path, shown=[])
        assert answer.data["text"] == "Hello, world.", kept
        assert len(server.seen) == 2, kept
        assert path.budget.spent.calls == 2, "what broke off was paid for"


def test_a_broken_stream_says_how_far_it_came(api: Api) -> None:
    events = api.events(api.good("Hello, world."))
    kept = next(i for i, one in enumerate(events) if b"llo, world" in one) + 1
    if api.name == "anthropic":
        kept += 1
    with ModelService(stream(events[:kept], "drop")) as server:
        error = once(api.settings(server.url), shown=[])
    assert error.fault == "malformed"
    assert "broke off after 13 characters" in str(error)
    assert "Hello, world." in str(error)


def reason_at(api: Api, events: list[bytes]) -> int:
    """Where a stream says why the answer ended: with its own end it is whole from there on."""
    word = {"anthropic": b"end_turn", "chat": b'"stop"', "responses": b"response.completed"}
    return next(i for i, one in enumerate(events) if word[api.name] in one) + 1


def test_a_reason_and_the_clean_end_of_the_body_are_a_whole_stream(api: Api) -> None:
    """Not every server says `[DONE]` (`transformers serve`) or `message_stop`."""
    events = api.events(api.good("Hello, world.", usage=False))
    with ModelService(stream(events[: reason_at(api, events)])) as server:
        answer = ask(api.settings(server.url), shown=[])
    assert (answer.data["text"], answer.data["stop"]) == ("Hello, world.", "end")
    assert len(server.seen) == 1
    assert answer.estimated, "it said no usage"


def test_a_body_that_is_cut_after_the_reason_is_no_whole_answer(api: Api) -> None:
    """What comes after the reason, e.g. the usage, may be missing; HTTP says that it is."""
    events = api.events(api.good("Hello, world."))
    # Here `whole` is said by the same event.
    if api.name != "responses":
        with ModelService(stream(events[: reason_at(api, events)], "drop")) as server:
            assert "broke off" in str(once(api.settings(server.url), shown=[]))


def test_the_last_word_without_a_reason_is_no_whole_answer() -> None:
    api = Api("chat")
    events = api.events(api.good())
    with ModelService(stream([events[0], events[-1]])) as server:
        assert "its end is missing" in str(once(api.settings(server.url), shown=[]))
    with ModelService(stream(events[:2])) as server:
        assert "its end is missing" in str(once(api.settings(server.url), shown=[]))


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("overloaded_error", "overload"),
        ("rate_limit_error", "rate_limit"),
        ("api_error", "transient"),
        ("server_error", "transient"),
        ("invalid_request_error", "permanent"),
    ],
)
def test_an_error_in_a_stream_is_classified_like_its_status(
    api: Api, kind: str, fault: str
) -> None:
    events = api.events(api.good("Hello, world."))
    with ModelService(stream([*events[:3], api.error_event(kind)])) as server:
        error = once(api.settings(server.url), shown=[])
    assert error.fault == fault
    assert "it went wrong" in str(error)


def test_a_response_that_failed_is_classified_like_its_status() -> None:
    api = Api("responses")
    failed = {"status": "failed", "output": [], "error": {"code": "server_error", "message": "x"}}
    ending = event({"type": "response.failed", "response": failed})
    with ModelService(stream([ending])) as server:
        assert once(api.settings(server.url), shown=[]).fault == "transient"
    with ModelService(reply(200, failed)) as server:
        assert once(api.settings(server.url)).fault == "transient"


@pytest.mark.parametrize(
    "rubbish",
    [b"data: {broken\n\n", b"data: []\n\n", b"<html>sorry</html>\n\n", b'{"one": "piece"}\n\n'],
)
def test_data_that_are_no_events_are_malformed(api: Api, rubbish: bytes) -> None:
    with ModelService(stream([rubbish])) as server:
        assert once(api.settings(server.url), shown=[]).fault == "malformed"


def test_a_stream_that_stops_moving_ends_before_the_call_does(api: Api) -> None:
    events = api.events(api.good("Hello, world."))
    path = CallPath(Budget(), retry=RetrySettings(attempts=1))
    with ModelService(stream(events[:3], "hang")) as server:
        settings = api.settings(server.url, timeout=600, idle_timeout=0.3, max_tokens=7)
        began = time.monotonic()
        with pytest.raises(CallError) as caught:
            ask(settings, path=path, shown=[])
    assert time.monotonic() - began < 300  # whatever the machine is busy with
    assert caught.value.fault == "transient"
    assert path.budget.spent.output_tokens == 7


def test_a_stream_that_drips_ends_with_the_total_time(api: Api) -> None:
    events = api.events(api.good("Hello, world."))
    slow = stream([*events[:3], *[b": still here\n\n"] * 15_000], every=0.02)
    with ModelService(slow) as server:
        began = time.monotonic()
        error = once(api.settings(server.url, timeout=0.4, idle_timeout=600), shown=[])
    assert "no answer within 0.4 s" in str(error)
    assert time.monotonic() - began < 300  # which is how long it drips


def test_an_error_in_the_middle_of_a_stream_is_booked_as_a_stream_that_breaks_off(
    api: Api,
) -> None:
    whole = api.good("Hello, world.")
    events = api.events(whole)
    fault = event({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, "error")
    path = CallPath(Budget(), retry=QUICK)
    with ModelService(stream([*events[:2], fault]), stream(events)) as server:
        ask(api.settings(server.url, max_tokens=77), path=path, shown=[])
    assert len(server.seen) == 2
    assert path.budget.spent.output_tokens == 77 + 3


def test_different_requests_with_one_key_have_different_names(api: Api) -> None:
    """A gateway that honours the name would answer with what the other run was told."""
    with ModelService(reply(200, api.good())) as server:
        ask(api.settings(server.url, max_tokens=77))
        ask(api.settings(server.url, max_tokens=77))
        ask(api.settings(server.url, max_tokens=78))
    same, again, other = (seen.headers["idempotency-key"] for seen in server.seen)
    assert same == again != other
