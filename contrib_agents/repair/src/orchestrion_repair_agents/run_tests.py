"""The agent that runs the visible tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from attrs import frozen
from orchestrion_repair import RUNS_TESTS, Outcome, Runner, shared_runner

from orchestrion import JSON, Agent, Calls, Key, OpenContext, Output, Usage, View, no_calls
from orchestrion_repair_agents.workplace import NOTHING, limits_of, outcome_json, trial_of, work_of

__all__ = ["RunTests"]


@frozen
class RunTests(Agent):
    """Runs every visible test on the current program; a test costs 1.

    Its report has each test's outcome and the lines it ran, from which the task computes which
    lines are suspicious.
    """

    @property
    def role(self) -> str:
        """What it does, for policies that read."""
        return f"{RUNS_TESTS}: which fail, how, and which lines they cover"

    @property
    def pure(self) -> bool:
        """Equal programs and tests give equal reports."""
        return True

    def memo(self, view: View) -> JSON:
        """The program and its tests."""
        work = work_of(view)
        names = ("code", "entry_point", "prelude", "visible", "limits")
        return None if work is None else [work.get(name) for name in names]

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[RunningTests]:
        """With processes to run programs in."""
        async with shared_runner() as runner:
            yield RunningTests(runner)

    ceiling = no_calls

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """One turn with processes of its own; opened, it shares the run's."""
        async with shared_runner() as runner:
            return await RunningTests(runner).act(view, key, calls)


@frozen(eq=False)
class RunningTests(RunTests):
    """The agent with its runner."""

    runner: Runner

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Run all visible tests."""
        work = work_of(view)
        if work is None:
            return NOTHING
        order = list(range(len(work["visible"])))
        trial = trial_of(work, work["code"], order, lines=True)
        outcomes = (await self.runner.run([trial], limits_of(work)))[0]
        data: dict[str, JSON] = {
            "tool": "tests",
            "on": work["on"],
            "results": [outcome_json(one) for one in outcomes],
        }
        return Output(_told(outcomes), data, Usage(cost=float(len(outcomes))))


def _told(outcomes: Sequence[Outcome]) -> str:
    failed = [one for one in outcomes if not one.passed]
    if not failed:
        return f"All {len(outcomes)} visible tests pass."
    how = sorted({one.error or "a wrong value" for one in failed})
    return f"{len(failed)} of {len(outcomes)} visible tests fail: {', '.join(how)}."
