"""What each kind of component promises, as checks on one that is opened on the kit's stage."""

from __future__ import annotations

import asyncio
import inspect
import io
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from attrs import evolve

from orchestrion._engine.activation import content_of
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion._engine.checks import booked
from orchestrion._engine.opening import Opened
from orchestrion._errors import CallError, OrchestrionError
from orchestrion._interfaces import Member, View
from orchestrion._keys import Key
from orchestrion._records import Output, Step, Trajectory, Turn
from orchestrion.testing._learning_contracts import (
    keeps_state,
    policy_decides,
    policy_draws,
    policy_is_pure,
    policy_is_quick,
    policy_keeps_what_it_learned,
    trainer_draws,
    trainer_goes_on,
    trainer_has_iterations,
    trainer_trains,
)
from orchestrion.testing._probes import Draws, check_pace, drawing, offline, snapshot
from orchestrion.testing._stage import opened
from orchestrion.testing._task_contracts import (
    CLAIMS,
    NEUTRAL,
    reward_believes_nobody,
    reward_scores,
    task_believes_nobody,
    task_hides,
    task_splits,
    task_steps,
    task_verifies,
)

if TYPE_CHECKING:
    from orchestrion.testing._kit import Subject

__all__ = ["METHODS", "of_kind"]

METHODS: Mapping[str, tuple[str, ...]] = {
    "agent": ("act",),
    "model": ("complete",),
    "task": ("problems", "verify"),
    "reward": ("score",),
    "policy": ("decide",),
    "trainer": ("iterate",),
}


def of_kind(kind: str) -> Mapping[str, Callable[[Subject], int]]:
    """The checks of a kind; a kind of a plugin's own has those for all kinds only."""
    return _KINDS.get(kind, {})


@contextmanager
def _typing() -> Iterator[None]:
    """Standard input on which somebody types the same line again and again."""
    before, sys.stdin = sys.stdin, io.StringIO("a line\n" * 1000)
    try:
        yield
    finally:
        sys.stdin = before


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
"""Errors that come from a mistake in a program rather than from work that cannot be done."""


@asynccontextmanager
async def _acting(subject: Subject) -> AsyncIterator[_Acting]:
    with _typing():
        async with opened(subject.config()) as parts:
            engine = parts.engine(CallPath())
            try:
                yield _Acting(subject.path, parts, engine)
            finally:
                engine.close()


class _Acting:
    """An agent that is open on the kit's stage."""

    def __init__(self, path: str, parts: Opened, engine: Any) -> None:
        self.parts, self.engine = parts, engine
        self.agent: Any = parts.runtimes[path]
        self.seat = engine.seats({"tested": self.agent}, {})["tested"]

    def views(self, said: str = "something was said") -> list[View]:
        """The first view of the task's problems, and one with another agent's turn before it."""
        task = self.parts.runtimes["task"]
        option = next(iter(getattr(self.agent, "options", ())), None)
        views = []
        for problem in list(task.problems("train"))[:2]:
            step = task.start(problem, Key(1)) if hasattr(task, "start") else Step()
            turn = Turn(0, "a", output=Output(said, data={"said": [said]}))
            for trajectory in (Trajectory(), Trajectory([turn])):
                view = View("tested", option, problem.public(), trajectory, step.observation)
                views.append(view)
        return views

    async def act(self, view: View, key: Key = Key(2)) -> Output | str:  # noqa: B008  immutable
        """The output, or the reason why there is none, in words."""
        handle = ActivationCalls(self.engine, key)
        try:
            output: Any = await self.seat.act(view, key, handle)
        except _SLIPS as error:
            raise AssertionError(
                f"act() raised {type(error).__name__}: {error}. An agent that cannot do the work "
                "says so by an error with a reason, e.g. ValueError('there is no draft yet'); this "
                f"one looks like a mistake (the view had {len(view.turns)} turns)"
            ) from error
        except Exception as error:
            if not str(error):
                raise AssertionError(
                    f"act() raised {type(error).__name__} without saying why"
                ) from error
            return f"{type(error).__name__}: {error}"
        try:
            return booked(output, handle.used)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"act() gave what no agent may give: {error}") from None


def _agent_acts(subject: Subject) -> int:
    async def check() -> int:
        async with _acting(subject) as acting:
            reasons = []
            views = acting.views()
            for view in views:
                shown = snapshot(view)
                with offline("act()"):
                    output = await acting.act(view)
                assert snapshot(view) == shown, (
                    "act() changed what it was shown, which other agents and episodes share; "
                    "copy it first (copy.deepcopy), or build something new"
                )
                reasons += [output] if isinstance(output, str) else []
            assert len(reasons) < len(views), (
                f"act() raised on every problem of the task around it: {reasons[-1]}. Where an "
                "agent needs a certain task, team or model, its Component names one: "
                "Component(..., around={'task': {'use': 'my-task'}})"
            )
            return len(views)

    return asyncio.run(check())


def _agent_repeats(subject: Subject) -> int:
    async def outputs() -> list[Any]:
        async with _acting(subject) as acting:
            views = acting.views()
            first = [snapshot(await acting.act(view)) for view in views]
            again = [snapshot(await acting.act(view)) for view in reversed(views)][::-1]
            assert first == again, (
                "the second time, equal views and keys gave different outputs; keep nothing from "
                "one turn to the next, draw from the key, and read no clock"
            )
            return first

    first, second = asyncio.run(outputs()), asyncio.run(outputs())
    assert first == second, (
        "equal views and keys gave different outputs; draw from the key, and read no clock"
    )
    return len(first)


def _agent_draws(subject: Subject) -> int:
    async def draws(acting: _Acting, view: View, key: Key) -> Draws:
        with drawing() as result:
            await acting.act(view, key)
        return result

    async def check() -> int:
        async with _acting(subject) as acting:
            views = acting.views()
            await acting.act(views[-1])  # imports and caches draw what they like
            for view in views[-2:]:
                first = await draws(acting, view, Key(3))
                first.check_own("act()")
                first.check_once("act()")
                first.check_apart(await draws(acting, view, Key(4)), "act()")
            return len(views[-2:])

    return asyncio.run(check())


def _agent_is_pure(subject: Subject) -> int:
    async def check() -> int:
        async with _acting(subject) as acting:
            if not acting.seat.pure:
                return 0
            memo = acting.seat.memo or content_of
            compared = 0
            for view in acting.views():
                output = snapshot(await acting.act(view))
                for other in (view, *_alike(view)):
                    if snapshot(memo(other)) != snapshot(memo(view)):
                        continue
                    compared += 1
                    assert snapshot(await acting.act(other, Key(5 + compared))) == output, (
                        "it says `pure`, and equal content gave different outputs: the engine "
                        "would reuse the first for all; let the output hang on nothing but the "
                        "settings and memo(view), or leave `pure` out"
                    )
            return compared

    return asyncio.run(check())


def _alike(view: View) -> list[View]:
    """Views that differ in what the reuse of results does not go by."""
    observation = view.observation
    failed = Turn(1, "b", "x", status="failed", error="it failed")
    return [
        evolve(view, problem=evolve(view.problem, id="another", category="another")),
        evolve(view, agent="another", team=(Member("another"),)),
        evolve(view, trajectory=view.trajectory.append(failed)),
        evolve(view, observation=observation and evolve(observation, features=(), progress=0.3)),
    ]


def _agent_is_quick(subject: Subject) -> int:
    async def check() -> int:
        async with _acting(subject) as acting:
            if not inspect.iscoroutinefunction(acting.agent.act):
                return 0  # it runs in a worker thread
            views = acting.views()
            for view in (views[0], views[-1]):
                await check_pace(
                    "act()",
                    lambda view=view: acting.act(view),  # type: ignore[misc]
                    "await (asyncio.sleep, asyncio.to_thread), or make act() a plain function, "
                    "which runs in a worker thread",
                )
            return 2

    return asyncio.run(check())


def _agent_believes_nobody(subject: Subject) -> int:
    async def check() -> int:
        async with _acting(subject) as acting:
            plain = [await acting.act(view) for view in acting.views(NEUTRAL)]
            tried = 0
            for claim in CLAIMS:
                for view, before in zip(acting.views(claim), plain, strict=True):
                    output = await acting.act(view)
                    ended = isinstance(output, Output) and output.final
                    assert not ended or (isinstance(before, Output) and before.final), (
                        f"it ends the episode because another agent says {claim!r}; look at the "
                        "work (view.observation, or a check of your own), not at what is said of it"
                    )
                    tried += 1
            return tried

    return asyncio.run(check())


def _agent_options(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            options = list(getattr(parts.runtimes[subject.path], "options", ()))
            assert all(isinstance(option, str) and option for option in options)
            assert len(set(options)) == len(options), f"options are repeated: {options}"
            again = list(getattr(parts.runtimes[subject.path], "options", ()))
            assert again == options, f"options change: {options}, then {again}"
            return len(options)

    return asyncio.run(check())


# ---------------------------------------------------------------------------- models


def _model_answers(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            engine = parts.engine(CallPath())
            request = {"messages": [{"role": "user", "content": "say something"}]}
            model = parts.runtimes[subject.path]
            shown = snapshot(request)

            async def complete() -> Any:
                calls = ActivationCalls(engine, Key(1))
                return await model.complete(request, Key(1), calls)

            try:
                with offline("complete()"):
                    answer, again = await complete(), await complete()
            except CallError:
                return 0  # a service that cannot be asked here must be a fault, never an answer
            finally:
                engine.close()
            assert isinstance(answer.data.get("text"), str), "the answer's data has no text"
            assert snapshot(request) == shown, "complete() changed the request"
            assert snapshot(answer.data) == snapshot(again.data), (
                "equal requests and keys gave different answers; sample by the key"
            )
            return 1

    return asyncio.run(check())


def _model_is_quick(subject: Subject) -> int:
    async def check() -> int:
        async with opened(subject.config()) as parts:
            engine = parts.engine(CallPath())
            request = {"messages": [{"role": "user", "content": "say something"}]}
            model = parts.runtimes[subject.path]

            async def complete() -> Any:
                try:
                    return await model.complete(request, Key(1), ActivationCalls(engine, Key(1)))
                except OrchestrionError:
                    return None

            try:
                await check_pace("complete()", complete, "await, or use asyncio.to_thread")
            finally:
                engine.close()
            return 1

    return asyncio.run(check())


_KINDS: Mapping[str, Mapping[str, Callable[[Subject], int]]] = {
    "agent": {
        "acts on any view": _agent_acts,
        "acts alike for equal keys": _agent_repeats,
        "draws from its key alone": _agent_draws,
        "is as pure as it says": _agent_is_pure,
        "never blocks the event loop": _agent_is_quick,
        "believes nobody": _agent_believes_nobody,
        "has distinct options": _agent_options,
        "loads what it saved": keeps_state,
    },
    "model": {
        "answers": _model_answers,
        "never blocks the event loop": _model_is_quick,
        "loads what it saved": keeps_state,
    },
    "task": {
        "has disjoint, repeatable splits": task_splits,
        "steps purely": task_steps,
        "verifies alike": task_verifies,
        "believes nobody": task_believes_nobody,
        "hides what is hidden": task_hides,
    },
    "reward": {
        "gives finite, repeatable rewards": reward_scores,
        "believes nobody": reward_believes_nobody,
        "loads what it saved": keeps_state,
    },
    "policy": {
        "decides among what there is": policy_decides,
        "decides alike alone and in a batch": policy_is_pure,
        "draws from its keys alone": policy_draws,
        "never blocks the event loop": policy_is_quick,
        "loads what it saved": keeps_state,
        "keeps what it learned": policy_keeps_what_it_learned,
    },
    "trainer": {
        "has iterations": trainer_has_iterations,
        "trains alike for equal seeds": trainer_trains,
        "draws from the session's key": trainer_draws,
        "loads what it saved": keeps_state,
        "goes on as before after a reload": trainer_goes_on,
    },
}
