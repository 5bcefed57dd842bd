"""The page of all runs."""

from __future__ import annotations

from orchestrion.runs import RunReader
from orchestrion_studio.page import Data, Page, Query

__all__ = ["PAGES"]


def runs_data(query: Query, reader: RunReader | None) -> Data:
    """Return the runs below the folder."""
    names = sorted(
        str(path.parent.relative_to(query.folder)) for path in query.folder.rglob("run.db")
    )
    return {"folder": query.folder.name, "runs": [{"name": name} for name in names]}


PAGES = [Page("/runs", "runs.html", runs_data, "All runs below the folder")]
