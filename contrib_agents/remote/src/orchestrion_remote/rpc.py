"""An agent behind gRPC: settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any, ClassVar

from attrs import field, frozen

from orchestrion import Meta
from orchestrion_remote.settings import Client, Remote

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):\d{1,5}")


def _addresses(instance: object, attribute: Any, value: Sequence[str]) -> None:
    for address in value:
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"addresses: {address!r} is no address like agents.example.com:8700")
    if len(set(value)) < len(value):
        raise ValueError("addresses: an address stands there twice")


@frozen
class Tls:
    """How a connection is encrypted. Files are in PEM format.

    Args:
        ca: the certificates that are trusted; null trusts the usual authorities.
        cert: our own certificate, for servers that ask for one.
        key: its private key.
        name: the name in the server's certificate, if it is another than the address.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    name: str | None = None

    def __attrs_post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: set both or none")


@frozen(kw_only=True)
class Grpc(Remote):
    """Asks an agent on another machine over gRPC, by the service in agent.proto.

    Args:
        addresses: equivalent servers, as HOST:PORT. A call takes the one with the fewest calls in
            flight; one that fails rests, and the others are tried.
        agent: the agent's name at the server; null stands for its name here.
        tls: how connections are encrypted; null sends plain text.
    """

    addresses: Annotated[Sequence[str], Meta(min_length=1)] = field(validator=_addresses)
    agent: Annotated[str, Meta(min_length=1)] | None = None
    tls: Tls | None = None

    protocol: ClassVar[str] = "grpc"

    def client(self, key: str, name: str, path: str) -> AbstractAsyncContextManager[Client]:
        from orchestrion_remote.rpc_client import GrpcClient

        return GrpcClient.opened(self, path, self.agent or name, key)
