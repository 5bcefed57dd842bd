"""The settings of tracing. OpenTelemetry is imported when a run begins."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from orchestrion_otel.constants import CAPTURE

if TYPE_CHECKING:
    from orchestrion_otel.listener import Listener

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""Of a header."""


@frozen
class OTLP:
    """Traces over OTLP/HTTP.

    Args:
        endpoint: where to, e.g. "http://127.0.0.1:5000/v1/traces". By default as OpenTelemetry
            finds it, in OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, or
            port 4318 of this machine.
        headers: sent with every request; values may be "${env:NAME}" and are treated as secrets.
        contents: whether what was asked and answered is sent too; by default what
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, and otherwise not.
    """

    endpoint: str | None = None
    headers: Mapping[str, str] = field(factory=dict, repr=False, metadata={"secret": True})
    contents: bool | None = None

    def __attrs_post_init__(self) -> None:
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"endpoint: {self.endpoint!r} is no address; write one that begins with http:// or "
                "https:// and ends with the path, usually /v1/traces"
            )
        for name, value in self.headers.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"headers: {name!r} is no name of a header")
            if not (value.isascii() and value.isprintable()) or value.startswith(" "):
                raise ValueError(
                    f"headers.{name}: a header cannot carry this value; write printable ASCII that "
                    "does not begin with a space"
                )

    @property
    def captures(self) -> bool:
        """Return whether contents are sent."""
        if self.contents is not None:
            return self.contents
        value = os.environ.get(CAPTURE, "").strip().lower()
        # "true" is of the older conventions; the newer ones name where contents stand.
        return value in ("true", "span_only", "span_and_event")

    def observe(self, served: bool = False) -> Listener:
        """Return what listens to a run."""
        from orchestrion_otel.listener import Listener

        return Listener(self.endpoint, self.headers, self.captures, served=served)

    def observe_served(self) -> Listener:
        """Return what listens to a run while it is served."""
        return self.observe(served=True)
