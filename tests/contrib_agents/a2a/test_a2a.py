"""An agent behind a real A2A server, built with the official SDK."""

from __future__ import annotations

import asyncio
import json
import math
import queue
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import uvicorn
from a2a.helpers import new_data_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from attrs import evolve
from orchestrion_a2a.agent import A2A
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrion import BudgetError, Key, Problem, Turn, Usage
from orchestrion._config.loading import as_config
from orchestrion._forecast import forecast_of
from orchestrion.testing import Fixed, opened_engine
from tests.contrib_agents.remote.support import WAIT, checked, config, quick
from tests.coroutines import sync

KEY = "key-of-the-tests"


class Executor(AgentExecutor):  # type: ignore[misc]
    """Does what the last word of the message says."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.data: list[Any] = []
        self.go, self.cancelled = asyncio.Event(), asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer a message."""
        text = context.get_user_input()
        assert context.message is not None
        self.came.append(text)
        self.data += [part.data for part in context.message.parts if part.HasField("data")]
        word = text.split()[-1]
        if word == "message":
            parts = [new_text_part("2"), new_data_part({"sum": 2})]
            message = pb.Message(role=pb.Role.ROLE_AGENT, message_id="m", parts=parts)
            await event_queue.enqueue_event(message)
            return
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        why = updater.new_agent_message([new_text_part("the paper is empty")])
        if word == "fails":
            await updater.failed(why)
        elif word == "asks":
            await updater.requires_input(why)
        elif word == "waits":
            await updater.add_artifact([new_text_part("begun")])
            await self.go.wait()
            await updater.complete()
        else:
            await updater.add_artifact([new_text_part("the ")], "a")
            await updater.add_artifact([new_text_part("answer")], "a", append=True)
            await updater.add_artifact([new_data_part({"n": [1, "x"]})], "b")
            await updater.complete(why)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Note it."""
        assert context.task_id is not None
        assert context.context_id is not None
        self.cancelled.set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


Around = Callable[[ASGIApp], ASGIApp]


@asynccontextmanager
async def served(
    executor: Executor, streaming: bool = True, around: Around = lambda app: app, host: str = ""
) -> AsyncIterator[str]:
    """Serve the agent; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        card = pb.AgentCard(
            name="calculator",
            description="adds",
            version="1",
            supported_interfaces=[
                pb.AgentInterface(
                    url=f"{host or url}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
                )
            ],
            capabilities=pb.AgentCapabilities(streaming=streaming),
            default_input_modes=["text"],
            default_output_modes=["text"],
            skills=[pb.AgentSkill(id="add", name="add", description="adds", tags=["sums"])],
        )
        handler = DefaultRequestHandler(executor, InMemoryTaskStore(), card)
        routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
        app = around(Starlette(routes=routes))
        settings = {"lifespan": "off", "ws": "none", "log_config": None}
        server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **settings))  # type: ignore[arg-type]
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        done = asyncio.create_task(server.serve([listener]))
        try:
            yield url
        finally:
            server.should_exit = True
            await done


@asynccontextmanager
async def team(url: str, **settings: Any) -> AsyncIterator[Any]:
    component: Any = A2A(url=url, poll=0.001, **settings)
    async with opened_engine({"far": component}, Fixed(["far"]), calls=quick()) as engine:
        yield engine


async def turn_of(engine: Any, text: str, data: Any = None) -> Turn:
    episode = await engine.run("e", Problem("p", text, data), Key(5))
    turn: Turn = episode.turns[0]
    return turn


stream = pytest.mark.parametrize("streaming", [True, False])


@stream
@sync
async def test_messages_and_tasks_become_turns(streaming: bool) -> None:
    executor = Executor()
    async with served(executor, streaming) as url, team(url, data=True, price=0.5) as engine:
        seen: list[str] = []
        engine.viewer = lambda who, text: seen.append(text)
        message = await turn_of(engine, "give a message", {"n": 1})
        assert (message.output.content, message.output.data) == ("2", {"sum": 2})
        task = await turn_of(engine, "work")
        assert task.output.content == "the \nanswer"
        assert task.output.data == {"n": [1, "x"]}
        assert task.usage == Usage(1, usd=0.5, cost=0.5)
        assert seen == (["2", "the ", "answer"] if streaming else ["2"])
        assert len(executor.data) == 1
        failed = await turn_of(engine, "this fails")
        assert failed.status == "failed"
        assert failed.error == "CallError: the task ended as failed: the paper is empty"
        asks = await turn_of(engine, "this asks")
        assert "ended as input required: the paper is empty" in asks.error
        await asyncio.wait_for(executor.cancelled.wait(), WAIT)  # nobody will answer it
        assert len(executor.came) == 4
        assert engine.calls.retried == 0


@sync
async def test_a_task_without_a_price_costs_nothing_and_its_dollars_are_unknown() -> None:
    async with served(Executor(), True) as url, team(url) as engine:
        usage = (await turn_of(engine, "work")).usage
    assert (usage.calls, usage.cost) == (1, 0.0)
    assert math.isnan(usage.usd)


@pytest.mark.parametrize("price", [0.5, None])
@sync
async def test_its_price_bounds_what_a_run_takes(price: float | None) -> None:
    agent = {"use": "a2a", "url": "http://127.0.0.1:9", "price": price}
    bound = await forecast_of(as_config(config({"far": agent})))
    assert bool(bound.unknown) == (price is None)
    assert bound.total.usd == 0.5 * bound.total.calls


@stream
@sync
async def test_who_is_cancelled_here_cancels_the_task_there(streaming: bool) -> None:
    knows = asyncio.Event()
    """Set when the caller knows the task: it shows the stream's text, or asks a second time."""

    def counting(app: ASGIApp) -> ASGIApp:
        posts: list[Scope] = []

        async def around(scope: Scope, receive: Receive, send: Send) -> None:
            posts.extend([scope] if scope["method"] == "POST" else [])
            if len(posts) > 1:
                knows.set()
            await app(scope, receive, send)

        return around

    executor = Executor()
    async with served(executor, streaming, counting) as url, team(url) as engine:
        engine.viewer = lambda who, text: knows.set()
        work = asyncio.create_task(turn_of(engine, "this waits"))
        await asyncio.wait_for(knows.wait(), WAIT)
        work.cancel()
        await asyncio.wait_for(executor.cancelled.wait(), WAIT)
        with pytest.raises(asyncio.CancelledError):
            await work


@sync
async def test_a_stream_that_breaks_is_not_asked_again_but_looked_after() -> None:
    """The second attempt polls the task that the first began."""

    def breaking(app: ASGIApp) -> ASGIApp:
        state = {"broken": False}

        async def around(scope: Scope, receive: Receive, send: Send) -> None:
            async def cut(message: Message) -> None:
                await send(message)
                if b'"task"' in message.get("body", b"") and not state["broken"]:
                    state["broken"] = True
                    raise RuntimeError("the connection breaks")

            await app(scope, receive, cut)

        return around

    executor = Executor()
    async with served(executor, around=breaking) as url, team(url) as engine:
        turn = await turn_of(engine, "work")
        assert turn.output.content == "the \nanswer", turn.error
        assert engine.calls.retried == 1
        assert executor.came == ["work"]


def answering(statuses: list[int], app: ASGIApp) -> ASGIApp:
    """Answer requests that carry no key, and the first ones, with a status."""

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        status = 401 if headers.get(b"authorization") != f"Bearer {KEY}".encode() else 0
        if not status and scope["method"] == "POST" and statuses:
            status = statuses.pop(0)
        if status:
            refusal = Response("no", status, {"retry-after": "0.001"})
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return around


@sync
async def test_refusals_are_tried_again_where_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    executor = Executor()
    async with served(executor, around=lambda app: answering(statuses, app)) as url:
        async with team(url) as engine:
            with pytest.raises(BudgetError, match="401"):
                await turn_of(engine, "work")
        monkeypatch.setenv("FAR_KEY", KEY)
        async with team(url, key_env="FAR_KEY") as engine:
            statuses += [429, 503, 500]
            assert (await turn_of(engine, "work")).status == "completed"
            assert engine.calls.retried == 3
            statuses += [400]
            assert "400" in (await turn_of(engine, "another work")).error
            assert engine.calls.retried == 3
    assert len(executor.came) == 1


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"content-encoding": "gzip"}, r"the answer is packed \(gzip\)"),
        ({}, r"the answer has more than 8388608 bytes"),
    ],
)
@sync
async def test_a_card_without_end_is_not_read(headers: Mapping[str, str], why: str) -> None:
    def endless(app: ASGIApp) -> ASGIApp:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b" " * 100_000

        async def around(scope: Scope, receive: Receive, send: Send) -> None:
            await StreamingResponse(pieces(), headers=headers)(scope, receive, send)

        return around

    async with served(Executor(), around=endless) as url, team(url) as engine:
        assert re.search(why, (await turn_of(engine, "work")).error)


CARD = """{"name": "a", "description": "a", "version": "1", "supportedInterfaces": [
    {"url": "URL", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]}"""


def instead(bodies: Mapping[str, str], app: ASGIApp) -> ASGIApp:
    """Answer requests of some methods, GET of the card and POST, with other JSON.

    ID in it stands for that of the request.
    """

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if (body := bodies.get(scope["method"])) is not None:
            if scope["method"] == "POST":
                body = body.replace("ID", (await Request(scope, receive).json())["id"])
            await Response(body, media_type="application/json")(scope, receive, send)
        else:
            await app(scope, receive, send)

    return around


@pytest.mark.parametrize(
    ("card", "why", "retried"),
    [
        ("[1, 2]", "Agent card must be a JSON object", 2),
        ("what?", "Failed to parse JSON for agent card", 2),
        (CARD.replace("URL", "file:///etc/passwd"), "names an address that is not like https", 0),
        (CARD.replace("URL", "http:///rpc"), "names an address that is not like https", 0),
    ],
)
@sync
async def test_a_card_that_cannot_be_used_costs_nothing(card: str, why: str, retried: int) -> None:
    around = partial(instead, {"GET": card})
    async with served(Executor(), around=around) as url, team(url, price=0.5) as engine:
        assert why in (await turn_of(engine, "work")).error
        assert engine.calls.retried == retried
        assert engine.calls.budget.spent == Usage()


@pytest.mark.parametrize(
    "part",
    [
        r'{"text": "\ud800"}',
        '{"data": NaN}',
        '{"data": 1e999}',
        f'{{"data": {"9" * 400}}}',
        f'{{"data": {"[" * 5000}{"]" * 5000}}}',
        "null",
    ],
    ids=lambda part: part[:20],
)
@sync
async def test_an_answer_that_cannot_be_read_is_asked_for_again_and_booked(part: str) -> None:
    message = f'{{"messageId": "m", "role": "ROLE_AGENT", "parts": [{part}]}}'
    answer = f'{{"jsonrpc": "2.0", "id": "ID", "result": {{"message": {message}}}}}'
    around = partial(instead, {"POST": answer})
    async with served(Executor(), False, around) as url, team(url, price=0.5) as engine:
        error = (await turn_of(engine, "work")).error
        assert error.startswith(f"CallError: {url}: an answer that cannot be used: ")
        assert engine.calls.retried == 2
        assert engine.calls.budget.spent == Usage(3, usd=1.5, cost=1.5)


@pytest.mark.parametrize(
    ("task", "why", "retried"),
    [
        # The first answer is read as that of SendMessage, and the same again as that of GetTask.
        (
            """{"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}, "id": "other",
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": "of another task"}]}]}""",
            "it tells of the task 'other' and not of 't'",
            2,
        ),
        (
            """{"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}""",
            "the task ended as completed: it gave neither text nor data",
            0,
        ),
    ],
)
@sync
async def test_only_what_its_own_task_gave_is_a_turn(task: str, why: str, retried: int) -> None:
    around = partial(instead, {"POST": f'{{"jsonrpc": "2.0", "id": "ID", "result": {task}}}'})
    async with served(Executor(), False, around) as url, team(url) as engine:
        assert why in (await turn_of(engine, "work")).error
        assert engine.calls.retried == retried


@stream
@sync
async def test_an_answer_to_another_request_fails_the_call(streaming: bool) -> None:
    def renamed(app: ASGIApp) -> ASGIApp:
        async def around(scope: Scope, receive: Receive, send: Send) -> None:
            async def other() -> Message:
                message = await receive()
                asked = {**json.loads(message["body"]), "id": "x"}
                return {**message, "body": json.dumps(asked).encode()}

            await app(scope, other if scope["method"] == "POST" else receive, send)

        return around

    async with served(Executor(), streaming, renamed) as url, team(url) as engine:
        turn = await turn_of(engine, "work")
        assert turn.status == "failed"
        assert "an answer to another request: its JSON-RPC id is 'x' and not " in turn.error
        assert engine.calls.retried == 2


@sync
async def test_the_key_goes_nowhere_but_to_the_cards_own_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAR_KEY", KEY)
    async with (
        served(Executor(), host="http://elsewhere.example") as url,
        team(url, key_env="FAR_KEY") as engine,
    ):
        turn = await turn_of(engine, "work")
        assert "the card names an address at another host" in turn.error


@sync
async def test_an_agent_that_is_not_there_fails_the_turn_after_all_attempts() -> None:
    async with team("http://127.0.0.1:9") as engine:
        turn = await turn_of(engine, "work")
        assert turn.status == "failed"
        assert engine.calls.retried == 5


def test_the_contract_of_agents_holds_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses, ends = queue.Queue[str](), queue.Queue[Callable[[], object]]()

    async def main() -> None:
        stop = asyncio.Event()
        async with served(Executor()) as url:
            ends.put(partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set))
            addresses.put(url)
            await stop.wait()

    server = threading.Thread(target=asyncio.run, args=(main(),))
    server.start()
    url = addresses.get(timeout=WAIT)
    try:
        only = ("acts on any view", "acts alike for equal keys", "never blocks the event loop")
        counts = checked("orchestrion_a2a.agent:A2A", {"url": url}, monkeypatch, only)
    finally:
        ends.get(timeout=WAIT)()
        server.join(WAIT)
    assert [*counts.values()] == [4, 4, 2]


def test_settings_that_make_no_sense_are_refused() -> None:
    good = A2A(url="https://agents.example.com/calculator")
    for url in ("agents.example.com", "https://me:secret@agents.example.com", "https://a.b/?x=1"):
        with pytest.raises(ValueError, match="url: must"):
            evolve(good, url=url)
