"""No components: this distribution supplies the command `sweep`, and its sections of a config."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrion import hookimpl


@hookimpl
def orchestrion_sections() -> Iterator[str]:
    yield "orchestrion_sweep.settings:Sections"
