"""What this distribution supplies."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import Component, hookimpl


@hookimpl
def orchestrion_agents() -> Iterator[Component]:
    yield Component(
        "prompted",
        "orchestrion_prompted.prompted:Prompted",
        "one prompt, one completion, one strict reading; what cannot be read is kept and marked",
        example={"model": {"use": "kit-model"}, "prompt": "{problem}"},
    )
