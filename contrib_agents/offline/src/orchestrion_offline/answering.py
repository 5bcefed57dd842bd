"""From what a speaker says to answers as a service gives them: cut, counted, with ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from attrs import evolve

from orchestrion import JSON, Key
from orchestrion_offline.interfaces import Said, Speaker
from orchestrion_offline.settings import Troubles
from orchestrion_offline.tokens import count, cut
from orchestrion_offline.wires.form import THOUGHT, Asked, Call, Made

__all__ = ["answers", "read_tokens"]

REFUSAL = "I cannot help with that."


def answers(
    asked: Asked, request: Mapping[str, JSON], speaker: Speaker, draw: Key, troubles: Troubles
) -> list[Made]:
    """One answer for each sample that was asked for."""
    read = read_tokens(request)
    draws = [draw] + [draw.child("sample", i) for i in range(1, asked.samples)]
    made = [_answer(request, speaker, one, troubles, read) for one in draws]
    return [_thinking(one, request.get("max_tokens")) for one in made] if asked.thinks else made


def _thinking(made: Made, limit: int | None) -> Made:
    """An answer that thinks first; it was cut, if at all, without that."""
    written = made.output_tokens + count(THOUGHT)
    return evolve(
        made, thinking=THOUGHT, output_tokens=written if limit is None else min(written, limit)
    )


def read_tokens(request: Mapping[str, JSON]) -> int:
    """How many tokens a request has: those of its texts, calls, tools and schema."""
    total = 0
    for message in request["messages"]:
        total += count(message.get("content") or "")
        for call in message.get("tool_calls", ()):
            total += count(f"{call['name']}{call['arguments']}")
    for part in (request.get("tools"), request.get("schema")):
        if part:
            total += count(msgspec.json.encode(part).decode())
    return max(total, 1)


def _answer(
    request: Mapping[str, JSON], speaker: Speaker, draw: Key, troubles: Troubles, read: int
) -> Made:
    ending = troubles.ending(draw.child("ending"))
    said = speaker.say(request, draw.child("say")) if ending != "refusal" else _REFUSED
    limit = request.get("max_tokens")
    if ending == "truncation":
        half = _written(said.text, said) // 2
        limit = half if limit is None else min(limit, half)
    name = draw.child("id").hex()[:24]
    text, sequence = _stopped(said.text, request.get("stop", ()))
    whole = _written(text, said)
    calls = tuple(
        Call(f"call_{name}{i}", call.name, call.arguments) for i, call in enumerate(said.tool_calls)
    )
    stop: str = said.stop if said.stop == "refused" else "tools" if calls else "end"
    if limit is not None and (whole > limit or ending == "truncation"):
        # Calls that do not fit are left out: no service gives half a call.
        text, calls, stop, sequence = cut(text, limit), (), "length", None
        whole = count(text)
    model = str(request["model"])
    return Made(name, model, text, calls, stop, sequence, read, max(whole, 1))


_REFUSED = Said(REFUSAL, stop="refused")


def _written(text: str, said: Said) -> int:
    return count(text) + sum(count(f"{call.name}{call.arguments}") for call in said.tool_calls)


def _stopped(text: str, ends: Sequence[Any]) -> tuple[str, str | None]:
    """A text up to the first of these sequences, and which one it was."""
    found = [(place, end) for end in ends if end and (place := text.find(end)) >= 0]
    if not found:
        return text, None
    place, end = min(found)
    return text[:place], end
