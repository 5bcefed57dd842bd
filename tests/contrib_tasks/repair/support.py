"""A repair task that is open, with agents, and short ways to ask them."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, TypeVar

from attrs import define, field
from orchestrion_repair import role_of
from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.runner import Runner, shared_runner
from orchestrion_repair.task import Repair, RunningRepair
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits
from orchestrion_repair_agents.lint import Lint
from orchestrion_repair_agents.mutate import Mutate
from orchestrion_repair_agents.run_tests import RunTests

from orchestrion import (
    Key,
    Member,
    OpenContext,
    Output,
    Problem,
    Scores,
    Step,
    Trajectory,
    Turn,
    Usage,
    View,
)
from tests.coroutines import AsyncTest, SyncTest, given

REGIONS = ("top", "next", "rest")
FAST = RepairLimits(steps=2_000, cpu_seconds=1)
T = TypeVar("T")

TOTAL = """\
def total(values, start):
    result = start
    for value in values:
        if value > 0:
            result += value
    return result
"""
"""A right program; tests make wrong ones of it."""


def cases(*rows: tuple[Sequence[Any], Any]) -> tuple[dict[str, Any], ...]:
    """Cases as they stand in trials: (arguments, wanted)."""
    return tuple(Case(tuple(args), want).to_json() for args, want in rows)


TOTAL_CASES = cases(
    (([1, 2], 0), 3), (([], 5), 5), (([4, -9], 1), 5), (([0, 7], 2), 9), (([3], -3), 0)
)  # fmt: skip


def bug(code: str, solution: str = TOTAL, **changes: Any) -> Bug:
    """A bug of `total`."""
    tests = [Case.from_json(case) for case in TOTAL_CASES]
    settings: dict[str, Any] = {
        "id": "total/1",
        "name": "total",
        "entry_point": "total",
        "visible": tuple(tests[:3]),
        "hidden": tuple(tests[3:]),
        "solution": solution,
        **changes,
    }
    return Bug(code=code, **settings)


@cache
def _loop() -> asyncio.Runner:
    """The event loop of all tests, which keeps the sandbox open from one test to the next."""
    loop = asyncio.Runner()
    stack = AsyncExitStack()
    loop.run(stack.enter_async_context(shared_runner()))
    atexit.register(loop.close)
    atexit.register(lambda: loop.run(stack.aclose()))
    return loop


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives in the event loop of all tests."""
    return _loop().run(work)


def with_runner(work: Callable[[Runner], Awaitable[T]]) -> T:
    """What `work` gives with a runner that has forgotten what it knew."""

    async def ask() -> T:
        async with shared_runner() as runner:
            runner._known.clear()
            return await work(runner)

    return on_loop(ask())


def outcomes(
    code: str,
    tests: Sequence[Any],
    entry_point: str = "f",
    limits: RepairLimits = FAST,
    judge: bool = False,
    **settings: Any,
) -> tuple[Outcome, ...]:
    """What one program gives in a search, or in a verdict."""

    async def ask(runner: Runner) -> tuple[Outcome, ...]:
        trial = ProgramTrial(code, entry_point, tuple(tests), **settings)
        if judge:
            return await runner.judge(trial, limits)
        return (await runner.run([trial], limits))[0]

    return with_runner(ask)


@define
class Bench:
    """An open task with its team, and one problem in progress."""

    task: RunningRepair
    agents: dict[str, Any]
    problem: Problem
    step: Step
    trajectory: Trajectory = field(factory=Trajectory)

    def begin(self, one: Bug) -> None:
        """Another problem, from its start."""
        self.problem = self.task.problem_of(one)
        self.step = self.task.start(self.problem, Key(1))
        self.trajectory = Trajectory()

    async def act(self, agent: str, option: str | None = None) -> Output:
        """One turn of an agent of the team."""
        output: Output = await self.agents[agent].act(self.view(agent, option), Key(1), None)
        self.say(output, agent, option)
        return output

    def view(self, agent: str, option: str | None = None) -> View:
        """What an agent may read now."""
        shown = self.step.observation
        return View(agent, option, self.problem.public(), self.trajectory, shown)

    def say(self, output: Output, agent: str = "stranger", option: str | None = None) -> None:
        """A turn with this output."""
        turn = Turn(len(self.trajectory), agent, option, output)
        self.trajectory = self.trajectory.append(turn)
        self.step = self.task.step(self.step.state, turn, Key(2))

    async def scores(self, final: bool = True) -> Scores:
        """The verdict on the present program."""
        calls: Any = None
        return await self.task.verify(
            self.problem, self.trajectory, self.step.state, final=final, calls=calls
        )

    @property
    def seen(self) -> Any:
        """The observation's data."""
        assert self.step.observation is not None
        return self.step.observation.data


@asynccontextmanager
async def bench(
    one: Bug, operators: dict[str, list[Any]] | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    """A bench for one bug; `operators` names the agents that try edits."""
    operators = operators or {"comparison": ["comparison"], "variable": ["variable"]}
    roster = [Member("tests", role=RunTests().role), Member("lint")]
    roster += [Member(name, REGIONS, role_of(families)) for name, families in operators.items()]
    context = OpenContext("task", Key(0), tuple(roster))
    async with AsyncExitStack() as stack:
        task = await stack.enter_async_context(Repair(steps=2_000, **settings).open(context))
        agents: dict[str, Any] = {
            "tests": await stack.enter_async_context(RunTests().open(context)),
            "lint": Lint(),
        }
        for name, families in operators.items():
            agent = Mutate(families)
            agents[name] = await stack.enter_async_context(agent.open(context))
        problem = task.problem_of(one)
        yield Bench(task, agents, problem, task.start(problem, Key(1)))


def given_bench(
    one: Bug, operators: dict[str, list[Any]] | None = None, **settings: Any
) -> Callable[[AsyncTest], SyncTest]:
    """Return a decorator for a test whose first argument is a bench for one bug."""
    return given(lambda **_: bench(one, operators, **settings), on_loop)


def on_bench(
    one: Bug,
    work: Callable[[Bench], Awaitable[T]],
    operators: dict[str, list[Any]] | None = None,
    **settings: Any,
) -> T:
    """What `work` gives on a bench for one bug."""

    async def run() -> T:
        async with bench(one, operators, **settings) as made:
            return await work(made)

    return on_loop(run())


def claim(data: Any, text: str = "PASS", cost: float = 0.0) -> Output:
    """What an agent says, true or not."""
    return Output(text, data, Usage(cost=cost))
