"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_encoders"


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("encoder", "encoders", f"{HERE}.interfaces:Encoder")


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, path, summary in (
        ("counts", "counts:Counts", "what the task shows, and how often each choice was made"),
        ("hints", "hints:Hints", "what the task says of each choice"),
    ):
        yield "encoder", Component(name, f"{HERE}.{path}", summary)
