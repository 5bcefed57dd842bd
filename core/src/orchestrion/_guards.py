"""Plugins' code as the run calls it: whatever it raises or returns, the message names its place."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, get_args

from orchestrion._errors import OrchestrionError, RunError, UsageError
from orchestrion._interfaces import Metrics, Stateful
from orchestrion._interrupts import from_outside
from orchestrion._records import Episode, Problem, Saved, Split, Status
from orchestrion._secrets import encodes, hidden

if TYPE_CHECKING:
    from orchestrion._config import Config
    from orchestrion._engine.opening import Opened

__all__ = [
    "calling",
    "check_judged",
    "check_problems",
    "check_turns",
    "checked_problem",
    "described",
    "iterations_of",
    "load_states",
    "merged_metrics",
    "place_of",
    "problems_of",
    "save_states",
]

_LONGEST = 500
_LOOKED_AT = 100_000
"""Problems of a split that are checked: a task may make them as they are asked for."""


@contextmanager
def calling(place: str, method: str) -> Iterator[None]:
    """Errors of a component's method that are not ours become a `RunError` that names it.

    Args:
        place: where it stands in the config, e.g. "trainer (reinforce)".
        method: what is called.
    """
    try:
        yield
    except BaseException as error:
        cause = _cause(error)
        if isinstance(cause, OrchestrionError):
            if cause is error:
                raise
            raise cause from error
        if from_outside(cause):
            raise
        raise RunError(f"{place}: {method} raised {described(cause)}") from error


def _cause(error: BaseException) -> BaseException:
    """The error that says most about a group of errors: one of ours if there is one."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    causes = [_cause(one) for one in error.exceptions]
    return next((one for one in causes if isinstance(one, OrchestrionError)), causes[0])


def described(error: BaseException) -> str:
    """An exception in one line."""
    try:
        text = hidden(" ".join(str(error).split()))[:_LONGEST]
    except Exception:  # an exception may not even have words
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place_of(config: Config, path: str) -> str:
    """A component as messages name it: its config path, what it uses, and who supplies that."""
    entry = config.components[path]
    return f"{path} ({entry.use} of {entry.found.plugin.origin})"


# ------------------------------------------------------------------------------- trainers


def iterations_of(trainer: Any, place: str) -> int:
    """How many iterations a trainer wants.

    Raises:
        RunError: it cannot tell, or it is no count.
    """
    with calling(place, "iterations"):
        count = trainer.iterations
    if type(count) is not int or count < 0:
        raise RunError(f"{place}: iterations must be a count, not {count!r:.80}")
    return count


def merged_metrics(own: Metrics, reported: Any, place: str) -> dict[str, float]:
    """An iteration's metrics: core's own, and those of its trainer with other names.

    Raises:
        RunError: the trainer reports something else than finite numbers by name.
    """
    if not isinstance(reported, Mapping):
        kind = type(reported).__name__
        raise RunError(f"{place}: iterate returned a {kind}, not metrics: a number for each name")
    return {**{name: _number(name, value, place) for name, value in reported.items()}, **own}


def _number(name: Any, value: Any, place: str) -> float:
    # Half of a surrogate pair is not printable either.
    if not isinstance(name, str) or not name.isprintable():
        raise RunError(f"{place}: a metric's name must be printable text, not {name!r:.80}")
    try:
        number = float("nan") if isinstance(value, (str, bytes)) else float(value)
    except Exception:
        number = math.nan
    if not math.isfinite(number):
        raise RunError(f"{place}: metric {name!r} must be a finite number, not {value!r:.80}")
    return value if type(value) is int and abs(value) < 1 << 53 else number


# ------------------------------------------------------------------------------- episodes


def check_judged(episodes: Sequence[Episode], where: str) -> None:
    """Refuse episodes of which none could be judged: their means would be 0, and mean nothing.

    Raises:
        RunError: every verification, or every reward, failed; says why.
    """
    unverified = [one.error for one in episodes if one.scores is None]
    unrewarded = [
        one.error
        for one in episodes
        if one.error and one.reward is None and one.status is not Status.FAILED
    ]
    for what, errors in (("verification", unverified), ("reward", unrewarded)):
        if errors and len(errors) == len(episodes):
            (reason, count), *_ = Counter(errors).most_common(1)
            raise RunError(
                f"every {what} of {where} failed, {count} of {len(errors)} with "
                f"{reason:.{_LONGEST}}"
            )


def check_turns(episodes: Sequence[Episode], where: str, least: int) -> None:
    """Refuse `least` turns or more of which every single one failed.

    Raises:
        RunError: says why most of them did.
    """
    turns = sum(len(episode.trajectory) for episode in episodes)
    errors = [turn for one in episodes for turn in one.turns if turn.status == "failed"]
    if turns < max(least, 1) or len(errors) < turns:
        return
    reasons = Counter(f"{turn.agent}: {turn.error}" for turn in errors)
    (reason, count), *_ = reasons.most_common(1)
    raise RunError(
        f"all {turns} turns of {where} failed, {count} of them with {reason:.{_LONGEST}}"
    )


# ------------------------------------------------------------------------------- learned state


def save_states(opened: Opened) -> dict[str, Saved]:
    """The learned state of everything that has one, by config path.

    What several paths stand for is saved once, by the first.

    Raises:
        RunError: a component cannot save, or saves something else than `Saved`.
    """
    states: dict[str, Saved] = {}
    known: set[int] = set()
    for path, runtime in opened.runtimes.items():
        if isinstance(runtime, Stateful) and id(runtime) not in known:
            known.add(id(runtime))
            states[path] = _saved(runtime, place_of(opened.config, path))
    return states


def _saved(runtime: Stateful, place: str) -> Saved:
    with calling(place, "save"):
        state: Any = runtime.save()
    if not isinstance(state, Saved):
        raise RunError(f"{place}: save returned a {type(state).__name__}, not a Saved")
    return state


def load_states(opened: Opened, states: Mapping[str, Saved]) -> None:
    """Hand saved state to the components it came from.

    Raises:
        RunError: a component cannot load it.
    """
    for path, state in states.items():
        runtime = opened.runtimes.get(path)
        if isinstance(runtime, Stateful):
            with calling(place_of(opened.config, path), "load"):
                runtime.load(state)


# ------------------------------------------------------------------------------- problems


def problems_of(task: Any, split: Split, place: str) -> Sequence[Problem]:
    """A split of a task.

    Raises:
        RunError: the task raised, or gave something else than a sequence.
    """
    with calling(place, f"problems({split!r})"):
        problems: Any = task.problems(split)
        try:
            len(problems)
        except TypeError:
            kind = type(problems).__name__
            raise RunError(
                f"{place}: problems({split!r}) must return a sequence, not a {kind}"
            ) from None
    return problems  # type: ignore[no-any-return]


def check_problems(task: Any, used: Sequence[Split], place: str) -> None:
    """Hold a task's problems to their contract, once.

    Args:
        task: opened.
        used: splits that must not be empty.
        place: of the task in the config.

    Raises:
        UsageError: a split that is used has no problem.
        RunError: something is no problem, an id is no text, or stands for two problems.
    """
    seen: dict[str, str] = {}
    for split in get_args(Split):
        problems = problems_of(task, split, place)
        if split in used and not len(problems):
            raise UsageError(f"{place}: its split {split!r} has no problems, and it is used here")
        with calling(place, f"problems({split!r})"):
            for problem in islice(problems, _LOOKED_AT):
                _check_problem(problem, split, seen, place)


def _check_problem(problem: Any, split: str, seen: dict[str, str], place: str) -> None:
    method = f"problems({split!r})"
    name = checked_problem(problem, place, method).id
    if name in seen:
        where = f"twice in {split!r}" if seen[name] == split else f"in {seen[name]!r} and {split!r}"
        raise RunError(f"{place}: problem {name!r} is {where}; ids are unique, splits disjoint")
    seen[name] = split


def checked_problem(problem: Any, place: str, method: str) -> Problem:
    """A problem that a task made.

    Raises:
        RunError: it is none, or its id is no text.
    """
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise RunError(f"{place}: {method} gave a {kind}, which is not a Problem")
    name: Any = problem.id
    if not isinstance(name, str) or not name or not encodes(name):
        raise RunError(f"{place}: {method}: an id must be a text, not {name!r:.80}")
    return problem
