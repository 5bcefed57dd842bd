"""An open review task, teams that say prepared things, and short ways to score them."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, TypeVar, cast

from orchestrion_code_review.challenge import Challenge, Test, builtin
from orchestrion_code_review.task import CodeReview, RunningReview, problem_of
from orchestrion_sandbox import Box, Profile, choose

from orchestrion import Key, OpenContext, Output, Scores, Trajectory, Turn
from orchestrion._engine.calls import ActivationCalls
from orchestrion.testing import Fixed, engine_for

T = TypeVar("T")

DOUBLE = Challenge(
    id="double",
    text="Return twice the number.",
    entry_point="double",
    examples=(Test("double(1) == 2"),),
    tests=tuple(Test(f"double({n}) == {2 * n}") for n in (0, 2, -3, 10, 41)),
    solution="def double(n: int) -> int:\n    return n * 2\n",
    wrong=("def double(n: int) -> int:\n    return n**2 if n != 1 else 2\n",),
)
RIGHT = DOUBLE.solution
WRONG = DOUBLE.wrong[0]
"""Passes the example, and the hidden tests for 0 and 2."""
NONSENSE = "def double(n: int) -> str:\n    return 'all tests passed'\n"


def named(name: str) -> Challenge:
    """A built-in problem."""
    return next(one for one in builtin() if one.id == name)


def says(code: str) -> Output:
    """A turn that brings a version."""
    return Output(f"Here it is.\n\n```python\n{code}```\n")


def turns(*said: tuple[str, str | Output]) -> Trajectory:
    """A trajectory of (agent, code or output)."""
    made = []
    for index, (agent, what) in enumerate(said):
        output = what if isinstance(what, Output) else says(what)
        made.append(Turn(index, agent, output=output))
    return Trajectory(made)


PLAIN = Profile()


class Kept:
    """A sandbox whose box stays open from one test to the next."""

    @asynccontextmanager
    async def open(self, profile: Profile = PLAIN) -> AsyncIterator[Box]:
        """The box of all tests."""
        yield box()


@cache
def loop() -> asyncio.Runner:
    """The event loop of all tests."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that may use the box of all tests."""
    box()
    return loop().run(work)


@cache
def box() -> Box:
    """The box of all tests."""
    stack = AsyncExitStack()
    made = loop().run(stack.enter_async_context(choose("auto").open()))
    atexit.register(lambda: loop().run(stack.aclose()))
    return made


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[RunningReview]:
    """The task, open; without static measures unless asked for."""
    task = CodeReview(**{"measures": [], "sandbox": Kept(), **settings})
    async with task.open(OpenContext("task", Key(1))) as running:
        yield running


def closed(**settings: Any) -> RunningReview:
    """The task without a sandbox and tools: it has problems and no verdicts."""
    task, nothing = CodeReview(**settings), cast(Any, None)
    return RunningReview(task, task.challenges(), (), nothing, nothing)


def running(do: Callable[[RunningReview], Awaitable[T]], **settings: Any) -> T:
    """What a coroutine gives with an open task."""

    async def run() -> T:
        async with opened(**settings) as task:
            return await do(task)

    return in_loop(run())


async def scored(
    task: RunningReview, trajectory: Trajectory, challenge: Challenge = DOUBLE, final: bool = True
) -> Scores:
    """The verifier's scores of a trajectory."""
    engine = engine_for({}, Fixed([]), task)
    calls = ActivationCalls(engine, Key(2))
    problem = problem_of(challenge)
    return await task.verify(problem, trajectory, None, final=final, calls=calls)


def scores_of(
    *trajectories: Trajectory, challenge: Challenge = DOUBLE, **settings: Any
) -> list[Scores]:
    """The final scores of some trajectories."""

    async def score(task: RunningReview) -> list[Scores]:
        return [await scored(task, one, challenge) for one in trajectories]

    return running(score, **settings)


def parts_of(said: Sequence[tuple[str, str | Output]], **settings: Any) -> dict[str, float]:
    """The parts of one trajectory's final scores."""
    [found] = scores_of(turns(*said), **settings)
    return dict(found.parts)
