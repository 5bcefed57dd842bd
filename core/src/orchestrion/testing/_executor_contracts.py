"""Check what an executor promises: the same episodes as without it, whatever becomes of workers."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from attrs import frozen

from orchestrion._engine.calls import CallPath
from orchestrion._engine.pool import LOSSES, open_pool
from orchestrion._errors import RunError, UsageError
from orchestrion._executors import LinkLost
from orchestrion._interfaces import Agent, Answer, Calls, Job, Request, View
from orchestrion._keys import Key
from orchestrion._learned import OWN_TEAM, LearnedComponents
from orchestrion._records import Episode, Output, Usage
from orchestrion._session import EngineSession
from orchestrion.config import Config
from orchestrion.testing._stage import Subject

HERE = "orchestrion.testing._executor_contracts"
STAGE = "orchestrion.testing._stage"
EPISODES = 8


@frozen
class Mortal(Agent):
    """Say which draw it got, and make a call; kill its process at one problem.

    Args:
        problem: which; "" for none.
        once: a file that is made when it did so, and that says that it need not again.
        spared: the leading process, which it must not be in.
    """

    problem: str = ""
    once: str = ""
    spared: int = 0

    def act(self, view: View, key: Key, calls: Calls) -> Awaitable[Output]:
        if view.problem.id == self.problem and not (self.once and Path(self.once).exists()):
            if os.getpid() == self.spared:
                raise RuntimeError("this is the leading process, and no worker")
            if self.once:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._answer(key, calls)

    async def _answer(self, key: Key, calls: Calls) -> Output:
        async def answer() -> Answer:
            return Answer({"draw": key.uniform()}, Usage(calls=1, usd=0.5))

        given = await calls.run(Request("kit", key.hex()), answer)
        return Output(str(given.data["draw"]), usage=Usage(cost=0.1))


def _config(subject: Subject, problem: str = "", once: str = "") -> Config:
    settings = {"problem": problem, "once": once, "spared": os.getpid()}
    # By their classes: a worker does not have the kit's plugin.
    parts = {name: {"use": f"{STAGE}:Kit{name.title()}"} for name in ("task", "policy", "reward")}
    return subject.config({**parts, "agents": {"a": {"use": f"{HERE}:Mortal", **settings}}})


async def _episodes(config: Config, elsewhere: bool) -> tuple[list[Episode], Usage]:
    """Return episodes, and what their calls spent."""
    calls = CallPath()
    async with AsyncExitStack() as stack:
        components = LearnedComponents(config, stack)
        await components.restore(None)
        pool = await stack.enter_async_context(
            open_pool(config if elsewhere else None, calls, None)
        )
        engine = components.opened.engine(calls)
        if pool is not None:
            pool.take(engine, components.opened, OWN_TEAM)
        session = EngineSession(engine, "kit", Key(1), Key(2))
        problems = session.problems()
        jobs = [Job(problems[n % len(problems)], Key(n)) for n in range(EPISODES)]
        return await session.rollout(jobs), calls.budget.spent


def _here(check: Callable[[Subject], Coroutine[Any, Any, None]]) -> Callable[[Subject], int]:
    """Return a check that passes over an executor that cannot be opened on this machine."""

    def run(subject: Subject) -> int:
        try:
            asyncio.run(check(subject))
        except UsageError:
            return 0
        except LinkLost as error:
            raise AssertionError(f"the loss of a worker got out of the executor: {error}") from None
        return EPISODES

    return run


@_here
async def executor_gives_the_same(subject: Subject) -> None:
    """Check that episodes, and what calls spend, are those of a run without an executor."""
    config = _config(subject)
    here, there = await _episodes(config, False), await _episodes(config, True)
    assert there == here, (
        "episodes differ from those of one process; messages must arrive whole, once and in order, "
        "and start() must run orchestrion.work(link) in the worker"
    )


@_here
async def executor_replaces(subject: Subject) -> None:
    """Check that a worker that is killed is noticed, and that start() gives a new one."""
    with tempfile.TemporaryDirectory() as folder:
        once = str(Path(folder, "once"))
        results, _ = await _episodes(_config(subject, "train-2", once), True)
    expected, _ = await _episodes(_config(subject), False)
    assert results == expected, "after the loss of a worker, episodes differ"


@_here
async def executor_names_the_culprit(subject: Subject) -> None:
    """Check that an episode that ends every worker is an error, and not tried for ever."""
    try:
        await _episodes(_config(subject, "train-2"), True)
    except RunError as error:
        text = str(error)
    else:
        raise AssertionError("an episode that kills every worker came to an end")
    wanted = f"(problem train-2) lost {LOSSES} workers"
    assert wanted in text, f"the error does not name the episode: {text}"
