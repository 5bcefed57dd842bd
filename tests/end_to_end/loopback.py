"""A plugin with a model behind HTTP, and the simulated service that counts its calls."""

from __future__ import annotations

import json
from asyncio import StreamWriter, sleep
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.core.plugin_support import Site
from tests.service import ModelService, Seen, hang, reply

KEY = "sk-canary+0123456789/äbc"
"""The secret that the model sends with every request."""

PLUGIN = """
@hookimpl
def orchestrion_models():
    yield Component("loop", "loop_parts:Loop", "for a test")

@hookimpl
def orchestrion_agents():
    yield Component("ask", "loop_parts:Ask", "for a test")

@hookimpl
def orchestrion_tasks():
    yield Component("digits", "loop_parts:Digits", "for a test")

@hookimpl
def orchestrion_trainers():
    yield Component("repeat", "loop_parts:Repeat", "for a test")
"""

PARTS = '''
import asyncio, json
from contextlib import asynccontextmanager
from typing import Any
from attrs import field, frozen
from orchestrion import (
    Agent, Answer, CallError, Job, Model, Output, Plan, Problem, Request, Scores, Task, Trainer,
    Usage, learnable, no_calls,
)

@frozen
class Loop(Model):
    url: str = "http://127.0.0.1:1"
    tokens: int = 20
    cache: bool | None = False
    timeout: float = 60.0

    @asynccontextmanager
    async def open(self, ctx):
        secret = ctx.secret("LOOP_KEY")
        opened = Opened(self.url, self.tokens, self.cache, self.timeout, key=secret)
        if ctx.live:
            await opened.post({"preflight": True}, "preflight")
        yield opened

@frozen
class Opened(Loop):
    key: Any = field(kw_only=True)

    def ceiling(self, tokens):
        return Usage(1, tokens, self.tokens, 1e-6 * (tokens + self.tokens))

    async def complete(self, request, key, calls):
        content = {"request": dict(request)}
        asked = Request(
            "loop", content, sample=key.hex(), cache=self.cache, timeout=self.timeout
        )
        bound = self.ceiling(len(json.dumps(content)))

        async def do():
            return await self.post(content, key.hex())

        answer = await calls.run(asked, do, bound)
        if calls.watched:
            for piece in (answer.data["text"], chr(27), chr(10)):
                calls.show(piece)
        return answer

    async def post(self, content, name):
        host, _, port = self.url.removeprefix("http://").partition(":")
        body = json.dumps(content).encode()
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST / HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: {len(body)}\\r\\n"
            f"Idempotency-Key: {name}\\r\\nConnection: close\\r\\n"
        ).encode()
        head += b"Authorization: Bearer " + self.key.reveal().encode() + b"\\r\\n\\r\\n"
        try:
            writer.write(head + body)
            answer = await reader.read()
        except OSError as error:
            raise CallError(f"loop: {error}") from error
        finally:
            writer.close()
        first, _, rest = answer.partition(b"\\r\\n\\r\\n")
        status = int(first.split()[1]) if first else 0
        if status != 200:
            fault = {400: "permanent", 429: "rate_limit"}.get(status, "transient")
            raise CallError(f"loop: {status}: {rest.decode()}", fault)
        data = json.loads(rest)
        return Answer({"text": data["text"], "stop": "end"}, Usage(1, len(body), 3, 1e-6, 1.0))

@frozen
class Ask(Agent):
    model: Model
    calls: int = 1
    instructions: str = learnable("")

    async def act(self, view, key, calls):
        said = [view.problem.text, *(turn.output.content for turn in view.turns)]
        said += [self.instructions] if self.instructions else []
        text = ""
        for n in range(self.calls):
            request = {"messages": [{"role": "user", "content": " ".join([*said, text])}]}
            answer = await self.model.complete(request, key.child("call", n), calls)
            text = answer.data["text"]
        return Output(text)

    def ceiling(self, tokens):
        one = self.model.ceiling(tokens + 100)
        return sum([one] * (self.calls - 1), one)

@frozen
class Digits(Task):
    train: int = 6
    test: int = 6
    text: str = "digit"

    def problems(self, split):
        count = self.test if split == "test" else self.train
        return [Problem(f"{split}-{i}", f"{self.text} {i}") for i in range(count)]

    async def verify(self, problem, trajectory, state, *, final, calls):
        turns = [t for t in trajectory.turns if t.output.content.strip()]
        value = int(turns[-1].output.content.split()[-1]) / 9 if turns else 0.0
        return Scores(value, value >= 0.5)

    ceiling = no_calls

@frozen
class Repeat(Trainer):
    """Plays every training problem so many times, and learns nothing."""

    iterations: int = 2
    model: Model | None = None
    smoke = {"iterations": 1}

    def plan(self, i, sizes):
        own = Usage() if self.model is None else self.model.ceiling(100)
        return Plan(sizes["train"], usage=own)

    async def iterate(self, i, session):
        jobs = [Job(p, session.key.child(p.id)) for p in session.problems("train")]
        await session.rollout(jobs)
        if self.model is None:
            return {}
        key = session.key.child("reflect")
        answer = await self.model.complete({"messages": []}, key, session.calls(key))
        return {"reflected": float(answer.data["text"])}
'''

COMPOSED: dict[str, Any] = {
    "seed": 5,
    "task": {"use": "digits", "train": 4, "test": 4},
    "models": {"loop": {"use": "loop"}},
    "agents": {
        "writer": {"use": "ask", "model": "loop"},
        "reader": {"use": "ask", "model": "loop", "calls": 2},
        "crew": {
            "use": "team",
            "members": ["writer", "reader"],
            "policy": {"use": "sequence", "steps": ["writer", "reader"]},
            "turns": 2,
        },
        "second": {"use": "ask", "model": "loop"},
        "panel": {
            "use": "ensemble",
            "members": ["crew", "second"],
            "aggregator": {"use": "plurality"},
        },
        "critic": {"use": "ask", "model": "loop"},
    },
    "policy": {"use": "dag", "chain": "panel -> critic"},
    "reward": {"use": "exact-outcome"},
    "trainer": {
        "use": "evolution",
        "evaluations": 6,
        "batch": 3,
        "problems": 2,
        "slots": 2,
        "finalists": 2,
        "fresh": 2,
        "held_out": 2,
        "baselines": [],
    },
    "limits": {"turns": 6},
    "run": {"name": "composed"},
    "evaluation": {"baselines": {"critic": {"policy": {"use": "sequence", "steps": ["critic"]}}}},
}
"""A graph that is evolved, with an ensemble in it, with a nested team in that."""


def asking(**changes: Any) -> dict[str, Any]:
    """A plain config: two agents in turn, three calls an episode."""
    return {
        "seed": 2,
        "task": {"use": "digits"},
        "models": {"loop": {"use": "loop"}},
        "agents": {
            "writer": {"use": "ask", "model": "loop"},
            "reader": {"use": "ask", "model": "loop", "calls": 2},
        },
        "policy": {"use": "sequence", "steps": ["writer", "reader"]},
        "reward": {"use": "exact-outcome"},
        "trainer": {"use": "repeat"},
        "limits": {"turns": 2},
        "run": {"name": "asking"},
        **changes,
    }


def install(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Lay out the plugin and a config; returns the environment that it needs."""
    site = folder / "site"
    if not site.exists():
        site.mkdir()
        Site(site).plugin("loop", PLUGIN, loop_parts=PARTS)
    (folder / "orchestrion.yaml").write_text(json.dumps(config))  # JSON is YAML
    return {"PYTHONPATH": str(site), "LOOP_KEY": KEY}


def value_of(name: str, body: bytes) -> int:
    """What the model says: a digit that hangs on the request and its name alone."""
    return int(sha256(name.encode() + body).hexdigest(), 16) % 10


class Server(ModelService):
    """A model service whose answer depends on the request alone, whatever comes first.

    Attributes:
        calls: how often each call was made, by idempotency key and content.
        hold: from this call on, answers are kept back until `release`; None means never.
        refuse: gives the status with which a call fails, or 0, by key and number of the attempt.
        slow: gives the seconds that an answer takes, by key.
        says: makes an answer's text out of its digit.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.calls: Counter[str] = Counter()
        self.hold: int | None = None
        self.refuse: Callable[[str, int], int] = lambda name, n: 0
        self.slow: Callable[[str], float] = lambda name: 0.0
        self.says: Callable[[int], str] = str

    @property
    def at_model(self) -> tuple[str, str]:
        """The option that leads a config there."""
        return ("-o", f"models.loop.url={self.url}")

    def release(self) -> None:
        """Keep no later answer back; those that wait stay unanswered, as their callers are gone."""
        self.hold = None

    async def _answer(self, seen: Seen, writer: StreamWriter) -> None:
        name = seen.headers["idempotency-key"]
        if name == "preflight":
            await reply(200, {"text": "0"})(seen, writer)
            return
        digit = value_of(name, seen.body)
        # Episodes that are compared share keys, and ask different things under the same name.
        name = f"{name}/{sha256(seen.body).hexdigest()[:8]}"
        self.calls[name] += 1
        if self.hold is not None and sum(self.calls.values()) > self.hold:
            await hang()(seen, writer)
        await sleep(self.slow(name))
        if status := self.refuse(name, self.calls[name]):
            message = f"refused, your key is {seen.headers['authorization'].split()[-1]}"
            answer = reply(status, json.dumps(message, ensure_ascii=False))
        else:
            answer = reply(200, json.dumps({"text": self.says(digit)}, ensure_ascii=False))
        await answer(seen, writer)
