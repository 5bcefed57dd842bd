"""Agents behind real servers on this machine: the same turns as here, and every fault."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_remote import Settings, agent_pb2, serving
from orchestrion_remote.body import request_of, view_and_key
from orchestrion_remote.http import Http
from orchestrion_remote.rpc import Grpc, Tls
from orchestrion_remote.rpc_wire import SERVICE, message_of, reply_from, request_from
from orchestrion_remote.settings import Most, Price

from orchestrion import (
    Activation,
    BudgetError,
    Key,
    Member,
    Observation,
    Output,
    Problem,
    Trajectory,
    Turn,
    Usage,
    UsageError,
    View,
)
from orchestrion._config.loading import as_config
from orchestrion._engine.attempts import RetrySettings
from orchestrion._engine.budget import Budget
from orchestrion._engine.callpath import CallPath
from orchestrion._forecast import forecast_of
from orchestrion.config import Budget as Caps
from orchestrion.runs import open_run
from tests.contrib_agents.remote.support import (
    GATES,
    NOWHERE,
    WAIT,
    Draws,
    config,
    served,
    team,
    written,
)
from tests.coroutines import sync
from tests.end_to_end.support import here
from tests.service import ModelService, cut, reply

PROBLEM = Problem("p1", "What is 1 plus 1?", {"n": [1, 2.5, None]}, "sums", hidden="2")


# ---------------------------------------------------------------- what travels

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-9, 9) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
_names = st.text(min_size=1, max_size=5)
_turns = st.lists(
    st.builds(
        Turn,
        st.integers(0, 99),
        _names,
        st.none() | _names,
        st.builds(Output, st.text(), data=_json),
        st.sampled_from(["completed", "failed"]),
    ),
    max_size=3,
    unique_by=lambda turn: turn.index,
)
_unit = st.floats(0, 1)
_observations = st.builds(
    Observation,
    st.text(),
    _json,
    st.lists(_unit, max_size=2).map(tuple),
    st.frozensets(_names, max_size=2),
    st.none() | _unit,
    st.dictionaries(_names, st.lists(_unit, max_size=2).map(tuple), max_size=2),
)
_views = st.builds(
    View,
    _names,
    st.none() | _names,
    st.builds(Problem, _names, st.text(), _json, st.text(), st.text()),
    _turns.map(Trajectory),
    st.none() | _observations,
    given=_turns.map(lambda turns: tuple(t for t in turns if t.status == "completed")),
    team=st.lists(st.builds(Member, _names, st.just(("x",)), st.text()), max_size=2).map(tuple),
)


@settings(max_examples=25)
@given(_views, st.binary(min_size=16, max_size=16))
def test_a_view_and_its_key_arrive_as_they_were(view: View, digest: bytes) -> None:
    request = request_of(view, Key(digest))
    message = message_of(request, "far")
    again = request_from(agent_pb2.ActRequest.FromString(message.SerializeToString()))
    for body in (request, again):
        there, key = view_and_key(body)
        assert key == Key(digest)
        assert there.turns == tuple(Turn(t.index, t.agent, t.option, t.output) for t in view.turns)
        assert there.problem == view.problem.public()
        for name in ("agent", "option", "observation", "team"):
            assert getattr(there, name) == getattr(view, name)
    assert "hidden" not in request["problem"]


def test_null_in_a_field_of_json_is_nothing() -> None:
    reply = reply_from(agent_pb2.ActResponse(content="hi", metadata_json="null", data_json="null"))
    assert (reply.content, reply.metadata, reply.data) == ("hi", {}, None)


def test_the_generated_messages_are_those_of_the_published_file() -> None:
    text = (Path(agent_pb2.__file__).parent / "agent.proto").read_text()
    published = {
        message: re.findall(r"(\w+) = (\d+);", body)
        for message, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.DOTALL)
    }
    generated = {
        name: [(field.name, str(field.number)) for field in message.fields]
        for name, message in agent_pb2.DESCRIPTOR.message_types_by_name.items()
    }
    assert published == generated


# ---------------------------------------------------------------- the same turns as here


def far(format: str, *places: Any, **more: Any) -> Http | Grpc:
    """Return the component that asks for the agent at servers, or at addresses."""
    addresses = [
        place if isinstance(place, str) else f"127.0.0.1:{getattr(place, f'{format}_port')}"
        for place in places
    ]
    if format == "http":
        urls = [f"http://{address}/agents/far" for address in addresses]
        return Http(urls=urls, health="/health" if len(urls) == 1 else None, **more)
    return Grpc(addresses=addresses, agent="far", **more)


both = pytest.mark.parametrize("format", ["http", "grpc"])


async def turns(agents: dict[str, Any], viewer: Callable[..., None] | None = None) -> Any:
    async with team(agents) as engine:
        engine.viewer = viewer
        episode = await engine.run("e", PROBLEM, Key(5))
        return episode.turns


@sync
async def test_an_agent_elsewhere_gives_the_turns_that_it_gives_here(tmp_path: Path) -> None:
    here = {"first": Draws(), "second": Draws()}
    expected = await turns(here)
    async with served(tmp_path, {"far": "Draws"}) as server:
        seen = list[tuple[str, str]]()
        results = [
            await turns({name: far("http", server) for name in here}),
            await turns({name: far("grpc", server) for name in here}),
            await turns(
                {name: far("grpc", server) for name in here},
                lambda who, text: seen.append((who, text)),
            ),
        ]
    for result in results:
        for turn, wanted in zip(result, expected, strict=True):
            assert turn.output.content == wanted.output.content
            assert turn.output.data == wanted.output.data
            assert turn.output.metadata == wanted.output.metadata
            assert turn.usage == wanted.usage == Usage(1, 30, 7, 0.25, 2.0)
    texts = ("drawing ", "done")
    assert seen == [(f"{i} {name}", t) for i, name in enumerate(here, 1) for t in texts]


@both
@pytest.mark.parametrize(
    ("agent", "reason", "usage"),
    [
        ("Fails", "there is no draft yet", Usage(1, 3, 4, 0.5)),  # what it took all the same
        ("Odd", "its output cannot be sent", Usage(1)),
    ],
)
@sync
async def test_an_agent_that_fails_there_fails_its_turn_once(
    tmp_path: Path, format: str, agent: str, reason: str, usage: Usage
) -> None:
    async with (
        served(tmp_path, {"far": agent}) as server,
        team({"far": far(format, server)}) as engine,
    ):
        [turn] = (await engine.run("e", PROBLEM, Key(5))).turns
        assert turn.status == "failed"
        assert reason in turn.error
        assert "settings.py:" not in turn.error
        assert engine.calls.retried == 0
        assert turn.usage == usage


@both
@sync
async def test_options_are_chosen_here_and_checked_there(tmp_path: Path, format: str) -> None:
    agent = {"use": "tests.contrib_agents.remote.support:Draws", "choose": ["x", "y"]}
    async with served(tmp_path, {"far": agent}, policy={"use": "random"}) as server:
        for option, status in (("x", "completed"), ("z", "failed")):
            component = far(format, server, options=["x", "z"])
            async with team({"far": component}) as engine:
                engine.team.policy.steps[:] = [[Activation("far", option)]]
                [turn] = (await engine.run("e", PROBLEM, Key(5))).turns
                assert turn.status == status, turn.error


# ---------------------------------------------------------------- faults


@both
@sync
async def test_addresses_where_nobody_listens_cost_no_attempt(tmp_path: Path, format: str) -> None:
    async with (
        served(tmp_path, {"far": "Draws"}) as server,
        team({"far": far(format, NOWHERE, server)}) as engine,
    ):
        [turn] = (await engine.run("e", PROBLEM, Key(5))).turns
        assert turn.status == "completed"
        assert engine.calls.retried == 0


@sync
async def test_no_healthy_address_is_said_before_the_run() -> None:
    without_health = Http(urls=[f"http://{NOWHERE}"])
    for component in (far("grpc", NOWHERE), far("http", NOWHERE), without_health):
        with pytest.raises(UsageError, match=r"agents\.far: no address is healthy: .*127\.0\.0\.1"):
            async with team({"far": component}):
                pass


@both
@sync
async def test_a_busy_server_sends_callers_elsewhere(tmp_path: Path, format: str) -> None:
    async with (
        served(tmp_path, {"far": "Waits"}, Settings(concurrency=1, waiting=0)) as busy,
        team({"far": far(format, busy)}) as engine,
    ):
        first = asyncio.create_task(engine.run("e", PROBLEM, Key(5)))
        gate = GATES[-1]
        await asyncio.wait_for(gate.came.wait(), WAIT)
        async with served(tmp_path, {"far": "Draws"}) as free:
            GATES.append(gate)
            async with team({"far": far(format, busy, free)}) as other:
                [turn] = (await other.run("e", PROBLEM, Key(5))).turns
                assert turn.output.data["agent"] == "far"
                assert other.calls.retried == 0
        gate.open.set()
        [turn] = (await first).turns
        assert turn.output.content == PROBLEM.text


@both
@sync
async def test_who_is_cancelled_here_is_cancelled_there(tmp_path: Path, format: str) -> None:
    async with (
        served(tmp_path, {"far": "Waits"}) as server,
        team({"far": far(format, server)}) as engine,
    ):
        for viewer in (None, lambda who, text: None):
            gate = GATES[-1]
            engine.viewer = viewer
            work = asyncio.create_task(engine.run("e", PROBLEM, Key(5)))
            await asyncio.wait_for(gate.came.wait(), WAIT)
            work.cancel()
            await asyncio.wait_for(gate.cancelled.wait(), WAIT)
            with pytest.raises(asyncio.CancelledError):
                await work
            gate.came.clear()
            gate.cancelled.clear()


@both
@sync
async def test_a_wrong_key_pauses_the_run(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, {"far": "Draws"}, Settings(key="right-key-of-this")) as server:
        for key, right in (("wrong-key-of-this", False), ("right-key-of-this", True)):
            monkeypatch.setenv("FAR_KEY", key)
            async with team({"far": far(format, server, key_env="FAR_KEY")}) as engine:
                if right:
                    assert (await engine.run("e", PROBLEM, Key(5))).answer
                else:
                    with pytest.raises(BudgetError):
                        await engine.run("e", PROBLEM, Key(5))


@both
@sync
async def test_a_used_up_budget_there_pauses_the_run_here(tmp_path: Path, format: str) -> None:
    async with (
        served(tmp_path, {"far": "Draws"}, budget={"calls": 1}) as server,
        team({"far": far(format, server)}) as engine,
    ):
        assert (await engine.run("e", PROBLEM, Key(5))).answer
        with pytest.raises(BudgetError, match="budget"):
            await engine.run("e", Problem("p2", "another"), Key(6))


@sync
async def test_prices_and_bounds_hold_in_the_budget_here(tmp_path: Path) -> None:
    """An unknown price is refused by a budget in US dollars; a bound is reserved and settled."""
    async with served(tmp_path, {"far": "Draws"}) as server:
        for most, refused in ((None, True), (Most(usd=0.6), False), (Most(usd=2), True)):
            calls = CallPath(Budget(Caps(usd=1.0)))
            async with team({"far": far("grpc", server, most=most)}, calls=calls) as engine:
                if refused:
                    with pytest.raises(BudgetError):
                        await engine.run("e", PROBLEM, Key(5))
                else:
                    assert (await engine.run("e", PROBLEM, Key(5))).usage.usd == 0.25


@pytest.mark.parametrize(
    ("settings", "is_known"),
    [
        ({"price": {"call": 0.5}}, True),
        ({"most": {"usd": 0.5}}, True),
        ({"price": {"call": 0.25}, "most": {"output_tokens": 9, "usd": 0.5}}, True),
        ({"price": {"call": 0.5, "output": 2}}, False),
        ({}, False),
    ],
    ids=str,
)
@sync
async def test_a_fixed_price_bounds_what_a_run_takes(
    settings: dict[str, Any], is_known: bool
) -> None:
    agent = {"use": "http", "urls": [f"http://{NOWHERE}"], **settings}
    bound = await forecast_of(as_config(config({"far": agent})))
    assert (bound.unknown == ()) == is_known
    assert (bound.total.usd == 0.5 * bound.total.calls > 0) == is_known


def test_a_dry_run_says_that_a_price_which_nobody_states_is_not_known(tmp_path: Path) -> None:
    path = written(tmp_path, {"far": {"use": "http", "urls": [f"http://{NOWHERE}"]}})
    told = here("train", path, "--dry-run", "-o", "budget.usd=1.4", cwd=tmp_path).stdout
    budget = "budget.usd: 1.4 may or may not be enough (at most 0 and more, which is not known)"
    assert budget in told


@pytest.mark.parametrize(("own", "doubts"), [({}, 1), ({"cost": 5}, 0)])
def test_us_dollars_beside_a_cost_of_another_unit_are_a_warning(
    own: dict[str, Any], doubts: int, tmp_path: Path
) -> None:
    agents = {
        "far": {"use": "http", "urls": [f"http://{NOWHERE}"], "price": {"call": 0.001}, **own},
        "near": {"use": "function", "function": "builtins:str", "cost": 10},
    }
    path = written(tmp_path, agents, reward={"use": "outcome-minus-cost"})
    told = json.loads(here("validate", path, "--json", cwd=tmp_path).stdout)["warnings"]
    assert ["`measure: cost` adds up different units" in text for text in told] == [True] * doubts


# ---------------------------------------------------------------- encryption


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, a server's certificate for localhost, and a client's."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other"):
        subject = ("-subj", f"/CN={name}", "-days", "2")
        openssl("req", "-x509", *curve, *subject, "-keyout", f"{name}.key", "-out", f"{name}.pem")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    for name in ("server", "client"):
        openssl("req", *curve, "-subj", "/CN=x", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


@sync
async def test_both_sides_prove_who_they_are(tmp_path: Path, certificates: Path) -> None:
    def pem(name: str) -> Path:
        return certificates / name

    settings = Settings(cert=pem("server.pem"), cert_key=pem("server.key"), client_ca=pem("ca.pem"))
    own = partial(Tls, cert=pem("client.pem"), key=pem("client.key"))
    async with served(tmp_path, {"far": "Draws"}, settings) as server:
        async with team({"far": far("grpc", server, tls=own(pem("ca.pem")))}) as engine:
            assert (await engine.run("e", PROBLEM, Key(5))).answer
        for tls in (own(pem("other.pem")), Tls(pem("ca.pem")), None):
            with pytest.raises(UsageError, match="no address is healthy"):
                async with team({"far": far("grpc", server, tls=tls)}):
                    pass
        trust = ssl.create_default_context(cafile=pem("ca.pem"))
        trust.load_cert_chain(pem("client.pem"), pem("client.key"))
        async with httpx2.AsyncClient(verify=trust) as client:
            url = f"https://127.0.0.1:{server.http_port}/health"
            assert (await client.get(url)).status_code == 200
        bare = ssl.create_default_context(cafile=pem("ca.pem"))
        async with httpx2.AsyncClient(verify=bare) as client:
            with pytest.raises(httpx2.RequestError):
                await client.get(url)


# ---------------------------------------------------------------- other people's endpoints


async def turn_over_http(component: Http) -> tuple[Turn, Any]:
    async with team({"far": component}) as engine:
        episode = await engine.run("e", PROBLEM, Key(5))
        return episode.turns[0], engine


def completion(text: str, **usage: int | None) -> Any:
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": usage}


def test_a_chat_endpoint_is_asked_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", "secret-of-theirs")
    answer = completion("2", prompt_tokens=1000, completion_tokens=100)
    with ModelService(reply(429, retry_after="0.001"), reply(200, answer)) as service:
        component = Http(
            urls=[f"{service.url}/v1/chat/completions"],
            format="chat",
            model="team",
            instructions="Add.",
            max_tokens=200,
            extra={"seed": 1},
            key_env="FAR_KEY",
            headers={"x-team": "a"},
            price=Price(call=0.5, input=100, output=1000),
        )
        turn, engine = asyncio.run(turn_over_http(component))
    assert turn.output.content == "2"
    assert turn.usage == Usage(1, 1000, 100, 0.7, 0.7)
    assert engine.calls.retried == 1
    seen = service.seen[-1]
    assert seen.headers["authorization"] == "Bearer secret-of-theirs"
    assert seen.headers["x-team"] == "a"
    assert seen.headers["idempotency-key"] == service.seen[0].headers["idempotency-key"]
    assert seen.data == {
        "seed": 1,
        "model": "team",
        "max_tokens": 200,
        "messages": [
            {"role": "system", "content": "Add."},
            {"role": "user", "content": PROBLEM.text},
        ],
    }
    turns = Trajectory([Turn(0, "critic", output=Output("no")), Turn(1, "far", output=Output("2"))])
    view = View("far", None, PROBLEM, turns, Observation("one left"))
    assert component.request(view, Key(1))["messages"][1:] == [
        {"role": "user", "content": PROBLEM.text},
        {"role": "user", "content": "critic: no"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "one left"},
    ]


def test_any_json_with_a_text_somewhere_is_an_answer() -> None:
    body = {"result": [{"text": "2"}], "error": None, "usage": {"input_tokens": 5, "usd": 0.125}}
    with ModelService(reply(200, body)) as service:
        component = Http(urls=[service.url], answer="result.0.text")
        turn, _ = asyncio.run(turn_over_http(component))
    assert turn.output.content == "2"
    assert turn.usage == Usage(1, 5, 0, 0.125, 0.125)
    assert service.seen[0].data["problem"] == {
        "id": "p1",
        "text": PROBLEM.text,
        "data": PROBLEM.data,
        "category": "sums",
    }


@pytest.mark.parametrize(
    ("format", "answer"),
    [
        ("chat", completion("2")),
        ("chat", completion("2", prompt_tokens=0, completion_tokens=0)),
        ("chat", completion("2", prompt_tokens=5)),
        ("chat", completion("2", prompt_tokens=None, completion_tokens=3)),
        ("chat", completion("2", prompt_tokens=-5, completion_tokens=10**25)),
        ("json", {"content": "2", "usage": {}}),
        ("json", {"content": "2", "usage": {"calls": 0, "usd": 0}}),
    ],
)
def test_a_usage_that_tells_nothing_is_booked_with_what_was_set_aside(
    format: Any, answer: Any
) -> None:
    with ModelService(reply(200, answer)) as service:
        component = Http(
            urls=[service.url],
            format=format,
            model="m" if format == "chat" else "",
            most=Most(100, 20, 0.5),
        )
        turn, engine = asyncio.run(turn_over_http(component))
    assert turn.output.metadata == {"estimated": True}
    assert turn.usage == Usage(1, 100, 20, 0.5, 0.5)
    assert engine.calls.retried == 0


@both
@sync
async def test_a_turn_that_takes_nothing_there_is_free_here(tmp_path: Path, format: str) -> None:
    async with (
        served(tmp_path, {"far": "Adds"}) as server,
        team({"far": far(format, server, most=Most(100, 20, 0.5))}) as engine,
    ):
        [turn] = (await engine.run("e", PROBLEM, Key(5))).turns
    assert turn.usage == Usage(1)


@pytest.mark.parametrize("own", [None, 3.0])
@pytest.mark.parametrize("stated", [None, {"usd": 0.25}, {"cost": 7.0}], ids=str)
def test_a_cost_that_the_agent_does_not_state_is_the_own_one_or_us_dollars(
    own: float | None, stated: dict[str, float] | None
) -> None:
    with ModelService(reply(200, {"content": "2", "usage": stated})) as service:
        turn, _ = asyncio.run(
            turn_over_http(Http(urls=[service.url], price=Price(call=0.5), cost=own))
        )
    usd = (stated or {}).get("usd", 0.5)
    cost = (stated or {}).get("cost", usd if own is None else own)
    assert turn.usage == Usage(1, usd=usd, cost=cost)


@pytest.mark.parametrize(
    ("answers", "attempts", "spent"),
    [
        ([reply(400, {"error": "no"})], 1, 0),
        ([reply(302, location="http://elsewhere.example")], 1, 0),
        ([reply(500), reply(503), reply(200, {"content": "2"})], 3, 1),
        ([cut({"content": "2"}, 3), reply(200, {"content": "2"})], 2, 2),
        ([reply(200, "{}"), reply(200, {"content": "2"})], 2, 2),
        ([reply(200, '{"content": 3}')], 3, 3),
        *(
            ([reply(200, {"content": "2", "usage": usage})], 3, 3)
            for usage in ({"calls": -1}, {"calls": 2**62}, {"output_tokens": 10**25}, {"cost": -9})
        ),
    ],
)
def test_faults_are_tried_again_as_often_as_it_helps(
    answers: list[Any], attempts: int, spent: int
) -> None:
    with ModelService(*answers) as service:
        component = Http(urls=[service.url], price=Price(call=1))
        turn, engine = asyncio.run(turn_over_http(component))
    assert len(service.seen) == attempts
    assert (turn.status == "completed") == (turn.output.content == "2")
    # An attempt whose answer was lost may have cost its price.
    assert engine.calls.budget.spent.usd == spent


Code = grpc.StatusCode
Answers = list[tuple[grpc.StatusCode, str] | agent_pb2.ActResponse]


@asynccontextmanager
async def rpc_service(answers: Answers) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve somebody else's agent, without a health check; yield its address and who asked."""
    came: list[str] = []

    async def act(request: Any, context: Any) -> Any:
        came.append(request.agent)
        answer = answers.pop(0)
        if isinstance(answer, tuple):
            hint = (("retry-after", answer[1]),) if answer[1] else ()
            await context.abort(answer[0], "the reason", hint)
        return answer

    handler = grpc.unary_unary_rpc_method_handler(
        act, agent_pb2.ActRequest.FromString, agent_pb2.ActResponse.SerializeToString
    )
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler(SERVICE, {"Act": handler})
    server.add_generic_rpc_handlers([handlers])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", came
    await server.stop(None)


@pytest.mark.parametrize(
    ("answers", "attempts", "spent"),
    [
        ([(Code.INVALID_ARGUMENT, "")], 1, 0),
        ([(Code.UNAVAILABLE, "0.001"), (Code.RESOURCE_EXHAUSTED, "x")], 3, 1),
        ([(Code.UNAVAILABLE, ""), (Code.INTERNAL, "")], 3, 3),
        ([agent_pb2.ActResponse(content="2", data_json="{")], 2, 2),
        ([(Code.UNAUTHENTICATED, "")], 1, None),
        ([(Code.FAILED_PRECONDITION, "")], 1, None),
    ],
    ids=repr,
)
@sync
async def test_faults_over_grpc_are_tried_again_as_often_as_it_helps(
    answers: Answers, attempts: int, spent: int | None
) -> None:
    """Without `spent` somebody has to act, and the run pauses."""
    answers = [*answers, agent_pb2.ActResponse(content="2")]
    async with (
        rpc_service(answers) as (address, came),
        team({"far": far("grpc", address, price=Price(call=1))}) as engine,
    ):
        if spent is None:
            with pytest.raises(BudgetError, match="the reason"):
                await engine.run("e", PROBLEM, Key(5))
        else:
            [turn] = (await engine.run("e", PROBLEM, Key(5))).turns
            assert (turn.status == "completed") == (attempts > 1)
            assert engine.calls.budget.spent.usd == spent
        assert came == ["far"] * attempts


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Http, {"urls": ["ftp://a.example"]}, "'ftp://a.example' is no address"),
        (Http, {"urls": ["http://me:secret@a.example"]}, "neither a password nor a fragment"),
        (Http, {"urls": ["http://a.example"] * 2}, "stands there twice"),
        (Http, {"format": "chat"}, "model: name the model"),
        (Http, {"format": "chat", "model": "m", "answer": "x"}, "answer: has no effect"),
        (Http, {"format": "chat", "model": "m", "extra": {"n": 2}}, "must not hold 'n'"),
        (Http, {"model": "m"}, "model: has no effect with format: json"),
        (Grpc, {"addresses": ["http://a.example:1"]}, "is no address like"),
        (Grpc, {"addresses": ["a.example:1"] * 2}, "stands there twice"),
        (Tls, {"cert": Path("cert.pem")}, "belong together"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    kind: Any, settings: dict[str, Any], message: str
) -> None:
    own = {Http: {"urls": ["http://a.example"]}}.get(kind, {})
    with pytest.raises(ValueError, match=message):
        kind(**{**own, **settings})


@sync
async def test_ports_and_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing = Settings(cert=tmp_path / "none.pem", cert_key=tmp_path / "none.pem")
    async with served(tmp_path, {"far": "Draws"}) as server:
        for settings, places, message in (
            (
                None,
                {"grpc_port": server.grpc_port},
                f"cannot listen on 127.0.0.1, port {server.grpc_port}",
            ),
            (missing, {}, "none.pem cannot be read"),
            (missing, {"grpc_port": None, "http_port": 0}, "the certificates cannot be used"),
        ):
            async with open_run(str(tmp_path / "served.yaml")) as trained:
                with pytest.raises(UsageError, match=message):
                    async with serving(trained, settings=settings, **places):  # type: ignore[arg-type]
                        pass
    with pytest.raises(UsageError, match=r"agents\.far\.tls: .*none.pem cannot be read"):
        async with team({"far": far("grpc", NOWHERE, tls=Tls(tmp_path / "none.pem"))}):
            pass


@sync
async def test_the_server_refuses_what_is_no_request(tmp_path: Path) -> None:
    async with (
        served(tmp_path, {"far": "Draws"}) as server,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.http_port}") as client,
    ):
        post = partial(client.post, headers={"content-type": "application/json"})
        body = '{"problem": {"id": "p"}, "key": "00"}'
        assert (await post("/agents/far", content=body)).status_code == 200
        assert (await post("/agents/near", content=body)).status_code == 404
        long = body.replace("00", "00" * 65)
        turns = body.replace("{", '{"turns": [' + '{"agent": ""},' * 30_001 + "],", 1)
        for bad in ("", "[]", '{"problem": 3}', body.replace("00", "x"), long, turns):
            response = await post("/agents/far", content=bad)
            assert (response.status_code, "not a request" in response.text) == (400, True)
        plain = await client.post("/agents/far", content=body)
        other = {"content-type": "application/json", "host": "evil.example"}
        rebound = await client.post("/agents/far", content=body, headers=other)
        assert plain.status_code == rebound.status_code == 415
        assert (await client.get("/health")).status_code == 200
        await server.agents.drain()
        assert (await client.get("/health")).status_code == 503
        late = await post("/agents/far", content=body)
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")


@both
@sync
async def test_more_turns_than_the_server_does_at_once_wait_and_leave_when_it_stops(
    tmp_path: Path, format: str
) -> None:
    once = CallPath(retry=RetrySettings(attempts=1))
    async with (
        served(tmp_path, {"far": "Waits"}, Settings(concurrency=1, waiting=2)) as server,
        team({"far": far(format, server)}, calls=once) as engine,
    ):
        gate = GATES[-1]
        works = []
        for i in range(3):
            work = engine.run(f"e{i}", Problem(f"p{i}", f"text {i}"), Key(i))
            works.append(asyncio.create_task(work))
            await asyncio.wait_for(gate.came.wait(), WAIT)
        async with asyncio.timeout(WAIT):
            while server.agents._waiting < 2:  # noqa: ASYNC110  the server announces nothing
                await asyncio.sleep(0.001)
        draining = asyncio.create_task(server.agents.drain())
        for work in works[1:]:
            [turn] = (await work).turns
            assert "the server is stopping" in turn.error
        gate.open.set()
        [turn] = (await works[0]).turns
        assert turn.output.content == "text 0"
        await draining
