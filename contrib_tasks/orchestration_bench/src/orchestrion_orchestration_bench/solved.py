"""A benchmark with what is known about it: the processes, and how to pose its problems."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from orchestrion import Problem, Task, UsageError
from orchestrion_orchestration_bench.committee import Committee
from orchestrion_orchestration_bench.process import Process
from orchestrion_orchestration_bench.relay import Relay
from orchestrion_orchestration_bench.stop import Stop

__all__ = ["Solved", "solve"]


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
    """The decision process behind a benchmark.

    Raises:
        UsageError: the task is none of relay, stop and committee, or too large.
    """
    if isinstance(task, Relay):
        from orchestrion_orchestration_bench.relay_exact import process_of

        process = process_of(task)
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

    note, shown = _attempt(lambda: process_of(task))
    return Solved("stop", beliefs_of(task), shown, blind_of(task), task.rules.kinds, note)


def _attempt(build: Callable[[], Process]) -> tuple[str, Process | None]:
    try:
        return "", build()
    except UsageError as error:
        return str(error), None
