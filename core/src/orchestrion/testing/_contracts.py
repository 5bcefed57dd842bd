"""Check what each kind of component promises; `CHECKS` lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from io import StringIO
from typing import Any
from unittest.mock import patch

from orchestrion._engine.activation import content_of
from orchestrion._engine.checks import booked
from orchestrion._engine.team import seats_of
from orchestrion._errors import CallError, OrchestrionError
from orchestrion._interfaces import Member, View
from orchestrion._keys import Key
from orchestrion._records import Output, Step, Trajectory, Turn, replace
from orchestrion.testing import _executor_contracts as executors
from orchestrion.testing import _learning_contracts as learning
from orchestrion.testing import _policy_contracts as policies
from orchestrion.testing import _reward_contracts as rewards
from orchestrion.testing import _task_contracts as tasks
from orchestrion.testing._stage import CLAIMS, NEUTRAL, Bench, Subject, bench, on_bench
from orchestrion.testing._watch import check_draws, check_pace, offline, snapshot, unchanged

METHODS: Mapping[str, tuple[str, ...]] = {
    "agent": ("act",),
    "model": ("complete",),
    "task": ("problems", "verify"),
    "reward": ("score",),
    "policy": ("decide",),
    "trainer": ("iterate",),
    "executor": ("start",),
}
"""The methods that a component of each kind must have."""


# ---------------------------------------------------------------------------- agents

_SLIPS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    IndexError,
    KeyError,
    NameError,
    RecursionError,
    TypeError,
)
"""Errors that are a mistake in the program and not a reason why the work cannot be done."""


class _Acting:
    """The agent under test, with a seat in the kit's team."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.agent = bench, bench.tested
        self.seat = seats_of({"tested": self.agent})["tested"]

    def views(self, text: str = "something was said") -> list[View]:
        """Return the first view of two problems, and one with another agent's turn before it."""
        task = self.bench.parts.runtimes["task"]
        option = next(iter(getattr(self.agent, "options", ())), None)
        views = []
        for problem in list(task.problems("train"))[:2]:
            step = task.start(problem, Key(1)) if hasattr(task, "start") else Step()
            turn = Turn(0, "a", output=Output(text, data={"said": [text]}))
            for trajectory in (Trajectory(), Trajectory([turn])):
                view = View("tested", option, problem.public(), trajectory, step.observation)
                views.append(view)
        return views

    async def act(self, view: View, key: Key = Key(2)) -> Output | str:  # noqa: B008  immutable
        """Return the output, or the reason why there is none."""
        calls = self.bench.calls(key)
        try:
            # It may ask a person.
            with patch("sys.stdin", StringIO("a line\n" * 1000)):
                output: Any = await self.seat.act(view, key, calls)
        except _SLIPS as error:
            raise AssertionError(
                f"act() raised {type(error).__name__}: {error}. An agent that cannot do the work "
                "raises an error with a reason, e.g. ValueError('there is no draft yet'); this "
                f"error looks like a mistake (the view had {len(view.turns)} turns)"
            ) from error
        except Exception as error:
            kind = type(error).__name__
            if not str(error):
                raise AssertionError(f"act() raised {kind} without saying why") from error
            return f"{kind}: {error}"
        try:
            return booked(output, calls.used)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"act() returned an invalid output: {error}") from None


@on_bench
async def _agent_acts(bench: Bench) -> int:
    acting = _Acting(bench)
    views, reasons = acting.views(), []
    message = (
        "act() changed what it was shown, which other agents and episodes share; copy it first "
        "(copy.deepcopy), or build something new"
    )
    for view in views:
        with unchanged(view, message), offline("act()"):
            output = await acting.act(view)
        reasons += [output] if isinstance(output, str) else []
    if len(reasons) == len(views) and all(reason.startswith("CallError") for reason in reasons):
        return 0  # it asks a service that cannot be reached here
    assert len(reasons) < len(views), (
        f"act() raised on every problem of the task around it: {reasons[-1]}. If the agent needs "
        "a certain task, team or model, name it in its Component: "
        "Component(..., around={'task': {'use': 'my-task'}})"
    )
    return len(views)


@on_bench
async def _agent_repeats(bench_: Bench) -> int:
    async def outputs(acting: _Acting, backward: bool = False) -> list[Any]:
        step = -1 if backward else 1
        return [snapshot(await acting.act(view)) for view in acting.views()[::step]][::step]

    acting = _Acting(bench_)
    first = await outputs(acting)
    assert first == await outputs(acting, backward=True), (
        "the second time, equal views and keys gave different outputs; keep nothing from one turn "
        "to the next, draw from the key, and read no clock"
    )
    async with bench(bench_.subject) as other:
        assert first == await outputs(_Acting(other)), (
            "equal views and keys gave different outputs; draw from the key, and read no clock"
        )
    return len(first)


@on_bench
async def _agent_draws(bench: Bench) -> int:
    acting = _Acting(bench)
    views = acting.views()
    await acting.act(views[-1])  # imports and caches may draw once
    for view in views[-2:]:
        await check_draws("act()", lambda key, view=view: partial(acting.act, view, key))  # type: ignore[misc]
    return len(views[-2:])


@on_bench
async def _agent_is_pure(bench: Bench) -> int:
    acting = _Acting(bench)
    if not acting.seat.pure:
        return 0
    memo = acting.seat.memo or content_of
    compared = 0
    failed = Turn(1, "b", "x", status="failed", error="it failed")
    for view in acting.views():
        output = snapshot(await acting.act(view))
        observation = view.observation
        if observation is not None:
            observation = replace(observation, features=(), progress=0.3)
        # They differ only in what the default `memo` leaves out.
        alike = [
            view,
            replace(view, problem=replace(view.problem, id="another", category="another")),
            replace(view, agent="another", team=(Member("another"),)),
            replace(view, trajectory=view.trajectory.append(failed)),
            replace(view, observation=observation),
        ]
        for other in alike:
            if snapshot(memo(other)) != snapshot(memo(view)):
                continue
            compared += 1
            assert snapshot(await acting.act(other, Key(5 + compared))) == output, (
                "it is declared `pure`, and equal content gave different outputs: the engine "
                "would reuse the first for all; let the output depend only on the settings and "
                "memo(view), or remove `pure`"
            )
    return compared


@on_bench
async def _agent_is_quick(bench: Bench) -> int:
    acting = _Acting(bench)
    if not inspect.iscoroutinefunction(acting.agent.act):
        return 0  # it runs in a worker thread
    views = acting.views()
    for view in (views[0], views[-1]):
        await check_pace(
            "act()",
            partial(acting.act, view),
            "await (asyncio.sleep, asyncio.to_thread), or make act() a plain function, "
            "which runs in a worker thread",
        )
    return 2


@on_bench
async def _agent_believes_nobody(bench: Bench) -> int:
    acting = _Acting(bench)
    plain = [await acting.act(view) for view in acting.views(NEUTRAL)]
    tried = 0
    for claim in CLAIMS:
        for view, before in zip(acting.views(claim), plain, strict=True):
            output = await acting.act(view)
            ended = isinstance(output, Output) and output.final
            assert not ended or (isinstance(before, Output) and before.final), (
                f"it ends the episode because another agent says {claim!r}; look at the work "
                "(view.observation, or a check of your own), not at what agents say of it"
            )
            tried += 1
    return tried


# ---------------------------------------------------------------------------- models

_REQUEST = {"messages": [{"role": "user", "content": "say something"}]}


async def _complete(bench: Bench) -> Any:
    return await bench.tested.complete(_REQUEST, Key(1), bench.calls(Key(1)))


@on_bench
async def _model_answers(bench: Bench) -> int:
    try:
        with unchanged(_REQUEST, "complete() changed the request"), offline("complete()"):
            answer, again = await _complete(bench), await _complete(bench)
    except CallError:
        return 0  # its service cannot be reached here
    assert isinstance(answer.data.get("text"), str), "the answer's data has no text"
    assert snapshot(answer.data) == snapshot(again.data), (
        "equal requests and keys gave different answers; sample by the key"
    )
    return 1


@on_bench
async def _model_is_quick(bench: Bench) -> int:
    async def complete() -> None:
        with suppress(OrchestrionError):
            await _complete(bench)

    await check_pace("complete()", complete, "await, or use asyncio.to_thread")
    return 1


CHECKS: Mapping[str, Mapping[str, Callable[[Subject], int]]] = {
    "agent": {
        "acts on any view": _agent_acts,
        "acts alike for equal keys": _agent_repeats,
        "draws from its key alone": _agent_draws,
        "is as pure as it says": _agent_is_pure,
        "never blocks the event loop": _agent_is_quick,
        "believes nobody": _agent_believes_nobody,
        "loads what it saved": learning.keeps_state,
    },
    "model": {
        "answers": _model_answers,
        "never blocks the event loop": _model_is_quick,
        "loads what it saved": learning.keeps_state,
    },
    "task": {
        "has disjoint, repeatable splits": tasks.task_splits,
        "steps purely": tasks.task_steps,
        "verifies alike": tasks.task_verifies,
        "believes nobody": tasks.task_believes_nobody,
        "hides what is hidden": tasks.task_hides,
    },
    "reward": {
        "gives finite, repeatable rewards": rewards.reward_scores,
        "believes nobody": rewards.reward_believes_nobody,
        "loads what it saved": learning.keeps_state,
    },
    "policy": {
        "decides among what there is": policies.policy_decides,
        "decides alike alone and in a batch": policies.policy_is_pure,
        "draws from its keys alone": policies.policy_draws,
        "never blocks the event loop": policies.policy_is_quick,
        "loads what it saved": learning.keeps_state,
        "keeps what it learned": learning.policy_keeps_what_it_learned,
    },
    "trainer": {
        "trains alike for equal seeds": learning.trainer_trains,
        "draws from the session's key": learning.trainer_draws,
        "loads what it saved": learning.keeps_state,
        "goes on as before after a reload": learning.trainer_goes_on,
    },
    "executor": {
        "gives the same episodes": executors.executor_gives_the_same,
        "replaces a lost worker": executors.executor_replaces,
        "names an episode that kills workers": executors.executor_names_the_culprit,
    },
}
