"""A server in a thread, and agents that wait until a test lets them go on."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from attrs import define, field, frozen
from orchestrion_serve import Keys, Serving, Settings, serving
from orchestrion_serve.in_use import UseSettings, using
from orchestrion_serve.keys import hash_of
from orchestrion_serve.limits import KeyLimits
from orchestrion_serve.versions import versions_of

from orchestrion import (
    Agent,
    Answer,
    CallError,
    Calls,
    Fault,
    Key,
    Output,
    Problem,
    Request,
    Scores,
    Split,
    Task,
    Trajectory,
    Usage,
    View,
)
from orchestrion.runs import open_run
from tests import warm
from tests.end_to_end.support import environment
from tests.workspace import ROOT

if TYPE_CHECKING:
    import openai

ANN, BEN = "a" * 32, "b" * 32
"""The keys of Ann and Ben."""
CHAT = "/v1/chat/completions"
HERE = "tests.plugins.serve.support"
WAIT = 60.0
"""Seconds after which a test gives up."""


class Gate:
    """Where agents wait; counts those that came, and notes that one was cancelled."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.came = threading.Semaphore(0)
        self.cancelled = threading.Event()
        self.open = asyncio.Event()


GATE = Gate()


@frozen
class Anything(Task):
    """Takes any text, and accepts any answer."""

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return one problem."""
        return [Problem(split, "a problem")]

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return success."""
        return Scores(1.0, True)


@frozen
class Picky(Anything):
    """Takes no text that begins with "odd", and breaks on others."""

    def problem_from(self, text: str) -> Problem:
        """Raise."""
        raise ValueError("it is odd") if text.startswith("odd") else RuntimeError("at /secret")


@frozen
class Says(Agent):
    """Says its text, or what it was asked."""

    text: str = ""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        usage = Usage(calls=1, input_tokens=3, output_tokens=2, usd=0.25, cost=1.5)
        return Output(self.text or view.problem.text, usage=usage)


@frozen
class Draws(Agent):
    """Says a number that hangs on the key alone."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output(str(key.integer()))


@frozen
class Fails(Agent):
    """Raises an error."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        raise ValueError("the agent is broken")


@frozen
class Quiet(Agent):
    """Completes a turn without a text."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        return Output()


@frozen
class Waits(Agent):
    """Answers when the gate is open."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        GATE.came.release()
        try:
            await GATE.open.wait()
        except asyncio.CancelledError:
            GATE.cancelled.set()
            raise
        return Output(view.problem.text)


@frozen
class Pays(Agent):
    """Pays for a call, and waits at the gate: `before` the service answers, or `after` that."""

    usd: float | None = 0.5
    waits: str = ""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        usd = float("nan") if self.usd is None else self.usd
        usage = Usage(1, 30, 20, usd)

        async def ask() -> Answer:
            await self._wait("before")
            return Answer("done", usage)

        await calls.run(Request("paid", view.problem.text), ask, usage)
        await self._wait("after")
        return Output(view.problem.text)

    async def _wait(self, when: str) -> None:
        if self.waits == when:
            GATE.came.release()
            await GATE.open.wait()


@frozen
class Broke(Agent):
    """Asks a service that does not let it go on; each attempt at a call takes `usd`."""

    fault: Fault
    wait: float = 0.0
    usd: float = 0.0

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        spent = Usage(1, 10, 10, self.usd) if self.usd else None
        faults: list[Fault] = [self.fault, "permanent"]

        async def ask() -> Answer:
            raise CallError("/secret/place", faults.pop(0), self.wait or None, spent)

        await calls.run(Request("broke", view.problem.text), ask)
        raise AssertionError


@frozen
class Paints(Agent):
    """Answers with an image."""

    text: str = "a drawing"

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        image = {"type": "image", "media_type": "image/png", "data": "aGVsbG8="}
        return Output(self.text, {"images": [image]})


def config(folder: Path, name: str, agents: Mapping[str, Any], **more: Any) -> str:
    """Write a config whose agents act one after the other; return its path."""
    data = {
        "task": {"use": f"{HERE}:Anything"},
        "agents": {
            who: {"use": f"{HERE}:{agent}"} if isinstance(agent, str) else agent
            for who, agent in agents.items()
        },
        "policy": {"use": "dag:dag", "chain": " -> ".join(agents)},
        **more,
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return str(path)


def reviewed(folder: Path, writer: str) -> str:
    """Write the config of a writer, whose text the task judges, and a reviewer; return its path."""
    rows = [{"question": "Why?", "answer": "so"}]
    split = {"train": 0, "validation": 0, "test": 1}
    agents: dict[str, Any] = {"writer": writer, "reviewer": {"use": f"{HERE}:Says", "text": "PASS"}}
    judged = {"use": "jsonl", "rows": rows, "solver": ["writer"], "split": split}
    steps = {"use": "sequence", "steps": list(agents)}
    return config(folder, "reviewed", agents, task=judged, policy=steps)


def chat(model: str = "echo", text: str = "hi", /, **fields: Any) -> bytes:
    """Return the body of a question."""
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": model, "messages": messages, **fields}).encode()


def answered(
    connection: http.client.HTTPConnection,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    method: str = "",
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Send a request, a POST if it has a body; return the answer's status, JSON and headers.

    What is no JSON is returned as text.
    """
    with closing(connection):
        given = {"content-type": "application/json", **(headers or {})}
        connection.request(method or ("GET" if body is None else "POST"), path, body, given)
        response = connection.getresponse()
        content = response.read()
        is_json = response.headers["content-type"] == "application/json"
        data = json.loads(content) if is_json else content.decode()
        return response.status, data, response.headers


def keys_of(spent: Path | None = None, **limits: KeyLimits | None) -> Keys:
    """Return keys of clients by their names: 32 times the first letter of each."""
    hashes = {name: hash_of(name[0] * 32) for name in limits}
    return Keys(hashes, {name: limit for name, limit in limits.items() if limit}, spent)


@contextmanager
def process(folder: Path, *words: str) -> Iterator[tuple[warm.Command, int]]:
    """Start the command in a process of its own; yield it and its port."""
    path = f"{folder}{os.pathsep}{ROOT}"
    command = ["serve", *words, "--port", "0"]
    pipe = subprocess.PIPE
    started = warm.Command(command, folder, environment(PYTHONPATH=path), stdout=pipe, stderr=pipe)
    with started:
        assert started.stderr is not None
        try:
            line = next((line for line in started.stderr if line.startswith("serving ")), "")
            assert line, started.stderr.read()
            yield started, int(line.rstrip().removesuffix("/v1").rpartition(":")[2])
        finally:
            started.kill()


@define
class Server:
    """A server in another thread."""

    running: Serving
    loop: asyncio.AbstractEventLoop
    log: list[Mapping[str, Any]]
    logged: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))

    @property
    def address(self) -> str:
        """Return its URL."""
        return self.running.address

    def client(self, **more: Any) -> openai.OpenAI:
        """Return a client that tries once."""
        import openai

        settings = {"api_key": "none", "max_retries": 0, "timeout": WAIT, **more}
        return openai.OpenAI(base_url=f"{self.address}/v1", **settings)

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection, for requests by hand."""
        place = urlsplit(self.address)
        return http.client.HTTPConnection(place.hostname or "", place.port, timeout=WAIT)

    def answer(
        self,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "",
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Send a request as it is; see `answered`."""
        return answered(self.connect(), path, body, headers, method)

    def ask(
        self, model: str = "echo", key: str = "", text: str = "hi", **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Ask a model with a client's key; see `answered`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.answer(CHAT, chat(model, text), {"authorization": f"Bearer {key}", **named})

    def code(self, *words: str, **headers: str) -> tuple[int, str]:
        """Ask as `ask` does; return the status and the error's code, if there is one."""
        status, data, _ = self.ask(*words, **headers)
        return status, data.get("error", {}).get("code", "")

    def open_gate(self) -> None:
        """Let waiting agents go on."""
        self.loop.call_soon_threadsafe(GATE.open.set)

    def record(self) -> Mapping[str, Any]:
        """Return the log's next line."""
        assert self.logged.acquire(timeout=WAIT)
        return self.log[-1]


@contextmanager
def served(
    *targets: str,
    settings: Settings | None = None,
    keys: Keys | None = None,
    use: UseSettings | None = None,
    canary: str | None = None,
) -> Iterator[Server]:
    """Serve configs in a thread until the block ends."""
    GATE.reset()
    ready = threading.Event()
    servers: list[Server] = []
    errors: list[BaseException] = []
    stopped = asyncio.Event()

    async def main() -> None:
        log: list[Mapping[str, Any]] = []

        def write(record: Mapping[str, Any]) -> None:
            log.append(record)
            servers[0].logged.release()

        async with AsyncExitStack() as stack:
            teams = await stack.enter_async_context(versions_of(targets))
            uses = {}
            if use is not None:
                new = None
                if canary is not None:
                    new = await stack.enter_async_context(open_run(canary))
                uses = dict(await stack.enter_async_context(using(teams, use, new, print, keys)))
            async with serving(teams, "127.0.0.1", 0, settings, keys, write, uses) as running:
                servers.append(Server(running, asyncio.get_running_loop(), log))
                ready.set()
                await stopped.wait()
                GATE.open.set()

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(WAIT)
    try:
        if servers:
            yield servers[0]
    finally:
        if servers:
            servers[0].loop.call_soon_threadsafe(stopped.set)
        thread.join(WAIT)
    if errors:
        raise errors[0]
