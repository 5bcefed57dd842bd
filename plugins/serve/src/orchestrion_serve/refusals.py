"""What a request can be refused for; each protocol gives it its own shape."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrion import hidden


class Refusal(Exception):
    """A request that is answered with an error.

    Args:
        status: of HTTP.
        code: a word that programs can compare.
        message: what is wrong, for the client.
        param: the field of the body, or the header, that is wrong.
        headers: of the answer; never text that the client chose.
        reason: for the log alone: what the client must not see, such as paths.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(encodable(message))
        self.reason = encodable(hidden(reason))[:1000]
        self.status, self.code, self.param = status, code, param
        self.headers = dict(headers or {})


def wrong(message: str, param: str | None) -> Refusal:
    """Return the error of a request that has to be changed."""
    return Refusal(400, "invalid_request", message, param)


def failed(
    message: str, status: int = 502, code: str = "episode_failed", reason: str = ""
) -> Refusal:
    """Return the error of an episode that ran: clients must not repeat it on their own."""
    return Refusal(status, code, message, headers={"x-should-retry": "false"}, reason=reason)


def gone() -> Refusal:
    """Return what ends a request whose client has gone."""
    return Refusal(499, "client_gone", "the client has gone")


def stopping() -> Refusal:
    """Return the error of a request that came too late."""
    headers = {"retry-after": "1", "connection": "close"}
    return Refusal(503, "stopping", "the server is stopping", headers=headers)


def encodable(text: str) -> str:
    """Return text that UTF-8 can represent: lone surrogates become question marks."""
    return text.encode(errors="replace").decode()
