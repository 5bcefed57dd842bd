"""The three wire formats: what a request asks, and how an answer is written."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrion_offline.wires.chat import Chat
from orchestrion_offline.wires.form import Wire
from orchestrion_offline.wires.messages import Messages
from orchestrion_offline.wires.responses import Responses

__all__ = ["WIRES"]

WIRES: Mapping[str, Wire] = {
    "/v1/chat/completions": Chat(),
    "/v1/responses": Responses(),
    "/v1/messages": Messages(),
}
"""By path."""
