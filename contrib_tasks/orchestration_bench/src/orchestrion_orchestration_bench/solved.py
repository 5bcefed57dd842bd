"""A benchmark with what is known about it: the processes, and how to pose its problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen

from orchestrion import Activation, Member, Observation, Problem, Task, UsageError, choices
from orchestrion_orchestration_bench.committee import Committee
from orchestrion_orchestration_bench.process import Action, Floats, Layer, Process
from orchestrion_orchestration_bench.relay import STOP, Relay, RelayState
from orchestrion_orchestration_bench.stop import Stop

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
        """Match a team with a table; `plays` is the row an agent plays, where not its name.

        Raises:
            UsageError: an agent plays no row.
        """
        rows = {member.name: (plays or {}).get(member.name, member.name) for member in roster}
        columns = {(action.row, action.option): i for i, action in enumerate(process.actions)}
        matched, enders = [], set()
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
            matched.append(column)
        return cls(
            tuple(roster), choices(roster), tuple(matched), rows, frozenset(enders), process.stop
        )

    @property
    def all_columns(self) -> tuple[int, ...]:
        """Every action there is for the team; a policy may always stop."""
        return tuple(sorted({*self.columns, self.stop}))

    def counts(self, process: Process) -> Floats:
        """Return the number of choices of each action [a]; 1 to stop if no agent does that."""
        counts = np.bincount(self.columns, minlength=len(process.actions)).astype(float)
        if not any(process.actions[column].final for column in self.columns):
            counts[self.stop] = 1.0
        return counts


State = tuple[int, int]  # type, skills done


def relay_process(task: Relay) -> Process:
    """Return the process that a relay's tables describe; it is fully observed."""
    rules, workers = task.rules, tuple(task.agents)
    states: list[State] = [(kind, 0) for kind in range(len(rules.types))]
    start = np.full(len(states), 1 / len(states))
    layers = []
    for step in range(task.horizon):
        after = sorted(
            {
                (kind, move.done)
                for kind, done in states
                for moves in rules.moves(kind, done).values()
                for move in moves
            }
        )
        layers.append(_relay_layer(task, states, after, step))
        states = after
    actions = (*(Action(name) for name in workers), Action(STOP, final=True))
    return Process(actions, len(workers), rules.types, start, tuple(layers))


def _relay_layer(task: Relay, states: Sequence[State], after: Sequence[State], step: int) -> Layer:
    rules, last = task.rules, step + 1 == task.horizon
    place = {state: i for i, state in enumerate(after)}
    n, a = len(states), len(task.agents) + 1
    to = np.zeros((n, a, 4), dtype=np.int64)
    chance, pay, cost = np.zeros((n, a, 4)), np.zeros((n, a)), np.zeros((n, a))
    for i, (kind, done) in enumerate(states):
        pay[i, a - 1] = rules.scores(RelayState(kind, done, step)).value
        for column, (name, moves) in enumerate(rules.moves(kind, done).items()):
            cost[i, column] = task.agents[name].cost
            for k, move in enumerate(moves):
                if last:
                    worth = rules.scores(RelayState(kind, move.done, step + 1)).value
                    pay[i, column] += move.probability * worth
                else:
                    to[i, column, k] = place[kind, move.done]
                    chance[i, column, k] = move.probability
    group = np.array([kind for kind, _ in states])
    allowed = np.ones((n, a), dtype=bool)

    def show(i: int) -> Observation:
        return rules.observe(RelayState(*states[i], step))

    return Layer(group, to, chance, pay, cost, allowed, show)


@frozen(eq=False)
class Solved:
    """What can be computed about a benchmark.

    Args:
        name: of the task.
        process: states enough for the best value and for policies that know the tables.
        shown: states that policies observe; None where they are too many.
        blind: states enough for sequences fixed in advance; None where nothing is left to
            chance, so that the best sequence is the best policy.
        problems: one problem of each type, in the order of the process's groups.
        note: what could not be had, for the report.
    """

    name: str
    process: Process
    shown: Process | None
    blind: Process | None
    problems: tuple[Problem, ...]
    note: str = ""


def solve(task: Task) -> Solved:
    """Return the decision process behind a benchmark.

    Raises:
        UsageError: the task is none of relay, stop and committee, or too large.
    """
    if isinstance(task, Relay):
        process = relay_process(task)
        return Solved("relay", process, process, process, task.rules.kinds)
    if isinstance(task, Stop):
        return _solve_stop(task)
    if isinstance(task, Committee):
        from orchestrion_orchestration_bench import committee_exact

        process = committee_exact.process_of(task)
        return Solved("committee", process, process, None, (task.problem_from(""),))
    raise UsageError(
        f"{type(task).__name__} has no optimum that can be computed; relay, stop and committee do"
    )


def _solve_stop(task: Stop) -> Solved:
    from orchestrion_orchestration_bench.stop_exact import beliefs_of, blind_of, process_of

    shown, note = None, ""
    try:
        shown = process_of(task)
    except UsageError as error:
        note = str(error)
    return Solved("stop", beliefs_of(task), shown, blind_of(task), task.rules.kinds, note)
