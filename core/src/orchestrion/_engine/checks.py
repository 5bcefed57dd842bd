"""Check what plugin code returned, once, where it comes in.

The first half is for the engine: decisions, steps, outputs, scores, rewards. The second half is
for the run: problems, a trainer's iterations and metrics, and whether episodes mean anything.
Calling plugin code safely is the other half of the job, see `orchestrion._guards`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, get_args

import msgspec

from orchestrion._errors import RunError, UsageError
from orchestrion._guards import calling, raise_named
from orchestrion._interfaces import Metrics, Task
from orchestrion._keys import Key
from orchestrion._records import (
    NO_USAGE,
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    Reward,
    Scores,
    Split,
    Status,
    Step,
    Trajectory,
    Turn,
    Usage,
    replace,
)
from orchestrion._secrets import encodes

_NUMBERS = (int, float)
_LARGEST = 1e100
"""Above every amount that means something, and small enough for sums never to overflow."""
_COUNTS = 2**53
"""Above every count: the sum of a thousand still fits into a database."""
_AMOUNT = f"it must be a finite number, at most {_LARGEST:g}"
_REASON = 500
"""Characters of an episode's error that stand in the message of another one."""
_CHECKED_PROBLEMS = 100_000
"""Problems of a split that are checked: a task may generate endless ones on demand."""


# ------------------------------------------------------------------------------- the engine


def check_decision(decision: Any, place: str) -> None:
    """Raise `RunError` unless what a policy returned is a valid decision."""
    kind: Any = type(decision)
    if (
        kind is Decision
        and type(decision.stop) is bool
        and decision.wait in ("all", "each")
        and type(decision.start) is tuple
        and type(decision.error) is str
        and (decision.chances is None or _are_chances(decision.chances))
    ):
        for start in decision.start:
            if type(start) is not Activation or not _is_timeout(start.timeout):
                break
        else:
            return
    raise RunError(
        f"{place}: decide() must return Decisions: start a tuple of Activations, stop true or "
        "false, wait 'all' or 'each', error a text, chances None or floats by name; an "
        f"Activation's timeout None or more than 0 s; it returned {decision!r:.200}"
    )


def _are_chances(chances: Any) -> bool:
    return isinstance(chances, Mapping) and all(
        type(name) is str and type(chance) is float for name, chance in chances.items()
    )


def _is_timeout(timeout: Any) -> bool:
    return timeout is None or (type(timeout) in _NUMBERS and 0 < timeout < math.inf)


def first_step(task: Any, problem: Problem, key: Key, place: str) -> Step:
    """Return the environment at the beginning of an episode; `key` is the episode's."""
    if not hasattr(task, "start"):
        return Step()
    return _step(place, "start", task.start, problem, key.child("start"))


def next_step(task: Any, state: Any, turn: Turn, key: Key, place: str) -> Step:
    """Return the environment after a turn; `key` is the episode's."""
    return _step(place, "step", task.step, state, turn, key.child("step", turn.index))


def has_steps(task: Any) -> bool:
    """Return whether a task has an environment that follows the turns."""
    return getattr(type(task), "step", Task.step) is not Task.step


def _step(place: str, name: str, method: Callable[..., Any], *arguments: Any) -> Step:
    """Return what a method of the task returns, checked."""
    try:
        step: Any = method(*arguments)
    except BaseException as error:
        raise_named(place, f"{name}()", error)
    kind: Any = type(step)
    if (
        kind is not Step
        or type(step.done) is not bool
        or (step.observation is not None and type(step.observation) is not Observation)
    ):
        raise RunError(
            f"{place}: {name}() must return a Step: observation an Observation or None, done "
            f"true or false; it returned {step!r:.200}"
        )
    checked: Step = step
    return checked


def booked(output: Output, used: Usage, made: Sequence[str] = ()) -> Output:
    """Check an agent's output; return it with the usage and the names of the calls it made."""
    if type(output) is not Output:
        raise TypeError(f"act() returned {type(output).__name__}, not an Output")
    if type(output.content) is not str:
        raise TypeError(f"Output.content is {type(output.content).__name__}, not text")
    if output.usage is not NO_USAGE:
        check_usage(output.usage)
    if output.data is not None or output.metadata or type(output.final) is not bool:
        _check_rest(output)
    if used is NO_USAGE and not made:
        return output
    return replace(output, usage=output.usage + used, calls=tuple(made) or output.calls)


def _check_rest(output: Output) -> None:
    if type(output.final) is not bool:
        raise TypeError(f"Output.final is {type(output.final).__name__}, not true or false")
    try:
        msgspec.json.encode((output.data, output.metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"Output.data and metadata must be JSON: {error}") from None


def check_usage(usage: Usage) -> None:
    """Raise TypeError or ValueError unless a usage has counts and finite amounts, none negative."""
    if type(usage) is not Usage:
        raise TypeError(f"Output.usage is {type(usage).__name__}, not a Usage")
    # One expression, since every turn pays for it; which part is wrong is found out afterwards.
    if not (
        type(usage.calls) is type(usage.input_tokens) is type(usage.output_tokens) is int
        and type(usage.usd) in _NUMBERS
        and type(usage.cost) in _NUMBERS
        and 0 <= usage.calls < _COUNTS
        and 0 <= usage.input_tokens < _COUNTS
        and 0 <= usage.output_tokens < _COUNTS
        and 0 <= usage.usd < _LARGEST
        and 0 <= usage.cost < _LARGEST
    ):
        _refuse_usage(usage)


def check_paid(usage: Usage) -> None:
    """Check the usage of a call like `check_usage`; its price may be unknown (NaN)."""
    check_usage(replace(usage, usd=0.0) if usage.usd != usage.usd else usage)


def _refuse_usage(usage: Usage) -> None:
    for name in ("calls", "input_tokens", "output_tokens"):
        value = getattr(usage, name)
        if type(value) is not int or not 0 <= value < _COUNTS:
            raise ValueError(f"Usage.{name} is {value!r}, not a count")
    for name in ("usd", "cost"):
        value = getattr(usage, name)
        if type(value) not in _NUMBERS or not 0 <= value < _LARGEST:
            raise ValueError(f"Usage.{name} is {value!r}; it must be from 0 to {_LARGEST:g}")


def judged(
    episode: Episode, scores: Scores, reward: Reward | None = None, team: Collection[str] = ()
) -> Episode:
    """Check a judgement; return the episode with it.

    Scores are checked before there is a reward; `team` has the names that `Reward.agents` may have.
    """
    if reward is None:
        _check_scores(scores)
    else:
        _check_reward(reward, len(episode.trajectory), team)
    return replace(episode, scores=scores, reward=reward)


def _check_scores(scores: Scores) -> None:
    if type(scores) is not Scores:
        raise TypeError(f"verify() returned {type(scores).__name__}, not Scores")
    if type(scores.value) not in (int, float) or not 0 <= scores.value <= 1:
        raise ValueError(f"Scores.value is {scores.value!r}; it must be from 0 to 1")
    if type(scores.success) is not bool:
        raise TypeError(f"Scores.success is {scores.success!r}, not true or false")
    _check_numbers("Scores.parts", scores.parts.items())
    if scores.checks and any(
        type(text) is not str for pair in scores.checks.items() for text in pair
    ):
        raise TypeError("Scores.checks has something that is not text")


def _check_reward(reward: Reward, turns: int, team: Collection[str]) -> None:
    if type(reward) is not Reward:
        raise TypeError(f"score() returned {type(reward).__name__}, not a Reward or None")
    if type(reward.total) not in _NUMBERS or not abs(reward.total) < _LARGEST:
        raise ValueError(f"Reward.total is {reward.total!r}; {_AMOUNT}")
    if reward.turns is not None:
        if len(reward.turns) != turns:
            raise ValueError(f"Reward.turns has {len(reward.turns)} numbers for {turns} turns")
        _check_numbers("Reward.turns", zip(map(str, range(turns)), reward.turns, strict=True))
    if reward.agents is not None:
        _check_numbers("Reward.agents", reward.agents.items())
        for name in reward.agents:
            if name not in team:
                raise ValueError(
                    f"Reward.agents has {name!r}, which is not in the team ({', '.join(team)})"
                )
    _check_numbers("Reward.parts", reward.parts.items())


def _check_numbers(what: str, numbers: Iterable[tuple[Any, Any]]) -> None:
    for name, value in numbers:
        if type(name) is not str or not encodes(name):
            raise TypeError(f"{what} must have texts for names, in UTF-8, not {name!r:.80}")
        if not isinstance(value, _NUMBERS) or not abs(value) < _LARGEST:
            raise ValueError(f"{what}[{name}] is {value!r}; {_AMOUNT}")


def why_empty(trajectory: Trajectory) -> str:
    """Return why no turn of an episode completed; empty if one did, or if it has no turns."""
    error = ""
    for turn in trajectory.backward():
        if turn.status == "completed":
            return ""
        error = error or f"{turn.agent}: {turn.error or turn.status}"
    count = len(trajectory)
    return f"none of its {count} turns gave anything; the last, {error}" if error else ""


# ------------------------------------------------------------------------------- the run


def problems_of(task: Any, split: Split, place: str) -> Sequence[Problem]:
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
    """Check the problems of all splits of a task.

    Raises:
        UsageError: a split that is used has no problems.
        RunError: something is not a Problem, an id is not a string, or two problems share one.
    """
    seen: dict[str, str] = {}
    for split in get_args(Split):
        problems = problems_of(task, split, place)
        if split in used and not len(problems):
            raise UsageError(f"{place}: its split {split!r} has no problems, and it is used here")
        with calling(place, f"problems({split!r})"):
            for problem in islice(problems, _CHECKED_PROBLEMS):
                _check_unique(problem, split, seen, place)


def _check_unique(problem: Any, split: str, seen: dict[str, str], place: str) -> None:
    method = f"problems({split!r})"
    name = check_problem(problem, place, method).id
    if name in seen:
        where = f"twice in {split!r}" if seen[name] == split else f"in {seen[name]!r} and {split!r}"
        raise RunError(f"{place}: problem {name!r} is {where}; ids are unique, splits disjoint")
    seen[name] = split


def check_problem(problem: Any, place: str, method: str) -> Problem:
    """Return a problem that a task made, checked."""
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise RunError(f"{place}: {method} returned a {kind}, which is not a Problem")
    name: Any = problem.id
    if not isinstance(name, str) or not name or not encodes(name):
        raise RunError(
            f"{place}: {method}: Problem.id must be a non-empty string, got {name!r:.80}"
        )
    return problem


def text_problem(task: Any, text: str, place: str, category: str = "") -> Problem:
    """Return the problem that a task makes of free text, in a category if one is given."""
    if not hasattr(task, "problem_from"):
        raise UsageError(f"{place}: this task takes no free text; name one of its problems")
    with calling(place, "problem_from"):
        problem = check_problem(task.problem_from(text), place, "problem_from")
    return replace(problem, category=category) if category else problem


def iterations_of(trainer: Any, place: str) -> int:
    with calling(place, "iterations"):
        count = trainer.iterations
    if type(count) is not int or count < 0:
        raise RunError(f"{place}: iterations must be a count, not {count!r:.80}")
    return count


def merged_metrics(own: Metrics, reported: Any, place: str) -> dict[str, float]:
    """Return an iteration's metrics: those of its trainer, and core's own, which have priority."""
    if not isinstance(reported, Mapping):
        kind = type(reported).__name__
        raise RunError(f"{place}: iterate returned a {kind}, not metrics: a number for each name")
    return {**{name: _number(name, value, place) for name, value in reported.items()}, **own}


def _number(name: Any, value: Any, place: str) -> float:
    # `isprintable` also refuses lone surrogates, which no file can hold.
    if not isinstance(name, str) or not name.isprintable():
        raise RunError(f"{place}: a metric's name must be printable text, not {name!r:.80}")
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except Exception:
        number = math.nan
    if not math.isfinite(number):
        raise RunError(f"{place}: metric {name!r} must be a finite number, not {value!r:.80}")
    return value if type(value) is int and abs(value) < 1 << 53 else number


def check_judged(episodes: Sequence[Episode], where: str) -> None:
    """Raise `RunError` if every verification, or every reward, failed."""
    unverified = [episode.error for episode in episodes if episode.scores is None]
    unrewarded = [
        episode.error
        for episode in episodes
        if episode.error and episode.reward is None and episode.status is not Status.FAILED
    ]
    for what, errors in (("verification", unverified), ("reward", unrewarded)):
        if len(errors) == len(episodes):
            _refuse(f"every {what} of {where}", errors)


def check_decided(episodes: Sequence[Episode], where: str) -> None:
    """Raise `RunError` if the policy failed at the first decision of every episode."""
    errors = [
        episode.error
        for episode in episodes
        if episode.status is Status.FAILED and not episode.turns
    ]
    if len(errors) == len(episodes):
        _refuse(f"every decision of {where}", errors)


def check_turns(episodes: Sequence[Episode], where: str, minimum: int) -> None:
    """Raise `RunError` if there are at least `minimum` turns and all of them failed."""
    turns = [turn for episode in episodes for turn in episode.turns]
    errors = [f"agent {turn.agent}: {turn.error}" for turn in turns if turn.status == "failed"]
    if minimum <= len(turns) == len(errors):
        _refuse(f"all {len(turns)} turns of {where}", errors)


def _refuse(what: str, errors: Sequence[str]) -> None:
    """Raise `RunError` with the most frequent of the errors, if there are any."""
    for reason, count in Counter(errors).most_common(1):
        share = "each" if count == len(errors) else f"{count} of them"
        raise RunError(f"{what} failed, {share} with: {reason:.{_REASON}}")
