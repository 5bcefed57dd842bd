"""What this distribution supplies; its command is `otel`."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_otel"


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("traces", "traces", f"{HERE}.otlp:OTLP", many=False, observes=True)


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    summary = "sends every episode as a trace to an OpenTelemetry server"
    yield "traces", Component("otlp", f"{HERE}.otlp:OTLP", summary)
