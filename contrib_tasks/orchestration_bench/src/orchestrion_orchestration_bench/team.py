"""Which row of a benchmark's table each choice of a team plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen

from orchestrion import Activation, Member, UsageError, choices
from orchestrion_orchestration_bench.process import Floats, Process

__all__ = ["Team"]

ENDS = ("stop", "terminator")
"""Rows that end the episode without being in every table."""


@frozen(eq=False)
class Team:
    """A team over a process.

    Args:
        roster: as policies see it.
        choices: its agents with their options, in roster order.
        columns: the process's action for each choice.
        rows: the row each agent plays.
        enders: agents that end the episode without a row in the table.
        stop: the process's action for ending the episode without a word.
    """

    roster: tuple[Member, ...]
    choices: tuple[Activation, ...]
    columns: tuple[int, ...]
    rows: Mapping[str, str]
    enders: frozenset[str]
    stop: int

    @classmethod
    def of(
        cls, process: Process, roster: Sequence[Member], plays: Mapping[str, str] | None = None
    ) -> Team:
        """Match a team with a table.

        Args:
            process: the benchmark's.
            roster: the team.
            plays: the row an agent plays, where that is not its name.

        Raises:
            UsageError: an agent plays no row.
        """
        rows = {member.name: (plays or {}).get(member.name, member.name) for member in roster}
        columns = {(one.row, one.option): i for i, one in enumerate(process.actions)}
        found, enders = [], set()
        for choice in choices(roster):
            row = rows[choice.agent]
            column = columns.get((row, choice.option))
            if column is None and row in ENDS and choice.option is None:
                column = process.stop
                enders.add(choice.agent)
            if column is None:
                known = sorted({action.row for action in process.actions})
                option = "" if choice.option is None else f" with option {choice.option!r}"
                raise UsageError(
                    f"agent {choice.agent!r}{option} plays no row of the task's table "
                    f"({', '.join(known)}); name it like a row, or set `plays`"
                )
            found.append(column)
        return cls(
            tuple(roster), choices(roster), tuple(found), rows, frozenset(enders), process.stop
        )

    @property
    def all_columns(self) -> tuple[int, ...]:
        """Every action there is for the team; a policy may always stop."""
        return tuple(sorted({*self.columns, self.stop}))

    def counts(self, process: Process) -> Floats:
        """How many choices are each action [a]; stopping is one if no agent ends the episode."""
        counts = np.bincount(self.columns, minlength=len(process.actions)).astype(float)
        if not any(process.actions[column].final for column in self.columns):
            counts[self.stop] = 1.0
        return counts
