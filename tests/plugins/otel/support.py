"""A server that takes traces, and an episode with everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from orchestrion_otel import RunFacts

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Output,
    Problem,
    Reward,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion.runs import StoredCall
from tests.service import ModelService

RUN = RunFacts("desk-3", 1000.0, "desk", "follow")
AT = 2000.0


def call(name: str, service: str, asked: Any, answer: Any, **more: Any) -> StoredCall:
    """A recorded call."""
    fields: dict[str, Any] = {"who": "writer", "kind": "answer", "usage": Usage(1), "seconds": 1.0}
    return StoredCall(
        name=name,
        service=service,
        asked=asked,
        answer=answer,
        **{**fields, "stage": "trainer", "at": AT, "attempts": 1, **more},
    )


ASKED = {
    "model": "gpt-x",
    "max_completion_tokens": 100,
    "temperature": 0.5,
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}, {"type": "image_url"}]},
        {"role": "tool", "tool_call_id": "t1", "content": "4"},
    ],
    "tools": [{"type": "function", "function": {"name": "add"}}],
}
ANSWER = {
    "text": "It is 4",
    "stop": "end",
    "tool_calls": [{"id": "t2", "name": "add", "arguments": "{}"}],
    "model": "gpt-x-2026",
    "billed": {"cache_read_tokens": 6, "cache_write_tokens": 0},
}
CLAUDE = {"model": "claude-y", "max_tokens": 50, "system": "Check.", "messages": []}
CALLS = {
    one.name: one
    for one in (
        call("plan", "openai:gpt-x@h:1#KEY", None, None, who="policy", usage=Usage(1, 5, 1), at=AT),
        call("chat", "openai:gpt-x", ASKED, ANSWER, usage=Usage(1, 10, 3, 0.25, 0.25), at=AT + 2),
        call("tool", "tool:add", ["add", {"a": 2}], {"text": "4"}, seconds=0.5, at=AT + 3),
        call("mcp", "mcp:files", ["call", "read", {"path": "a"}], {"text": "b"}, at=AT + 4),
        call("old", "openai:gpt-x", ASKED, ANSWER, kind="cached", seconds=None, at=AT + 6),
        call("bad", "anthropic:claude-y", CLAUDE, "overloaded", kind="failed", at=AT + 8,
             seconds=None, attempts=3),
        call("else", "a2a:host", {"text": "hi"}, {"content": "ho"}, at=AT + 9),
        call("judge", "openai:gpt-x", ASKED, ANSWER, who="verifier", at=AT + 12),
    )
}  # fmt: skip


def calls(names: Sequence[str]) -> list[StoredCall]:
    """The calls with these names."""
    return [CALLS[name] for name in names]


def episode() -> Episode:
    """An episode with calls of every kind, a nested team, a failed turn, one without calls."""
    crew = Trajectory([Turn(0, "member", output=Output("inner", calls=("else",)))])
    turns = [
        Turn(0, "writer", None, Output("4", calls=("chat", "tool", "mcp")), decision=0),
        Turn(1, "critic", "strict", Output("again", calls=("old",)), decision=1, reads=(0,)),
        Turn(2, "coder", None, Output(calls=("bad",)), "failed", "overloaded", decision=1),
        Turn(3, "crew", None, Output("done", inner=crew, usage=Usage(cost=2.0)), decision=2),
        Turn(4, "tests", None, Output("ok"), decision=3),
    ]
    starts = (["writer"], ["critic", "coder"], ["crew"], ["tests"])
    decisions = [Decision(tuple(Activation(name) for name in names)) for names in starts]
    decisions[1] = Decision((Activation("critic", "strict"), Activation("coder")), logp=-0.5)
    return Episode(
        "0/3/7",
        Problem("p1", "What is 2 + 2?"),
        Trajectory(turns),
        (*decisions, Decision(stop=True)),
        Status.COMPLETED,
        Scores(0.75, True, {"tests": 1.0}),
        Reward(0.5, parts={"cost": -0.25}),
        calls=("plan", "judge"),
    )


def received(server: ModelService) -> list[tuple[Any, Any]]:
    """The spans that a server was sent, each with its resource."""
    spans = []
    for seen in server.seen:
        request = ExportTraceServiceRequest()
        request.ParseFromString(seen.body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                spans += [(span, resource) for span in scope.spans]
    return spans


def value(any_value: Any) -> Any:
    """A value of an attribute."""
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return tuple(value(one) for one in any_value.array_value.values)
    return getattr(any_value, kind)


def attributes(thing: Any) -> dict[str, Any]:
    """The attributes of a span, an event or a resource."""
    return {one.key: value(one.value) for one in thing.attributes}
