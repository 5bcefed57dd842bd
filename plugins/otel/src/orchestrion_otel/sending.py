"""Spans as OpenTelemetry sends them. Imported where something is sent, not before."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from orchestrion import hidden
from orchestrion_otel.constants import PROJECT, SCHEMA_URL
from orchestrion_otel.spans import RunFacts, Span

_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
)
_OWN_SESSIONS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
"""Variables that have OpenTelemetry load a session, which a session of ours would replace."""


class Watched(SpanExporter):
    """An exporter that counts what could not be sent."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.sent = self.lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            logging.getLogger(_LOGGERS[0]).error("%s: %s", type(error).__name__, error)
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.lost += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Reason(logging.Filter):
    """Keeps the last thing that OpenTelemetry had to say, and nobody else is told."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = " ".join(hidden(record.getMessage()).split())[:300]
        return False


@contextmanager
def kept_quiet() -> Iterator[_Reason]:
    """Keep what OpenTelemetry logs about sending: it says it for every batch."""
    reason = _Reason()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(reason)
    try:
        yield reason
    finally:
        for logger in loggers:
            logger.removeFilter(reason)


def exporter_of(endpoint: str | None, headers: Mapping[str, str]) -> Watched:
    """Return what sends over OTLP/HTTP; None leaves the endpoint to OpenTelemetry."""
    session = None
    if not any(os.environ.get(name) for name in _OWN_SESSIONS):
        session = requests.Session()
        session.hooks["response"].append(_refuse_redirect)
    return Watched(
        OTLPSpanExporter(endpoint=endpoint, headers=dict(headers) or None, session=session)
    )


def _refuse_redirect(response: requests.Response, *args: Any, **kwargs: Any) -> None:
    """Raise for a redirect: OpenTelemetry takes it for success, and does not follow it."""
    if 300 <= response.status_code < 400:
        place = response.headers.get("location", "nowhere")
        response.close()
        raise requests.RequestException(
            f"the server answers {response.status_code} and redirects to {place}; "
            "give the endpoint there, if you trust it"
        )


def resource_of(run: RunFacts) -> Resource:
    """Return what sends: the same for all spans of a run."""
    return Resource.create(
        {
            "service.name": os.environ.get("OTEL_SERVICE_NAME") or "orchestrion",
            "service.version": version("orchestrion"),
            PROJECT: run.workflow,
            "orchestrion.run.id": run.name,
        },
        SCHEMA_URL,
    )


def readable(spans: Iterable[Span], resource: Resource) -> list[ReadableSpan]:
    """Return spans as exporters take them, without secrets."""
    scope = InstrumentationScope("orchestrion_otel", version("orchestrion-otel"), SCHEMA_URL)
    return [_readable(span, resource, scope) for span in spans]


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    error = Status(StatusCode.ERROR, _clean(span.error)) if span.error else Status()
    start, end = round(span.start * 1e9), round(span.end * 1e9)  # in nanoseconds
    return ReadableSpan(
        name=_clean(span.name),
        context=_context(span, span.path),
        parent=None if span.parent is None else _context(span, span.parent),
        resource=resource,
        attributes=_attributes(span.attributes),
        events=[Event(event.name, _attributes(event.attributes), end) for event in span.events],
        links=[Link(_context(span, path)) for path in span.links],
        kind=SpanKind.CLIENT if span.remote else SpanKind.INTERNAL,
        status=error,
        start_time=start,
        end_time=end,
        instrumentation_scope=scope,
    )


def _context(span: Span, path: str) -> SpanContext:
    return SpanContext(span.trace, span.id_of(path), False, TraceFlags(TraceFlags.SAMPLED))


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _clean(value) for name, value in attributes.items()}


def _clean(value: Any) -> Any:
    """Return a value without secrets, as UTF-8: half of a surrogate pair is none."""
    if isinstance(value, str):
        return hidden(value).encode(errors="replace").decode()
    return tuple(map(_clean, value)) if isinstance(value, tuple) else value
