"""A benchmark with tables drawn by a seed, its team and its exact solution, in one call.

problem = drawn("relay", seed=3, partial=0.3)
problem.task, problem.team       # what episodes are played with
problem.optimum.value            # V*, at `cost_weight`
problem.regret(policy)           # a RegretReport; a runtime, or observation -> probabilities
problem.config(policy={"use": "neural"}, trainer={"use": "reinforce", "episodes": 64})
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from attrs import frozen

from orchestrion import Member, UsageError
from orchestrion_orchestration_bench.process import Worth, optimum
from orchestrion_orchestration_bench.regret import RegretReport, regret
from orchestrion_orchestration_bench.relay import Relay, RelayTables
from orchestrion_orchestration_bench.relay_rules import STOP
from orchestrion_orchestration_bench.solved import solve
from orchestrion_orchestration_bench.stop import Stop, StopTables
from orchestrion_orchestration_bench.stop_rules import ABSTAIN, SUBMIT

__all__ = ["Drawn", "drawn", "rows_of", "with_tables"]

ENDERS = (STOP, SUBMIT, ABSTAIN)
TURNS = 20  # the tasks end an episode sooner


@frozen
class Drawn:
    """A benchmark whose tables were drawn.

    Args:
        task: with its tables.
        settings: the `task` section of a config that gives the same task.
        cost_weight: of cost in the value.
    """

    task: Relay | Stop
    settings: Mapping[str, Any]
    cost_weight: float = 1.0

    @property
    def team(self) -> tuple[Member, ...]:
        """Return one agent for every row of the tables, and those that end the episode."""
        return tuple(Member(row, ends=row in ENDERS) for row in rows_of(self.task))

    @cached_property
    def optimum(self) -> Worth:
        """Return the worth of the best policy, exactly."""
        return optimum(solve(self.task).process, self.cost_weight)[0]

    def regret(self, policy: Any, **options: Any) -> RegretReport:
        """Compare a policy with the best one; `options` as of `regret.regret`."""
        return regret(self.task, policy, self.team, self.cost_weight, **options)

    def config(self, **sections: Any) -> dict[str, Any]:
        """Return a config for `orchestrion.config.from_data`; `sections` replace or add to it."""
        return {
            "seed": 7,
            "task": dict(self.settings),
            "agents": _agents(self.task),
            "policy": {"use": "random"},
            "reward": {"use": "outcome-minus-cost", "cost_weight": self.cost_weight},
            "limits": {"turns": TURNS},
            **sections,
        }


def drawn(
    use: Literal["relay", "stop"],
    seed: int,
    *,
    tables: Mapping[str, int] | None = None,
    cost_weight: float = 1.0,
    **settings: Any,
) -> Drawn:
    """Return the benchmark that a seed draws.

    Args:
        use: which task.
        seed: of the tables.
        tables: sizes that are not to be drawn, e.g. {"workers": 7}.
        cost_weight: of cost in the value.
        settings: others of the task, e.g. `partial=0.3`.

    Raises:
        ValueError: a size or a setting is out of range.
    """
    section = {"seed": seed, **(tables or {})}
    task: Relay | Stop = (
        Relay(tables=RelayTables(**section), **settings)
        if use == "relay"
        else Stop(tables=StopTables(**section), **settings)
    )
    return Drawn(task, {"use": use, "tables": section, **settings}, cost_weight)


def rows_of(task: Relay | Stop) -> tuple[str, ...]:
    """Return the rows that a team can play: those of the tables, and those that end an episode."""
    if isinstance(task, Relay):
        return (*task.agents, STOP)
    return (*task.solvers, *task.checkers, SUBMIT, ABSTAIN)


def with_tables(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return a relay's or stop's config with drawn tables and the team that plays them.

    Sizes in the config's `task.tables` are kept, and so is `horizon`.

    Raises:
        UsageError: the task is neither relay nor stop, or the sizes cannot be had.
    """
    task = config.get("task")
    task = {"use": task} if isinstance(task, str) else task
    use = task.get("use") if isinstance(task, Mapping) else None
    if use not in ("relay", "stop"):
        raise UsageError(f"task.use: tables can be drawn for relay and stop, got {use!r}")
    assert isinstance(task, Mapping)
    named = ("skills", "prerequisites", "types", "agents", "solvers", "checkers", "abstain")
    others = {k: v for k, v in task.items() if k not in (*named, "use", "tables")}
    sizes = {k: v for k, v in (task.get("tables") or {}).items() if k != "seed"}
    try:
        problem = drawn(use, seed, tables=sizes, **others)
    except (TypeError, ValueError) as error:
        raise UsageError(f"task: {error}") from None
    return {**config, "task": dict(problem.settings), "agents": _agents(problem.task)}


def _agents(task: Relay | Stop) -> dict[str, Any]:
    return {row: {"use": "bench-agent"} for row in rows_of(task)}
