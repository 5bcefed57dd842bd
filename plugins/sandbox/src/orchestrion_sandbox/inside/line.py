"""The channel to the supervisor: requests and replies in turn, one JSON object a line."""

from __future__ import annotations

import json
import socket
from typing import Any

from .plain import MOST_VALUES, crowded


class Line:
    """One side of a conversation. Each message has the number of the last one received."""

    def __init__(self, channel: int) -> None:
        connection = socket.socket(fileno=channel)
        self._send, self._reader = connection.sendall, connection.makefile("rb")
        self._connection = connection
        self._number: Any = None

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None when the channel is closed."""
        line = self._reader.readline()
        if not line:
            return None
        message: dict[str, Any] = json.loads(line)
        self._number = message["id"]
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; one that has no JSON, or too many values, becomes an error."""
        try:
            text = json.dumps({"id": self._number, **message})
        except (ValueError, TypeError, RecursionError):
            text = json.dumps({"id": self._number, "error": "Refused"})
        if crowded(text.encode()):
            reason = f"more than {MOST_VALUES} values"
            text = json.dumps({"id": self._number, "error": "Refused", "text": reason})
        self._send(text.encode() + b"\n")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the one that comes back.

        Raises:
            EOFError: if the channel is closed.
        """
        self.send(message)
        reply = self.receive()
        if reply is None:
            raise EOFError
        return reply
