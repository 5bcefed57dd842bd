"""What is sent to an agent elsewhere and what comes back; docs/remote-agents.md describes both.

A request is a mapping here, which HTTP sends as JSON and gRPC as the messages of agent.proto.
"""

from __future__ import annotations

from functools import reduce
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from orchestrion import (
    JSON,
    Key,
    Member,
    Meta,
    Observation,
    Output,
    Problem,
    StoreError,
    Trajectory,
    Turn,
    UsageError,
    View,
)
from orchestrion.runs import as_data

LARGEST = 32 * 2**20
"""The maximum of bytes of a request or an answer."""
_LONGEST_KEY = 64
MOST = 10_000
"""Turns, and agents: more would keep the server from its other callers."""
_Few = Meta(max_length=MOST)
_encode = msgspec.json.encode


def request_of(view: View, key: Key) -> dict[str, JSON]:
    """Return what an agent elsewhere is asked; `view_and_key` makes the view and the key again.

    Only what the agent may read is in it.
    """
    problem = dict(as_data(view.problem.public()))
    del problem["hidden"]
    own = view.turns[len(view.given) :]
    return {
        "name": view.agent,
        "option": view.option,
        "problem": problem,
        "turns": [_turn_body(turn) for turn in own],
        "given": [_turn_body(turn) for turn in view.given],
        "observation": None if view.observation is None else as_data(view.observation),
        "team": as_data(view.team),
        "key": key.hex(),
    }


def _turn_body(turn: Turn) -> dict[str, JSON]:
    return {
        "index": turn.index,
        "agent": turn.agent,
        "option": turn.option,
        "content": turn.output.content,
        "data": as_data(turn.output.data),
    }


class _PastTurn(Struct, gc=False):
    agent: str
    content: str = ""
    data: Any = None
    option: str | None = None
    index: int | None = None


class _ActRequest(Struct):
    problem: Problem
    name: str = ""
    option: str | None = None
    turns: Annotated[list[_PastTurn], _Few] = []
    given: Annotated[list[_PastTurn], _Few] = []
    observation: Observation | None = None
    team: Annotated[list[Member], _Few] = []
    key: str = ""


def view_and_key(request: JSON) -> tuple[View, Key]:
    """Return the view and the key of a request: its JSON text, or the mapping.

    Raises:
        UsageError: it is no request; says what is wrong where.
    """
    try:
        if isinstance(request, bytes):
            # Each has an agent's name. Counting is faster than reading them all.
            if request.count(b'"agent"') > 3 * MOST:
                raise ValueError(f"it has more than {MOST} turns")
            body = msgspec.json.decode(request, type=_ActRequest)
        else:
            body = msgspec.convert(request, _ActRequest)
        key = bytes.fromhex(body.key)
        if len(key) > _LONGEST_KEY:
            raise ValueError(f"key: has more than {_LONGEST_KEY} bytes")
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise UsageError(f"not a request to an agent: {error}") from None
    view = View(
        body.name,
        body.option,
        body.problem.public(),
        reduce(Trajectory.append, _turns(body.turns), Trajectory()),
        body.observation,
        given=tuple(_turns(body.given)),
        team=tuple(body.team),
    )
    return view, Key(key)


def _turns(turns: list[_PastTurn]) -> list[Turn]:
    return [
        Turn(
            place if turn.index is None else turn.index,
            turn.agent,
            turn.option,
            Output(turn.content, data=turn.data),
        )
        for place, turn in enumerate(turns)
    ]


_Count = Annotated[int, Meta(ge=0, lt=2**53)]
_Amount = Annotated[float, Meta(ge=0, lt=1e100)]


class StatedUsage(Struct):
    """What an agent elsewhere says that a turn took; null where it does not say."""

    calls: _Count = 0
    input_tokens: _Count = 0
    output_tokens: _Count = 0
    usd: _Amount | None = None
    cost: _Amount | None = None


class Reply(Struct):
    """What comes back. `error` says why the agent could not do its work: the turn fails."""

    content: str = ""
    data: Any = None
    usage: StatedUsage | None = None
    final: bool = False
    metadata: dict[str, Any] = {}
    error: str | None = None

    @classmethod
    def of(cls, turn: Turn) -> Reply:
        """Return the reply for a turn of an agent here."""
        usage = turn.usage
        usd = None if usage.usd != usage.usd else usage.usd
        calls = max(1, usage.calls)  # a usage of nothing would be taken for one that is not known
        stated = StatedUsage(calls, usage.input_tokens, usage.output_tokens, usd, usage.cost)
        if turn.status != "completed":
            return cls(usage=stated, error=turn.error or "it failed")
        output = turn.output
        try:
            data, metadata = as_data(output.data), as_data(output.metadata)
            reply = cls(output.content, data, stated, output.final, metadata)
            _encode(reply)
        except (StoreError, UnicodeEncodeError) as error:
            return cls(usage=stated, error=f"its output cannot be sent: {error}")
        return reply


def reply_of(body: bytes, path: str = "content") -> Reply:
    """Return the reply in a JSON text.

    Args:
        body: the text.
        path: where the content is, e.g. "result.answer.0.text"; a value that is no text becomes
            its JSON. Elsewhere than at "content", nothing but it and `usage` is read.

    Raises:
        ValueError: it is no reply; says what is wrong.
    """
    try:
        if path == "content":
            reply = msgspec.json.decode(body, type=Reply)
            if not reply.content and not reply.error and reply.data is None:
                raise ValueError("it has neither content, data nor error")
            return reply
        whole: Any = msgspec.json.decode(body)
        value = whole
        for step in path.split("."):
            value = value[int(step)] if isinstance(value, list) else value[step]
        usage = whole.get("usage") if isinstance(whole, dict) else None
        stated = msgspec.convert(usage, StatedUsage) if isinstance(usage, dict) else None
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"it has nothing at {path!r}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return Reply(value if isinstance(value, str) else _encode(value).decode(), usage=stated)
