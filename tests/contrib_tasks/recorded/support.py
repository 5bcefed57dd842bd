"""Small tables, teams and slow but obvious reference values for the tests of recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from hypothesis import strategies as st
from orchestrion_recorded.recording import Recording
from orchestrion_recorded.table import RecordedAnswer, Row, Table, same
from orchestrion_recorded.task import RecordedTask

from orchestrion import Key, Member, Output, Scores, SplitShares, Step, Trajectory, Turn, Usage
from orchestrion._engine.calls import ActivationCalls, CallPath
from orchestrion._engine.opening import open_components
from orchestrion._session import EngineSession
from orchestrion.config import Config, from_data
from orchestrion.testing import Fixed, engine_for

MODELS = ("cheap", "middle", "dear")
PRICES = {"cheap": 1.0, "middle": 2.0, "dear": 8.0}
ALL_TRAIN = SplitShares(1.0, 0.0, 0.0)


def row(name: str, right: str, answers: Sequence[str], group: str = "g", options: int = 4) -> Row:
    """A question; "-" is no answer, "?" no record."""
    told = {
        model: RecordedAnswer(None if answer == "-" else answer)
        for model, answer in zip(MODELS, answers, strict=True)
        if answer != "?"
    }
    return Row(name, group, right, options, told)


def table(*rows: Row) -> Table:
    """A table of three models with prices."""
    return Table("a test", MODELS, rows, PRICES)


def opened(
    of: Table, settings: RecordedTask | None = None, models: Sequence[str] = MODELS
) -> Recording:
    """A task over a table, all of it for training unless set, for a team with one agent `ask`."""
    team = [Member("ask", tuple(models))]
    return Recording(settings or RecordedTask(split=ALL_TRAIN), of, team)


def ask(task: Recording, step: Step, model: str, cost: float | None = None) -> Step:
    """The environment after a model was asked, and paid for unless `cost` says otherwise."""
    price = step.observation.data["offers"][model]["cost"]  # type: ignore[union-attr]
    usage = Usage(1, cost=price if cost is None else cost)
    return task.step(step.state, Turn(0, "ask", model, Output("", {"asks": model}, usage)), Key(1))


def after(task: Recording, name: str, models: Iterable[str]) -> Step:
    """The environment of a question after these models were asked."""
    step = task.start(task.problem_from(name), Key(1))
    for model in models:
        step = ask(task, step, model)
    return step


def judged(task: Recording, name: str, step: Step) -> Scores:
    """The verifier's judgement."""

    async def verify() -> Scores:
        engine = engine_for({}, Fixed(()), task)
        calls = ActivationCalls(engine, Key(1))
        problem = task.problem_from(name)
        return await task.verify(problem, Trajectory(), step.state, final=True, calls=calls)

    return asyncio.run(verify())


def winner(answers: Sequence[str | None], weights: Sequence[int], vote: str) -> str | None:
    """The vote by its definition, on compared forms."""
    forms = sorted({same(answer) for answer in answers if answer is not None})
    if not forms:
        return None
    backers: Mapping[str, list[int]] = {
        form: [w for a, w in zip(answers, weights, strict=True) if a and same(a) == form]
        for form in forms
    }
    sums = {form: (len(backers[form]), sum(backers[form])) for form in forms}
    if vote == "weighted":
        sums = {form: (weight, count) for form, (count, weight) in sums.items()}
    best = max(sums.values())
    return next(form for form in forms if sums[form] == best)


@st.composite
def tables(draw: st.DrawFn, most: int = 12) -> Table:
    """Tables of three models with few answers, so that ties and silence are frequent."""
    cell = st.sampled_from(["A", "B", "C", "-", "?"])
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from("ABC"), st.tuples(cell, cell, cell), st.sampled_from(["g", "h"])
            ),
            min_size=1,
            max_size=most,
        )
    )
    return table(*(row(f"q{i}", right, told, group) for i, (right, told, group) in enumerate(rows)))


GENERATED = ("m1", "m2", "m3", "m4")


def config(policy: Mapping[str, Any], trainer: str, weight: float, /, **sections: Any) -> Config:
    """A run on a generated table of four models."""
    data = {
        "seed": 1,
        "task": {"use": "recorded", "generated": {"questions": 120, "models": 4, "groups": 2}},
        "agents": {"ask": {"use": "recorded", "models": list(GENERATED)}},
        "policy": dict(policy),
        "reward": {"use": "outcome-minus-cost", "cost_weight": weight},
        "trainer": {"use": trainer, "task": "task", "reward": "reward"},
    }
    return from_data(data | sections)


def with_run(of: Config, work: Callable[[dict[str, Any], Any], Awaitable[Any]]) -> Any:
    """What comes of some work with the runtimes of a config and a way to open sessions."""

    async def go() -> Any:
        async with AsyncExitStack() as stack:
            run = await open_components(of, stack, Key(1))
            engine = run.engine(CallPath())

            def session(test: bool = True) -> EngineSession:
                return EngineSession(engine, "0/0", Key(1), Key(2), test=test)

            return await work(run.runtimes, session)

    return asyncio.run(go())


def trained(of: Config, split: Any = "test") -> tuple[dict[str, Any], Any, Any]:
    """Runtimes, metrics of one iteration of the trainer, and then episodes on a split."""

    async def work(runtimes: dict[str, Any], session: Any) -> Any:
        metrics = await runtimes["trainer"].iterate(0, session(test=False))
        return runtimes, metrics, await session().evaluate(split)

    return with_run(of, work)  # type: ignore[no-any-return]
