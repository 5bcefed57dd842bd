"""The messages of agent.proto, from and to requests and replies as `body` has them.

Names are the same on both sides. A field `x_json` holds `x` as JSON, and bytes are hexadecimal in
`body`. None, and what is left out, is a field that is not set.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
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
    return pb.ActRequest(**_fields(pb.ActRequest.DESCRIPTOR, {**request, "agent": agent}))


def request_from(message: pb.ActRequest) -> dict[str, JSON]:
    """Return the request in a message.

    Raises:
        ValueError: a field that holds JSON does not, or there are too many turns.
    """
    if max(len(message.turns), len(message.given), len(message.team)) > MOST:
        raise ValueError(f"it has more than {MOST} turns")
    return _values(message)


def reply_message(reply: Reply) -> pb.ActResponse:
    """Return the message for a reply."""
    usage = msgspec.structs.asdict(reply.usage or StatedUsage())
    values = {**msgspec.structs.asdict(reply), "usage": usage}
    return pb.ActResponse(**_fields(pb.ActResponse.DESCRIPTOR, values))


def reply_from(message: pb.ActResponse) -> Reply:
    """Return the reply in a message.

    Raises:
        ValueError: a field that holds JSON does not, or holds something else than it should.
    """
    return msgspec.convert(_values(message), Reply)


def _fields(descriptor: Any, values: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the fields of a message, those of the messages in it as mappings."""
    fields: dict[str, Any] = {}
    for field in descriptor.fields:
        value = values.get(field.name.removesuffix("_json"))
        if value is None:
            continue
        if field.name.endswith("_json"):
            value = msgspec.json.encode(value).decode()
        elif field.type == field.TYPE_BYTES:
            value = bytes.fromhex(value)
        elif field.message_type is not None and isinstance(value, list):
            value = [_fields(field.message_type, element) for element in value]
        elif field.message_type is not None:
            value = _fields(field.message_type, value)
        fields[field.name] = value
    return fields


def _values(message: Any) -> dict[str, JSON]:
    """Return the values of the fields that are set."""
    values: dict[str, JSON] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            continue
        if field.name.endswith("_json"):
            value = msgspec.json.decode(value) if value else None
            if value is None:  # some clients write null for an empty mapping
                continue
        elif field.type == field.TYPE_BYTES:
            value = value.hex()
        elif isinstance(value, MutableSequence):
            value = [
                element if field.message_type is None else _values(element) for element in value
            ]
        elif field.message_type is not None:
            value = _values(value)
        values[field.name.removesuffix("_json")] = value
    return values
