"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrion import Component, Kind, hookimpl

HERE = "orchestrion_encoders"


@hookimpl
def orchestrion_kinds() -> Iterator[Kind]:
    yield Kind("encoder", "encoders", f"{HERE}.interfaces:Encoder")


@hookimpl
def orchestrion_components() -> Iterator[tuple[str, Component]]:
    for name, path, summary in (
        ("counts", "counts:Counts", "what the task shows, and how often each choice was made"),
        ("embedding", "embedding:Embedding", "texts as a model embeds them"),
        ("hints", "hints:Hints", "what the task says of each choice"),
        ("text", "text:Text", "hashed words of the problem and of what was said"),
        ("graph", "graph:Graph", "the shape of the activation graph so far"),
        ("history", "history:History", "the turns one by one, for a network that reads them"),
        ("members", "members:Members", "each choice by its agent's role and record, not its name"),
    ):
        # What uses it in the checks: only a policy with a network can read sequences.
        policy = "neural" if name == "history" else "values"
        around: dict[str, Any] = {"policy": {"use": policy, "encoders": ["tested"]}}
        example = {}
        if name == "embedding":
            around["models"], example = {"m": {"use": "kit-model"}}, {"model": "m"}
        component = Component(name, f"{HERE}.{path}", summary, example=example, around=around)
        yield "encoder", component
