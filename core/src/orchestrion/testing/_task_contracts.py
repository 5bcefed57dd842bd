"""Check what tasks promise; see `contracts`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any, get_args

import msgspec

from orchestrion._engine.checks import judged
from orchestrion._keys import Key
from orchestrion._records import (
    Episode,
    Output,
    Problem,
    Scores,
    Split,
    Step,
    Trajectory,
    Turn,
)
from orchestrion.testing._stage import CLAIMS, NEUTRAL, SUCCESS, Bench, bench, on_bench
from orchestrion.testing._watch import (
    check_draws,
    check_pace,
    drawing,
    offline,
    snapshot,
    unchanged,
)

# ---------------------------------------------------------------------------- splits


def _splits(task: Any) -> dict[str, list[Problem]]:
    return {split: list(task.problems(split)) for split in get_args(Split)}


def _first_problems(task: Any, count: int) -> list[Problem]:
    """Return the first problems of each split."""
    return [problem for problems in _splits(task).values() for problem in problems[:count]]


@on_bench
async def task_splits(bench_: Bench) -> int:
    task = bench_.tested
    with offline("problems()"):
        splits = _splits(task)
    assert any(splits.values()), "no split has a problem"
    ids = [problem.id for problems in splits.values() for problem in problems]
    assert len(set(ids)) == len(ids), "a problem's id occurs twice, or in two splits"
    _check_disjoint(splits)
    assert _splits(task) == splits, "problems() returns other problems the second time"
    async with bench(bench_.subject) as other:
        assert _splits(other.tested) == splits, (
            "problems() returns other problems after another open(); draw from OpenContext.key "
            "or from a seed in the settings"
        )
    for problem in _first_problems(task, 20):
        try:
            msgspec.json.encode((problem.data, problem.hidden))
        except (TypeError, ValueError, RecursionError) as error:
            raise AssertionError(
                f"data and hidden of problem {problem.id!r} must be JSON: {error}"
            ) from None
    return len(ids)


def _check_disjoint(splits: Mapping[str, Sequence[Problem]]) -> None:
    """Fail if two splits have the same problem under two ids.

    Within one split the same work may be repeated: the environment's draws may differ.
    """
    places_of: dict[Any, list[tuple[str, str]]] = defaultdict(list)
    for split, problems in splits.items():
        for problem in problems:
            text = " ".join(problem.text.split()).casefold()
            if text or problem.data:
                work = (text, snapshot(problem.data), snapshot(problem.hidden))
                places_of[work].append((split, problem.id))
    for places in places_of.values():
        (first_split, first), *others = places
        if others and len({split for split, _ in places}) == len(places):
            split, other = others[0]
            raise AssertionError(
                f"problem {other!r} of {split!r} is the same as {first!r} of {first_split!r} but "
                "for its id; problems for training must not be problems for the test"
            )


# ---------------------------------------------------------------------------- environment

_TURNS = (
    Turn(0, "a", output=Output("a turn")),
    Turn(1, "b", "x", Output("another turn, with data", data={"value": [1, 2]})),
    Turn(2, "b", "y", status="failed", error="it failed"),
    Turn(3, "a", output=Output("a longer turn\n" * 20)),
    Turn(4, "c", output=Output("", final=True)),
)


def _start(task: Any, problem: Problem, key: Key = Key(1)) -> Step:  # noqa: B008  immutable
    return task.start(problem, key) if hasattr(task, "start") else Step()


def _follow(task: Any, problem: Problem) -> list[Step]:
    """Return the steps of an episode of a few turns; fail if a step changes the state before it."""
    steps = [_start(task, problem)]
    assert isinstance(steps[0], Step), "start() must return a Step"
    for turn in _TURNS if hasattr(task, "step") else ():
        before = steps[-1].state
        message = (
            "step() changes the state it is given; forks share it, so build a new one "
            "(a tuple, attrs.evolve, a copy)"
        )
        with unchanged(before, message):
            steps.append(task.step(before, turn, Key(2).child(turn.index)))
            assert isinstance(steps[-1], Step), "step() must return a Step"
        if steps[-1].done:
            break
    return steps


@on_bench
async def task_steps(bench_: Bench) -> int:
    task = bench_.tested
    problems = _first_problems(task, 3)
    with offline("start() or step()"):
        first = [snapshot(_follow(task, problem)) for problem in problems]
    again = [snapshot(_follow(task, problem)) for problem in reversed(problems)][::-1]
    async with bench(bench_.subject) as other:
        fresh = [snapshot(_follow(other.tested, problem)) for problem in problems]
    assert first == again == fresh, (
        "start() or step() is not pure: equal problem, state, turn and key gave another Step; "
        "keep everything in Step.state, and draw from the key"
    )
    _check_observations(task, problems)
    problem = problems[0]
    advice = "prepare in open(), or in problems(), what takes long"
    await check_pace("start()", lambda: _start(task, problem), advice)
    await check_draws("start()", lambda key: partial(_start, task, problem, key))
    if hasattr(task, "step"):
        state = _start(task, problem).state
        await check_pace("step()", lambda: task.step(state, _TURNS[0], Key(2)), advice)
        await check_draws("step()", partial(_first_step, task, problem))
    return len(problems)


def _first_step(task: Any, problem: Problem, key: Key) -> partial[Any]:
    state = _start(task, problem, key).state
    return partial(task.step, state, _TURNS[0], key.child("step"))


def _check_observations(task: Any, problems: Sequence[Problem]) -> None:
    steps = [step for problem in problems for step in _follow(task, problem)]
    steps += [_start(task, problem) for problem in _first_problems(task, 20)]
    observations = [step.observation for step in steps if step.observation is not None]
    widths = {len(observation.features) for observation in observations}
    assert len(widths) <= 1, (
        f"features change their length ({sorted(widths)}) between problems or turns; a policy's "
        "inputs always have the same width: pad them, or count instead of listing"
    )
    hints = {len(hint) for observation in observations for hint in observation.hints.values()}
    assert len(hints) <= 1, f"hints change their length ({sorted(hints)}); give all choices as many"
    for observation in observations:
        numbers = [*observation.features, *chain(*observation.hints.values())]
        assert all(isfinite(x) for x in numbers), f"a feature or hint is not finite: {numbers}"
        assert observation.progress is None or 0 <= observation.progress <= 1, (
            f"progress is {observation.progress}; it must be from 0 to 1, or None"
        )


# ---------------------------------------------------------------------------- verifier


async def _verify(
    bench_: Bench, problem: Problem, output: Output | None = None, final: bool = True
) -> Scores:
    """Verify an episode of one turn with this output, or of no turn."""
    task = bench_.tested
    step, trajectory = _start(task, problem), Trajectory()
    if output is not None:
        turn = Turn(0, "a", output=output)
        trajectory = trajectory.append(turn)
        if hasattr(task, "step"):
            step = task.step(step.state, turn, Key(2))
    scores: Any = await task.verify(
        problem, trajectory, step.state, final=final, calls=bench_.calls(Key(3))
    )
    try:
        judged(Episode("kit", problem.public(), trajectory), scores)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"verify() returned invalid scores: {error}") from None
    return scores  # type: ignore[no-any-return]


@on_bench
async def task_verifies(bench_: Bench) -> int:
    """Check that equal results get equal scores, in any order, and that nothing is changed."""
    problems = list(bench_.tested.problems("train"))[:2]

    async def scores_of(bench_: Bench, problem: Problem) -> list[Any]:
        output = Output(f"an answer to {problem.id}")
        with unchanged(problem, "verify() changes the problem"):
            return [
                snapshot(await _verify(bench_, problem, output, final)) for final in (True, False)
            ]

    with offline("verify()"):
        first = [await scores_of(bench_, problem) for problem in problems]
    with drawing() as draws:
        again = [await scores_of(bench_, problem) for problem in reversed(problems)][::-1]
    async with bench(bench_.subject) as other:
        fresh = [await scores_of(other, problem) for problem in problems]
    assert first == again == fresh, (
        "verify() gave equal results different scores; it must depend on the result alone, and "
        "draw no random numbers"
    )
    draws.check_own("verify()")
    await check_pace(
        "verify()",
        lambda: _verify(bench_, problems[0], Output("an answer")),
        "await, or use asyncio.to_thread",
    )
    return 2 * len(first)


@on_bench
async def task_believes_nobody(bench_: Bench) -> int:
    tried = 0
    for n, problem in enumerate(list(bench_.tested.problems("train"))[:3]):
        nothing = await _verify(bench_, problem)
        neutral = await _verify(bench_, problem, Output(NEUTRAL))
        assert not nothing.success, _believes(problem, "no turn at all")
        usual = max(nothing.value, neutral.value)
        leaves = [leaf for _, leaf in _leaves(problem.hidden) if leaf is not None]
        hidden = {str(leaf).casefold() for leaf in leaves} - {""}
        for text in CLAIMS if n == 0 else CLAIMS[:4]:
            if any(word in text.casefold() for word in hidden):
                continue  # it holds what the verifier looks for
            claim = Output(text, data=SUCCESS, final=True, metadata=SUCCESS)
            scores = await _verify(bench_, problem, claim)
            believed = scores.success or scores.value >= usual + 0.5
            assert not believed, _believes(problem, repr(text))
            tried += 1
    return tried


def _believes(problem: Problem, claim: str) -> str:
    return (
        f"problem {problem.id} counts as solved after {claim} from an agent that did no work; "
        "verify the result, not what agents say of it"
    )


# ---------------------------------------------------------------------------- hidden


@on_bench
async def task_hides(bench_: Bench) -> int:
    task = bench_.tested
    problems = [problem for problem in _first_problems(task, 30) if problem.hidden is not None][:60]
    if not problems:
        return 0
    public = [_public_leaves(problem, _start(task, problem)) for problem in problems]
    for path, secrets in _columns([dict(_leaves(problem.hidden)) for problem in problems]):
        if not _differ_enough(secrets):
            continue
        for place, values in _columns(public):
            assert values != secrets, _leak(f"problem.{place} is always", path)
            quoted = all(map(partial(_quotes, place), values, secrets))
            assert not quoted, _leak(f"problem.{place} always quotes", path)
    return len(problems)


def _leak(what: str, path: str) -> str:
    return (
        f"{what} problem.hidden{path}, so that agents and policies can read what only the verifier "
        "may know; remove it from the public part, or from `hidden` if it is no secret"
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in JSON data that hold no others, each with its place."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}[{i}]")
    else:
        yield path, value


def _public_leaves(problem: Problem, step: Step) -> dict[str, Any]:
    leaves = {f"data{path}": leaf for path, leaf in _leaves(problem.data)}
    leaves |= {"id": problem.id, "category": problem.category, "text": problem.text}
    observation = step.observation
    if observation is not None:
        public = {"data": observation.data, "features": observation.features}
        for name, value in public.items():
            leaves |= {f"{name} at the start{path}": leaf for path, leaf in _leaves(value)}
        leaves["text at the start"] = observation.text
    return leaves


def _columns(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the places that every row has, with their values as text."""
    columns: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for path, leaf in row.items():
            columns[path].append(_text(leaf))
    yield from ((path, values) for path, values in columns.items() if len(values) == len(rows))


def _text(leaf: Any) -> str:
    """Return a leaf as text; a number and its digits give the same text."""
    text = "" if leaf is None else " ".join(str(leaf).split()).casefold()
    return text.removesuffix(".0")


def _differ_enough(secrets: Sequence[str]) -> bool:
    """Return whether values differ so much that others do not equal all of them by chance."""
    kinds = len(set(secrets))
    long = all(len(value) >= 4 for value in secrets)
    return kinds >= 3 or (kinds == 2 and len(secrets) >= 8) or (kinds == len(secrets) and long)


_ANNOUNCED = re.compile(r"(answer|solution|expected|label|gold|target|hidden|secret)\W*(is\W*)?$")


def _quotes(place: str, value: str, secret: str) -> bool:
    """Return whether a text announces and holds a secret as a word; an id need not announce it."""
    matches = list(re.finditer(rf"(?<!\w){re.escape(secret)}(?!\w)", value)) if secret else []
    if not matches:
        return False
    return place == "id" or _ANNOUNCED.search(value[: matches[-1].start()]) is not None
