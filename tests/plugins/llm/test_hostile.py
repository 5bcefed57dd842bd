"""Servers that are broken in ways no documentation names: never a crash, never a made-up turn."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from orchestrion_llm.prices import Price

from orchestrion import BudgetError, UsageError, register
from orchestrion._engine.budget import Budget
from orchestrion._engine.calls import CallPath
from tests.plugins.llm.apis import QUICK, Api, Caps, ask, once
from tests.service import ModelService, Seen, raw, reply, stream

Bytes = Callable[[Api], bytes]


def http(body: bytes, status: str = "200 OK", *headers: bytes) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}".encode(), b"content-length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def good(api: Api, **more: Any) -> bytes:
    return json.dumps(api.good(**more)).encode()


FAULTS: dict[str, tuple[Bytes, str]] = {
    "no status line": (lambda api: b"LOL NOPE\r\n\r\n" + good(api), "transient"),
    "bytes": (lambda api: bytes(range(256)) * 4, "transient"),
    "header without colon": (lambda api: http(good(api), "200 OK", b"text"), "transient"),
    "endless header": (lambda api: http(good(api), "200 OK", b"x: " + b"a" * 200_000), "transient"),
    "switching": (lambda api: b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n", "transient"),
    "no content": (lambda api: b"HTTP/1.1 204 No\r\n\r\n", "malformed"),
    "chunks of rubbish": (
        lambda api: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\nhello\r\n",
        "transient",
    ),
    "length below the body": (
        lambda api: b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n" + good(api),
        "malformed",
    ),
    "two lengths": (
        lambda api: http(good(api), "200 OK", b"content-length: 3"),
        "transient",
    ),
    "no utf-8": (lambda api: http(good(api).replace(b"hello", b"he\xff\xfelo")), "malformed"),
    "utf-16": (lambda api: http(json.dumps(api.good()).encode("utf-16")), "malformed"),
    "half a pair": (lambda api: http(good(api).replace(b"hello", b"\\ud800")), "malformed"),
    "two answers": (lambda api: http(good(api) + b"\n" + good(api)), "malformed"),
    "a tool that is not named": (lambda api: http(_tool_without_call(api)), "malformed"),
    "429, compressed": (
        lambda api: http(gzip.compress(b"{}"), "429 No", b"content-encoding: gzip"),
        "rate_limit",
    ),
    "500, compressed": (
        lambda api: http(gzip.compress(b"{}"), "500 No", b"content-encoding: gzip"),
        "transient",
    ),
    "500, no utf-8": (
        lambda api: http(b'{"error": {"message": "h\xff\xfe", "type": "x"}}', "500 No"),
        "transient",
    ),
    "a redirect nowhere": (lambda api: http(b"", "302 No", b"location: http://[bad"), "permanent"),
    "a number as code: 429": (lambda api: http(_coded(429)), "rate_limit"),
    "a number as code: 503": (lambda api: http(_coded(503)), "overload"),
    "a number as code: 400": (lambda api: http(_coded(400)), "permanent"),
}


def _coded(code: int) -> bytes:
    return json.dumps({"error": {"message": "it went wrong", "code": code}}).encode()


def _tool_without_call(api: Api) -> bytes:
    if api.name == "responses":  # its reason is the call itself
        return json.dumps({**api.good(), "output": []}).encode()
    return good(api, stop="tool_use" if api.name == "anthropic" else "tool_calls")


@pytest.mark.parametrize("fault", FAULTS)
def test_invalid_responses_are_classified(api: Api, fault: str) -> None:
    make, kind = FAULTS[fault]
    with ModelService(raw(make(api))) as server:
        assert once(api.settings(server.url)).fault == kind


def test_a_refused_key_pauses_the_run_even_if_that_comes_compressed(api: Api) -> None:
    head = b"content-encoding: gzip"
    with (
        ModelService(raw(http(gzip.compress(b"{}"), "401 No", head))) as server,
        pytest.raises(BudgetError, match="does not accept the key"),
    ):
        ask(api.settings(server.url))


FINE: dict[str, Bytes] = {
    "http 1.0": lambda api: b"HTTP/1.0 200 OK\r\n\r\n" + good(api),
    "informed first": lambda api: b"HTTP/1.1 103 Hints\r\nlink: </a>\r\n\r\n" + http(good(api)),
    "other content type": lambda api: http(good(api), "200 OK", b"content-type: text/html"),
    "odd charset": lambda api: http(good(api), "200 OK", b"content-type: a/b; charset=klingon"),
    "Identity": lambda api: http(good(api), "200 OK", b"content-encoding: Identity"),
    "no encoding": lambda api: http(good(api), "200 OK", b"content-encoding: "),
}


@pytest.mark.parametrize("oddity", FINE)
def test_odd_headers_do_not_matter(api: Api, oddity: str) -> None:
    with ModelService(raw(FINE[oddity](api))) as server:
        assert ask(api.settings(server.url)).data["text"] == "hello"


NO_USAGE: dict[str, Any] = {
    "negative": [-5, -3],
    "text": ["12", "3"],
    "fractions": [12.5, 3.5],
    "more than there can be": [2**64, 2**70],
    "a list": [[1], [2]],
    "true": [True, True],
    "nothing": [None, 3],
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("told", NO_USAGE)
def test_incredible_usage_is_estimated_and_the_answer_kept(
    api: Api, told: str, streamed: bool
) -> None:
    """It was paid for: asking again would pay twice, and believing it would pay back."""
    body = api.good()
    names = ("prompt_tokens", "completion_tokens") if api.name == "chat" else ()
    body["usage"] = dict(
        zip(names or ("input_tokens", "output_tokens"), NO_USAGE[told], strict=True)
    )
    budget = Budget(Caps(tokens=100_000, usd=1.0))
    given = stream(api.events(body)) if streamed else reply(200, body)
    with ModelService(given) as server:
        answer = ask(
            api.settings(server.url, max_tokens=100, price=Price(1.0, 2.0)),
            path=CallPath(budget, retry=QUICK),
            shown=[] if streamed else None,
        )
        size = len(server.seen[0].body)
    assert answer.estimated
    assert answer.data["text"] == "hello"
    assert len(server.seen) == 1
    assert answer.usage.output_tokens >= len("hello")
    assert size // 2 < answer.usage.input_tokens < size + 200
    assert budget.spent == answer.usage
    assert 0 < budget.spent.usd < 0.001


def test_a_share_of_the_prompt_cannot_be_larger_than_the_prompt(api: Api) -> None:
    body = api.good()
    if api.name == "anthropic":
        body["usage"]["cache_read_input_tokens"] = -500
    else:
        kind = "prompt" if api.name == "chat" else "input"
        body["usage"][f"{kind}_tokens_details"] = {"cached_tokens": 10**6}
    with ModelService(reply(200, body)) as server:
        answer = ask(api.settings(server.url, price=Price(1.0, 2.0), max_tokens=77))
    assert answer.estimated
    assert answer.usage.output_tokens == 77


@pytest.mark.parametrize("told", ["nothing", "zeros"])
def test_an_answer_without_usage_is_booked_with_its_bound(api: Api, told: str) -> None:
    """Its text is no bound: what a model thinks is paid for and not shown."""
    body = api.good(usage=told != "nothing")
    if told == "zeros":
        input, output = ("prompt", "completion") if api.name == "chat" else ("input", "output")
        body["usage"] = {f"{input}_tokens": 0, f"{output}_tokens": 0}
    with ModelService(reply(200, body)) as server:
        answer = ask(api.settings(server.url, price=Price(1.0, 2.0), max_tokens=77))
    assert answer.estimated
    assert answer.usage.output_tokens == 77
    assert answer.usage.input_tokens > len(server.seen[0].body)


def test_tokens_that_only_the_total_counts_are_output(api: Api) -> None:
    """Some services count what a model thinks nowhere else."""
    if api.name == "anthropic":
        pytest.skip("this API tells no total")
    body = api.good()
    input = "prompt" if api.name == "chat" else "input"
    body["usage"]["total_tokens"] = body["usage"][f"{input}_tokens"] + 200
    with ModelService(reply(200, body)) as server:
        answer = ask(api.settings(server.url, price=Price(1.0, 2.0), max_tokens=500))
    assert answer.usage.output_tokens == 200


def test_a_prompt_of_no_tokens_is_no_count(api: Api) -> None:
    body = api.good()
    body["usage"] = {**body["usage"]}
    for name in ("prompt_tokens", "input_tokens", "cache_read_input_tokens"):
        if name in body["usage"]:
            body["usage"][name] = 0
    body["usage"].pop("cache_creation_input_tokens", None)
    with ModelService(reply(200, body)) as server:
        answer = ask(api.settings(server.url, price=Price(1.0, 2.0), max_tokens=77))
    assert answer.estimated
    assert answer.usage.input_tokens > len(server.seen[0].body)


def test_usage_of_the_start_of_a_stream_is_not_booked() -> None:
    api = Api("anthropic")
    events = [
        one.replace(b', "usage": {"output_tokens": 3}', b"") for one in api.events(api.good())
    ]
    with ModelService(stream(events)) as server:
        answer = ask(api.settings(server.url), shown=[])
    assert answer.estimated
    assert answer.usage.output_tokens >= len("hello")


def _pieces(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


ODD_STREAMS: dict[str, Callable[[bytes], list[bytes]]] = {
    "byte by byte": _pieces,
    "carriage returns and line feeds": lambda data: _pieces(data.replace(b"\n", b"\r\n")),
    "carriage returns": lambda data: [data.replace(b"\n", b"\r")],
    "comments": lambda data: [b": ping\n\n" + data.replace(b"data:", b": x\ndata:")],
    "empty events": lambda data: [b"data\n\ndata: \n\n" + data],
    "no space": lambda data: [data.replace(b"data: ", b"data:")],
    "a mark of byte order": lambda data: [b"\xef\xbb\xbf" + data],
    "no last line end": lambda data: [data.rstrip(b"\n")],
    "data in two lines": lambda data: [data.replace(b"data: {", b"data: {\ndata: ")],
}


@pytest.mark.parametrize("odd", ODD_STREAMS)
def test_events_may_come_in_every_form_that_their_standard_allows(api: Api, odd: str) -> None:
    text = "gr\u00fc\u00dfe \U0001f600"
    with ModelService(stream(ODD_STREAMS[odd](b"".join(api.events(api.good(text)))))) as server:
        assert ask(api.settings(server.url), shown=[]).data["text"] == text


def test_only_line_ends_of_events_end_their_lines(api: Api) -> None:
    """Texts hold other characters at which Python would begin a new line."""
    text = "a\u2028b\u2029c\u0085d"
    whole = b"".join(api.events(api.good(text)))
    plain = whole.decode()
    for character in "\u2028\u2029\u0085":
        plain = plain.replace(json.dumps(character)[1:-1], character)
    assert "\u2028" in plain
    with ModelService(stream([plain.encode()])) as server:
        assert ask(api.settings(server.url), shown=[]).data["text"] == text


def test_a_stream_that_is_no_utf8_is_not_mended_silently(api: Api) -> None:
    whole = b"".join(api.events(api.good("hello"))).replace(b"he", b"\xff\xfe")
    with ModelService(stream([whole])) as server:
        assert once(api.settings(server.url), shown=[]).fault == "malformed"


def test_of_several_choices_only_the_first_is_read() -> None:
    api = Api("chat")
    body = api.good("hello")
    other = json.loads(json.dumps(body["choices"][0]).replace("hello", "other"))
    other["index"] = 1
    events = []
    for event in api.events(body):
        events += [event.replace(b'"index": 0', b'"index": 1').replace(b"he", b"XX"), event]
    with ModelService(stream(events[:-2] + events[-1:])) as server:
        assert ask(api.settings(server.url), shown=[]).data["text"] == "hello"
    body["choices"].insert(0, other)
    with ModelService(reply(200, body)) as server:
        assert ask(api.settings(server.url)).data["text"] == "hello"


@pytest.mark.parametrize("name", ["n", "max_tokens", "max_output_tokens", "stream", "model"])
def test_extra_fields_cannot_undo_what_is_reserved(api: Api, name: str) -> None:
    with pytest.raises(ValueError, match=f"extra: must not hold '{name}'"):
        api.settings("http://127.0.0.1:1", extra={name: 5})


def test_a_secret_at_the_edge_of_a_cut_is_not_shown_in_part(api: Api) -> None:
    canary = "canary-9d1f6b7e2c40a853"
    register("CANARY", canary)
    body = b"<b>" * 1330 + canary.encode() + b"x" * 50
    with ModelService(reply(500, body)) as server:
        assert "canary" not in str(once(api.settings(server.url)))
    events = api.events(api.good(f"{canary}{'y' * 110}"))[:-1]
    with ModelService(stream(events, "drop")) as server:
        assert "2c40a853" not in str(once(api.settings(server.url), shown=[]))


def test_unreadable_tool_arguments_are_passed_on_as_text() -> None:
    api, deep = Api("anthropic"), "[" * 100_000
    events = api.events(api.good(None, tools=[("t", "f", '{"a": 1}')]))
    piece = json.dumps('{"a": 1}'[2:])[1:-1].encode()
    events = [one.replace(piece, deep.encode()) for one in events]
    with ModelService(stream(events)) as server:
        (call,) = ask(api.settings(server.url), shown=[]).data["tool_calls"]
    assert call["arguments"].endswith(deep)


def test_an_unreadable_list_of_models_is_ignored(api: Api) -> None:
    async def send(seen: Seen, writer: asyncio.StreamWriter) -> None:
        looked = raw(http(b'{"data": [{"id": "\xff"}]}')) if seen.path.endswith("models") else None
        missing = reply(404, b'{"error": {"message": "\xff"}}')
        await (looked or (missing if seen.method == "GET" else reply(200, api.good())))(
            seen, writer
        )

    with ModelService(send) as server:
        settings = api.settings(server.url, preflight=True)
        assert ask(settings).data["text"] == "hello"


# ------------------------------------------------------------------------------- proxies

_VARIABLES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy")


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def use(address: str) -> None:
        for name in (*_VARIABLES, "NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTP_PROXY", address)
        monkeypatch.setenv("ALL_PROXY", address)

    return use


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_calls_to_this_machine_go_to_no_proxy(
    api: Api, host: str, proxied: Callable[[str], None]
) -> None:
    with ModelService(reply(500)) as proxy, ModelService(reply(200, api.good())) as server:
        proxied(proxy.url)
        assert ask(api.settings(server.url.replace("127.0.0.1", host))).data["text"] == "hello"
    assert proxy.seen == []


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_calls_to_others_go_through_the_proxy_and_its_password_is_a_secret(
    api: Api, scheme: str, proxied: Callable[[str], None]
) -> None:
    password = "hunter2-4c81d0"
    said = f"the proxy says {password}"
    with ModelService(reply(500, said)) as proxy:
        proxied(f"{scheme}me:{password}@{proxy.url.removeprefix('http://')}")
        error = once(api.settings("http://elsewhere.invalid"))
    assert "the proxy says [proxy]" in str(error)
    (seen,) = proxy.seen
    assert seen.path.startswith("http://elsewhere.invalid/")
    assert seen.headers["proxy-authorization"].startswith("Basic ")


def test_a_proxy_that_cannot_be_used_is_said_before_anything_is_asked(
    api: Api, proxied: Callable[[str], None]
) -> None:
    proxied("gopher://127.0.0.1:1")
    with pytest.raises(UsageError, match="the proxy that the environment names cannot be used"):
        ask(api.settings("http://elsewhere.invalid"))
