"""The agent that runs the visible tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from attrs import evolve, frozen
from orchestrion_repair import RUNS_TESTS, Outcome, probed, program, shared_runner

from orchestrion import JSON, Agent, Calls, Key, OpenContext, Output, Usage, View, no_calls
from orchestrion_repair_agents.workplace import (
    NOTHING,
    content_of,
    limits_of,
    outcome_json,
    trial_of,
    work_of,
)

_TOO_MUCH = ("TooManyLooks", "OutOfTime", "MemoryError", "Crash")
"""What may be the fault of the alternatives that are looked at beside the program."""


@frozen
class RunTests(Agent):
    """Runs every visible test on the current program; a test costs 1.

    Its report has each test's outcome and the lines it ran, from which the task computes which
    lines are suspicious, and the edits that would have computed the same.
    """

    role = f"{RUNS_TESTS}: which fail, how, and which lines they cover"
    pure = True
    ceiling = no_calls

    def memo(self, view: View) -> JSON:
        """Return the program and its tests."""
        work = work_of(view)
        return None if work is None else content_of(work)

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[RunTests]:
        """Keep the processes that programs run in from one turn to the next."""
        async with shared_runner():
            yield self

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Run all visible tests."""
        work = work_of(view)
        if work is None:
            return NOTHING
        order = list(range(len(work["visible"])))
        plain = trial_of(work, work["code"], order, lines=True)
        # Not in a thread: `ast` of Python 3.11 counts its depth once for all threads.
        looking = probed(program(work["code"], work["entry_point"], tuple(work["arguments"])))
        trial, executed = plain, 0
        if looking is not None:
            trial = evolve(plain, code=looking.code, sites=looking.sites)
        async with shared_runner() as runner:
            [outcomes] = await runner.run([trial], limits_of(work))
            if looking is not None and any(outcome.error in _TOO_MUCH for outcome in outcomes):
                looking, executed = None, len(outcomes)
                [outcomes] = await runner.run([plain], limits_of(work))
        data: dict[str, JSON] = {
            "tool": "tests",
            "on": work["on"],
            "results": [outcome_json(outcome) for outcome in outcomes],
        }
        if looking is not None:
            data |= {"probed": looking.numbers, "same": [outcome.same for outcome in outcomes]}
        return Output(_summary(outcomes), data, Usage(cost=float(executed + len(outcomes))))


def _summary(outcomes: Sequence[Outcome]) -> str:
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if not failed:
        return f"All {len(outcomes)} visible tests pass."
    how = sorted({outcome.error or "a wrong value" for outcome in failed})
    return f"{len(failed)} of {len(outcomes)} visible tests fail: {', '.join(how)}."
