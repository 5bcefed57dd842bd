"""Replace the tables and the team of a config by drawn ones: `orchestrion draw`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrion import UsageError
from orchestrion_orchestration_bench.relay import STOP, Relay, RelayTables
from orchestrion_orchestration_bench.stop import ABSTAIN, SUBMIT, Stop, StopTables


def rows_of(task: Relay | Stop) -> tuple[str, ...]:
    """Return the rows that a team can play: those of the tables, and those that end an episode."""
    if isinstance(task, Relay):
        return (*task.agents, STOP)
    return (*task.solvers, *task.checkers, SUBMIT, ABSTAIN)


def with_tables(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a relay's or stop's config with drawn tables and the team that plays them.

    Sizes in the config's `task.tables` are kept, and so is `horizon`.

    Raises:
        UsageError: the task is neither relay nor stop, or no tables of these sizes can be drawn.
    """
    task = config.get("task")
    task = {"use": task} if isinstance(task, str) else task
    use = task.get("use") if isinstance(task, Mapping) else None
    if use not in ("relay", "stop"):
        raise UsageError(f"task.use: tables can be drawn for relay and stop, got {use!r}")
    assert isinstance(task, Mapping)
    replaced = ("skills", "prerequisites", "types", "agents", "solvers", "checkers", "abstain")
    others = {k: v for k, v in task.items() if k not in (*replaced, "use", "tables")}
    tables = {**(task.get("tables") or {}), "seed": seed}
    try:
        opened: Relay | Stop = (
            Relay(tables=RelayTables(**tables), **others)
            if use == "relay"
            else Stop(tables=StopTables(**tables), **others)
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"task: {error}") from None
    agents = {row: {"use": "bench-agent"} for row in rows_of(opened)}
    return {**config, "task": {"use": use, "tables": tables, **others}, "agents": agents}
