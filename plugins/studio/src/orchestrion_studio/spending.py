"""What a run paid, against its budget; summed again only as often as the sum is cheap."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrion import Usage
from orchestrion.runs import RunReader, run_identity
from orchestrion_studio.page import Data

__all__ = ["spending_of"]

PATIENCE = 20.0
"""A sum is used again for so many times the seconds that it took."""
RUNS = 64
_sums: dict[Path, tuple[tuple[Any, ...], float, Usage]] = {}
"""By run: the identity of its files, until when the sum holds, and the sum."""


def spending_of(reader: RunReader, budget: Mapping[str, Any]) -> list[Data]:
    """Return what was spent of each thing that a budget may limit, and the limit if there is one.

    Args:
        reader: the run.
        budget: the section of its config.
    """
    usage = _spend(reader)
    minutes = reader.seconds / 60
    spent = {
        "usd": ("US dollars", usage.usd),
        "calls": ("calls", float(usage.calls)),
        "tokens": ("tokens", float(usage.input_tokens + usage.output_tokens)),
        "minutes": ("minutes", minutes),
    }
    rows: list[Data] = [
        {"name": name, "text": text, "spent": value, "limit": budget.get(name)}
        for name, (text, value) in spent.items()
    ]
    if usage.cost:
        row = {"name": "cost", "text": "cost, in the agents' own unit", "spent": usage.cost}
        rows.append({**row, "limit": None})
    return rows


def _spend(reader: RunReader) -> Usage:
    version, now = run_identity(reader.directory), time.monotonic()
    known = _sums.get(reader.directory)
    if known is not None and (known[0] == version or now < known[1]):
        return known[2]
    usage = reader.spend()
    while len(_sums) >= RUNS:
        _sums.pop(next(iter(_sums)), None)
    end = time.monotonic()
    _sums[reader.directory] = version, end + PATIENCE * (end - now), usage
    return usage
