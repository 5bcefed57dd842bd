"""The messages of agent.proto, from and to requests and replies as `body` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from orchestrion import JSON
from orchestrion_remote import agent_pb2 as pb
from orchestrion_remote.body import LARGEST, MOST, Reply, StatedUsage

SERVICE = "orchestrion.agent.v1.Agent"
ACT, ACT_STREAM = f"/{SERVICE}/Act", f"/{SERVICE}/ActStream"
HEALTH = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""The two answers to a health check, encoded: field 1, the status, is 1 or 2."""


OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", LARGEST),
    ("grpc.max_receive_message_length", LARGEST),
]
"""Of channels and servers."""


def message_of(request: Mapping[str, JSON], agent: str) -> pb.ActRequest:
    """Return the message for a request to an agent of a server."""
    problem, observation = request["problem"], request["observation"]
    message = pb.ActRequest(
        agent=agent,
        name=request["name"],
        option=request["option"],
        problem=pb.Problem(
            id=problem["id"],
            text=problem["text"],
            data_json=_json(problem["data"]),
            category=problem["category"],
        ),
        turns=map(_turn, request["turns"]),
        given=map(_turn, request["given"]),
        team=[pb.Member(**member) for member in request["team"]],
        key=bytes.fromhex(request["key"]),
    )
    if observation is not None:
        message.observation.CopyFrom(
            pb.Observation(
                text=observation["text"],
                data_json=_json(observation["data"]),
                features=observation["features"],
                blocked=observation["blocked"],
                progress=observation["progress"],
                hints_json=_json(observation["hints"] or None),
            )
        )
    return message


def request_from(message: pb.ActRequest) -> dict[str, JSON]:
    """Return the request in a message.

    Raises:
        ValueError: a field that holds JSON does not, or there are too many turns.
    """
    if max(len(message.turns), len(message.given), len(message.team)) > MOST:
        raise ValueError(f"it has more than {MOST} turns")
    problem, observation = message.problem, message.observation
    return {
        "name": message.name,
        "option": _optional(message, "option"),
        "problem": {
            "id": problem.id,
            "text": problem.text,
            "data": _data(problem.data_json),
            "category": problem.category,
        },
        "turns": [_turn_body(turn) for turn in message.turns],
        "given": [_turn_body(turn) for turn in message.given],
        "observation": {
            "text": observation.text,
            "data": _data(observation.data_json),
            "features": list(observation.features),
            "blocked": list(observation.blocked),
            "progress": _optional(observation, "progress"),
            "hints": _data(observation.hints_json) or {},
        }
        if message.HasField("observation")
        else None,
        "team": [
            {
                "name": member.name,
                "options": list(member.options),
                "role": member.role,
                "ends": member.ends,
            }
            for member in message.team
        ],
        "key": message.key.hex(),
    }


def reply_message(reply: Reply) -> pb.ActResponse:
    """Return the message for a reply."""
    usage = reply.usage or StatedUsage()
    return pb.ActResponse(
        content=reply.content,
        data_json=_json(reply.data),
        usage=pb.Usage(**msgspec.structs.asdict(usage)),
        final=reply.final,
        metadata_json=_json(reply.metadata or None),
        error=reply.error,
    )


def reply_from(message: pb.ActResponse) -> Reply:
    """Return the reply in a message.

    Raises:
        ValueError: a field that holds JSON does not, or the usage is negative.
    """
    stated = None
    if message.HasField("usage"):
        usage = message.usage
        fields = ("calls", "input_tokens", "output_tokens", "cost")
        known = {name: getattr(usage, name) for name in fields}
        stated = msgspec.convert({**known, "usd": _optional(usage, "usd")}, StatedUsage)
    metadata = _data(message.metadata_json) or {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata_json is no object")
    return Reply(
        message.content,
        _data(message.data_json),
        stated,
        message.final,
        metadata,
        message.error or None,
    )


def _turn(turn: Mapping[str, JSON]) -> pb.Turn:
    fields = {name: turn[name] for name in ("index", "agent", "option", "content")}
    return pb.Turn(**fields, data_json=_json(turn["data"]))


def _turn_body(turn: pb.Turn) -> dict[str, JSON]:
    return {
        "index": turn.index,
        "agent": turn.agent,
        "option": _optional(turn, "option"),
        "content": turn.content,
        "data": _data(turn.data_json),
    }


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _json(data: JSON) -> str:
    return "" if data is None else msgspec.json.encode(data).decode()


def _data(text: str) -> JSON:
    return msgspec.json.decode(text) if text else None
