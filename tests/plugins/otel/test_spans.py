"""Names, attributes, times and the tree of an episode's spans, as OpenTelemetry's exporter gets
them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from orchestrion_otel import spans_of
from orchestrion_otel.otlp import OTLP
from orchestrion_otel.sending import readable, resource_of
from orchestrion_otel.spans import Span

from orchestrion import Episode, Output, Problem, Status, Trajectory, Turn, register
from orchestrion.runs import StoredCall
from tests.plugins.otel.support import ANSWER, AT, RUN, call, calls, episode

EMPTY: Mapping[str, Any] = {}
SAME = {"gen_ai.conversation.id": "desk-3/0/3/7"}
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-x",
}
SETTINGS = {
    "gen_ai.request.max_tokens": 100,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.response.model": "gpt-x-2026",
}


def usage(read: int, written: int, usd: float, cached: int = 0) -> dict[str, Any]:
    """What a chat span says of a call's usage."""
    tokens = {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}
    if cached:
        tokens["gen_ai.usage.cache_read.input_tokens"] = cached
    return {
        **tokens,
        "gen_ai.usage.cost": usd,
        "mlflow.llm.cost": json.dumps({"total_cost": usd}, separators=(",", ":")),
    }


def by(caller: str, service: str = "openai:gpt-x", **more: Any) -> dict[str, Any]:
    """What a span says of who called whom."""
    own = {f"orchestrion.{name}": value for name, value in more.items()}
    return {"orchestrion.caller": caller, "orchestrion.service": service, **own}


def agent(
    name: str, turn: int, *senders: str, cost: float = 0.0, more: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """The attributes of a turn."""
    edge = {
        "graph.node.parent_id": "".join(senders[-1:]),
        "orchestrion.edge.from": senders,
        "orchestrion.edge.to": name,
    }
    return {
        **SAME,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": name,
        "graph.node.id": name,
        "orchestrion.turn": turn,
        "orchestrion.cost": cost,
        **(edge if senders else {}),
        **more,
    }


def plan(*chosen: str, **more: Any) -> dict[str, Any]:
    """The attributes of a decision."""
    return {
        **SAME,
        "gen_ai.operation.name": "plan",
        "gen_ai.agent.name": "follow",
        "openinference.span.kind": "AGENT",
        "orchestrion.policy.chosen": chosen,
        **more,
    }


def tool(name: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
    }


# Depth, name, kind, begin and end in seconds, attributes.
GOLDEN = [
    (0, "invoke_workflow desk", "INTERNAL", (0, 13), {
        **SAME,
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "desk",
        "gen_ai.agent.name": "desk",
        "session.id": "desk-3/0/3/7",
        "openinference.span.kind": "CHAIN",
        "orchestrion.run.id": "desk-3",
        "orchestrion.episode": "0/3/7",
        "orchestrion.stage": 0,
        "orchestrion.iteration": 3,
        "orchestrion.problem": "p1",
        "orchestrion.status": "completed",
        "orchestrion.success": True,
        "orchestrion.cost": 2.0,
    }),
    (1, "plan follow", "INTERNAL", (0, 2), plan("writer")),
    (2, "chat gpt-x", "CLIENT", (0, 1), {
        **CHAT, **by("policy", "openai:gpt-x@h:1#KEY"), **usage(5, 1, 0.0),
    }),
    (1, "invoke_agent writer", "INTERNAL", (2, 5), agent("writer", 0)),
    (2, "chat gpt-x", "CLIENT", (2, 3), {
        **CHAT, **SETTINGS, **by("writer"), **usage(10, 3, 0.25, cached=6),
    }),
    (2, "execute_tool add", "INTERNAL", (3, 3.5), {**tool("add"), **by("writer", "tool:add")}),
    (2, "execute_tool read", "INTERNAL", (4, 5), {**tool("read"), **by("writer", "mcp:files")}),
    (1, "plan follow", "INTERNAL", (6, 6), {
        **plan("critic:strict", "coder"), "orchestrion.policy.logp": -0.5,
    }),
    (1, "invoke_agent critic", "INTERNAL", (6, 6), agent(
        "critic", 1, "writer", more={"orchestrion.option": "strict"},
    )),
    (2, "chat gpt-x", "CLIENT", (6, 6), {**CHAT, **SETTINGS, **by("writer", cached=True)}),
    (1, "invoke_agent coder", "INTERNAL", (8, 8), agent(
        "coder", 2, "writer", more={"error.type": "failed"},
    )),
    (2, "chat claude-y", "CLIENT", (8, 8), {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-y",
        "gen_ai.request.max_tokens": 50,
        "error.type": "failed",
        **by("writer", "anthropic:claude-y", attempts=3),
    }),
    (1, "plan follow", "INTERNAL", (9, 9), plan("crew")),
    (1, "invoke_agent crew", "INTERNAL", (9, 10), agent("crew", 3, "critic", cost=2.0)),
    (2, "invoke_agent member", "INTERNAL", (9, 10), agent("member", 0)),
    (3, "call a2a", "CLIENT", (9, 10), by("writer", "a2a:host")),
    (1, "plan follow", "INTERNAL", (10, 10), plan("tests")),
    (1, "plan follow", "INTERNAL", (11, 11), plan("stop")),
    (1, "invoke_agent tests", "INTERNAL", (10, 11), agent("tests", 4, "crew")),
    (1, "chat gpt-x", "CLIENT", (12, 13), {
        **CHAT, **SETTINGS, **by("verifier"), **usage(0, 0, 0.0, cached=6),
    }),
]  # fmt: skip


def exported(contents: bool = False) -> list[ReadableSpan]:
    """The spans of the episode, from OpenTelemetry's own exporter for tests."""
    exporter = InMemorySpanExporter()
    ends = {4: AT + 11}
    spans = spans_of(episode(), RUN, calls, contents=contents, at=0.0, ends=ends)
    exporter.export(readable(spans, resource_of(RUN)))
    return list(exporter.get_finished_spans())


def rows(spans: Sequence[ReadableSpan]) -> list[tuple[Any, ...]]:
    """The tree in depth-first order, as the golden table has it."""
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in spans:
        children.setdefault(span.parent.span_id if span.parent else None, []).append(span)

    def below(parent: int | None, depth: int) -> list[tuple[Any, ...]]:
        found = []
        for span in children.pop(parent, []):
            assert span.context is not None
            times = (span.start_time or 0) / 1e9 - AT, (span.end_time or 0) / 1e9 - AT
            found.append((depth, span.name, span.kind.name, times, dict(span.attributes or {})))
            found += below(span.context.span_id, depth + 1)
        return found

    tree = below(None, 0)
    assert not children, "every parent is there"
    return tree


def test_names_attributes_times_and_tree_are_those_of_the_golden_table() -> None:
    tree = rows(exported())
    assert sorted(tree, key=repr) == sorted(GOLDEN, key=repr)
    assert tree[0][0] == 0


def test_servers_that_know_openinference_see_kinds_on_workflow_and_plan_alone() -> None:
    kinds = {
        str((span.attributes or {})["gen_ai.operation.name"])
        for span in exported()
        if "openinference.span.kind" in (span.attributes or {})
    }
    assert kinds == {"invoke_workflow", "plan"}


def test_failures_scores_links_and_the_sender() -> None:
    spans = exported()
    named = {span.name: span for span in spans}
    failed = {span.name: span.status.description for span in spans if not span.status.is_ok}
    assert failed == {"invoke_agent coder": "overloaded", "chat claude-y": "overloaded"}

    scores = {
        event.attributes["gen_ai.evaluation.name"]: event.attributes  # type: ignore[index]
        for event in named["invoke_workflow desk"].events
        if event.name == "gen_ai.evaluation.result"
    }
    assert {name: one["gen_ai.evaluation.score.value"] for name, one in scores.items()} == {  # type: ignore[index]
        "score": 0.75, "score/tests": 1.0, "reward": 0.5, "reward/cost": -0.25,
    }  # fmt: skip
    assert scores["score"]["gen_ai.evaluation.score.label"] == "solved"  # type: ignore[index]

    linked = [link.context.span_id for link in named["invoke_agent critic"].links]
    assert linked == [named["invoke_agent writer"].context.span_id]
    root = named["invoke_workflow desk"]
    assert root.resource.attributes["service.name"] == "orchestrion"
    assert root.resource.attributes["openinference.project.name"] == "desk"
    scope = root.instrumentation_scope
    assert scope is not None
    assert scope.schema_url == "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"


def test_ids_are_those_of_run_episode_and_place() -> None:
    first, again = exported(), exported(contents=True)
    assert [span.context for span in first] == [span.context for span in again]
    assert len({span.context.span_id for span in first}) == len(first)
    assert len({span.context.trace_id for span in first}) == 1
    other = [RUN.trace_of("0/3/8"), RUN.trace_of("0/3/7")]
    assert len({*other, first[0].context.trace_id}) == 2


def messages(spans: Sequence[ReadableSpan], name: str, attribute: str) -> Any:
    """An attribute that holds JSON, of the first span with this name and it."""
    for span in spans:
        if span.name == name and attribute in (span.attributes or {}):
            return json.loads(str((span.attributes or {})[attribute]))
    raise AssertionError(f"no {name} has {attribute}")


def test_contents_are_there_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for span in exported():
        assert not [name for name in span.attributes or {} if "messages" in name or "call." in name]
    spans = exported(contents=True)
    asked = messages(spans, "chat gpt-x", "gen_ai.input.messages")
    assert asked[0] == {"role": "system", "parts": [{"type": "text", "content": "Be short."}]}
    assert asked[1]["parts"] == [{"type": "text", "content": "2 + 2?"}, {"type": "image_url"}]
    assert asked[2]["parts"] == [{"type": "tool_call_response", "id": "t1", "response": "4"}]
    [said] = messages(spans, "chat gpt-x", "gen_ai.output.messages")
    assert [part["type"] for part in said["parts"]] == ["text", "tool_call"]
    assert said["finish_reason"] == "stop"
    system = messages(spans, "chat claude-y", "gen_ai.system_instructions")
    assert system == [{"type": "text", "content": "Check."}]
    assert messages(spans, "execute_tool add", "gen_ai.tool.call.arguments") == {"a": 2}
    assert messages(spans, "execute_tool read", "gen_ai.tool.call.result") == {"text": "b"}
    [problem] = messages(spans, "invoke_workflow desk", "gen_ai.input.messages")
    assert problem["parts"][0]["content"] == "What is 2 + 2?"

    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    for value, captured in (
        ("true", True),
        ("SPAN_ONLY", True),
        ("EVENT_ONLY", False),
        ("", False),
    ):
        monkeypatch.setenv(name, value)
        assert OTLP().captures is captured
        assert OTLP(contents=not captured).captures is not captured


def test_texts_are_cut_and_hold_neither_secrets_nor_half_characters() -> None:
    register("SPAN_KEY", "sk-span-0123456789")
    long = "sk-span-0123456789 \ud800" + "x" * 50_000
    answer: Mapping[str, Any] = {**ANSWER, "text": long}
    one = call("one", "openai:gpt-x", {"model": "m", "input": long}, answer)
    turns = [Turn(0, "a", output=Output(long, calls=("one",)), status="failed", error=long)]
    whole = Episode("e", Problem("p", long), Trajectory(turns), status=Status.FAILED, error=long)
    spans = spans_of(whole, RUN, lambda names: [one for _ in names], contents=True, at=AT)
    for span in readable(spans, resource_of(RUN)):
        text = span.to_json()
        assert "sk-span-0123456789" not in text
        text.encode()
        for value in (span.attributes or {}).values():
            assert len(str(value)) < 45_000


def test_an_episode_without_calls_has_the_time_it_was_noticed_at() -> None:
    turns = [Turn(i, "a", decision=i) for i in range(3)]
    bare = Episode("e", Problem("p"), Trajectory(turns))

    def no_calls(names: Sequence[str]) -> list[StoredCall]:
        return []

    def times(spans: list[Span]) -> list[tuple[float, float]]:
        return [(span.start, span.end) for span in spans if span.name == "invoke_agent a"]

    ends = {0: 5.0, 1: 6.0, 2: 8.0}
    assert times(spans_of(bare, RUN, no_calls, at=9.0, ends=ends)) == [(5, 5), (5, 6), (6, 8)]
    assert times(spans_of(bare, RUN, no_calls, at=9.0)) == [(9, 9)] * 3
    empty = spans_of(Episode("e", Problem("p"), Trajectory()), RUN, no_calls, at=9.0)
    assert [(span.start, span.end) for span in empty] == [(9.0, 9.0)]
