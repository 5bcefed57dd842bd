"""The attributes of a recorded call: of a model, a tool, or another service."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from orchestrion import JSON, Usage
from orchestrion_otel import constants as c
from orchestrion_otel.contents import as_json, model_contents

if TYPE_CHECKING:
    from orchestrion.runs import StoredCall

Value = str | bool | int | float | tuple[str, ...]


@frozen
class CallFacts:
    """How a call appears as a span."""

    name: str
    remote: bool  # whether something outside of this process was asked
    attributes: Mapping[str, Value]
    error: str  # what went wrong, if it did


def call_times(call: StoredCall) -> tuple[float, float] | None:
    """Return when the attempt that was answered began and ended, or when a call failed."""
    return None if call.at is None else (call.at, call.at + (call.seconds or 0.0))


def call_facts(call: StoredCall, contents: bool) -> CallFacts:
    """Return how a call appears as a span; what was asked and answered only with `contents`."""
    failed = "" if call.kind in ("answer", "cached") else str(call.answer or call.kind)
    own: dict[str, Value] = {
        "orchestrion.service": call.service,
        "orchestrion.caller": call.who,
    }
    if call.attempts > 1:
        own["orchestrion.attempts"] = call.attempts
    if call.kind == "cached":
        own["orchestrion.cached"] = True
    if failed:
        own[c.ERROR_TYPE] = call.kind
    if call.tool is not None:
        name, arguments = call.tool
        own |= {c.OPERATION: "execute_tool", c.TOOL_NAME: name, c.TOOL_TYPE: "function"}
        if contents:
            own |= {c.TOOL_ARGUMENTS: as_json(arguments), c.TOOL_RESULT: as_json(call.answer)}
        return CallFacts(f"execute_tool {name}", False, own, failed)
    request = call.asked if isinstance(call.asked, Mapping) else {}
    if "model" in request or call.usage.tokens or _is_message(call.answer):
        return _model(call, request, own, contents, failed)
    return CallFacts(f"call {call.service.partition(':')[0]}", True, own, failed)


def _model(
    call: StoredCall,
    asked: Mapping[str, Any],
    own: Mapping[str, Value],
    contents: bool,
    failed: str,
) -> CallFacts:
    provider, _, rest = call.service.partition(":")
    model = str(asked.get("model") or rest.partition("@")[0].partition("#")[0] or provider)
    operation = "embeddings" if "encoding_format" in asked else "chat"
    attributes: dict[str, Value] = {
        c.OPERATION: operation,
        c.PROVIDER: provider,
        c.REQUEST_MODEL: model,
        **own,
    }
    for name, attribute in c.REQUEST_SETTINGS.items():
        value = asked.get(name)
        if isinstance(value, (bool, int, float)):
            attributes[attribute] = value
    answer = call.answer if isinstance(call.answer, Mapping) and not failed else {}
    finish = {"end": "stop"}.get(stop := str(answer.get("stop") or ""), stop)
    if finish:
        attributes[c.FINISH_REASONS] = (finish,)
    if answer.get("model"):
        attributes[c.RESPONSE_MODEL] = str(answer["model"])
    if call.kind == "answer":  # what came from a cache was neither read nor written again
        attributes |= usage_attributes(call.usage)
        billed = answer.get("billed") or {}
        for name, attribute in c.CACHE_TOKENS.items():
            if billed.get(name):
                attributes[attribute] = int(billed[name])
    if contents:
        attributes |= model_contents(call.asked, answer or None, finish)
    return CallFacts(f"{operation} {model}", True, attributes, failed)


def usage_attributes(usage: Usage) -> dict[str, Value]:
    """Return tokens and, where it is known, cost as attributes."""
    attributes: dict[str, Value] = {
        c.INPUT_TOKENS: usage.input_tokens,
        c.OUTPUT_TOKENS: usage.output_tokens,
    }
    if not math.isnan(usage.usd):
        attributes |= {c.COST: usage.usd, c.MLFLOW_COST: as_json({"total_cost": usage.usd})}
    return attributes


def _is_message(answer: JSON) -> bool:
    return isinstance(answer, Mapping) and "text" in answer and "stop" in answer
