"""The channel to the supervisor: one JSON object a line, and nobody speaks out of turn."""

from __future__ import annotations

import json
import socket
from typing import Any

from .plain import MOST_VALUES, crowded

__all__ = ["Line"]


class Line:
    """One side of a conversation. Every message carries the number of the last one received."""

    def __init__(self, channel: int) -> None:
        connection = socket.socket(fileno=channel)
        self._send, self._reader = connection.sendall, connection.makefile("rb")
        self._connection = connection
        self._number: Any = None

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when nobody asks any more."""
        line = self._reader.readline()
        if not line:
            return None
        message: dict[str, Any] = json.loads(line)
        self._number = message["id"]
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Answer; what JSON cannot say is an error of the answer."""
        try:
            text = json.dumps({"id": self._number, **message})
        except (ValueError, TypeError, RecursionError):
            text = json.dumps({"id": self._number, "error": "Refused"})
        if crowded(text.encode()):
            why = f"more than {MOST_VALUES} values"
            text = json.dumps({"id": self._number, "error": "Refused", "text": why})
        self._send(text.encode() + b"\n")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send, and what comes back.

        Raises:
            EOFError: if nobody is there any more.
        """
        self.send(message)
        reply = self.receive()
        if reply is None:
            raise EOFError
        return reply
