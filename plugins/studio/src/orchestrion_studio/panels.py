"""Panels that plugins add to the page of a run.

An entry point in the group `orchestrion.panels` names a function that gets a run, open for reading,
and returns a `Panel`, or None where it has nothing to show:

    [project.entry-points."orchestrion.panels"]
    my-graphs = "orchestrion_my_graphs.panel:graphs"

A panel is plain data. The studio draws and escapes it, so that no plugin writes HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from attrs import asdict, field, frozen

from orchestrion.runs import RunReader

GROUP = "orchestrion.panels"


@frozen
class Panel:
    """What a plugin shows on the page of a run.

    Args:
        title: its heading.
        text: a paragraph above the rest.
        plots: as `plot_of` returns them.
        heads: of the table's columns.
        rows: of the table.
    """

    title: str
    text: str = ""
    plots: Sequence[dict[str, Any]] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(factory=list)


def panels_of(reader: RunReader) -> list[dict[str, Any]]:
    """Return the panels of all plugins as plain data; one that fails says so in its place."""
    panels = []
    for name, make in makers().items():
        try:
            panel = make()(reader)
        # A plugin's own code: whatever it raises must not take the page away.
        except Exception as error:
            panel = Panel(name, f"This panel failed: {type(error).__name__}: {error}")
        if panel is not None:
            rows = [[str(cell) for cell in row] for row in panel.rows]
            panels.append({**asdict(panel), "rows": rows})
    return panels


@cache
def makers() -> dict[str, Callable[[], Callable[[RunReader], Panel | None]]]:
    """Return what loads the function of each panel; looking for them takes a while, once."""
    return {point.name: point.load for point in entry_points(group=GROUP)}
