"""What plugins may hand the engine: checked once, where it comes in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Any

import msgspec
from attrs import evolve

from orchestrion._engine.making import make_episode
from orchestrion._errors import BudgetError, OrchestrionError, ReplayError, RunError, StoreError
from orchestrion._interrupts import from_outside
from orchestrion._records import (
    NO_USAGE,
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Reward,
    Scores,
    Step,
    Trajectory,
    Usage,
)
from orchestrion._secrets import hidden

__all__ = [
    "FATAL",
    "booked",
    "broken",
    "check_decision",
    "check_step",
    "check_usage",
    "describe",
    "judged",
    "nothing_given",
]

# Not an agent's failure but the run's, or our own end: the episode cannot go on. Whatever else
# plugin code raises must neither end the process nor look like our own cancellation.
FATAL = (BudgetError, ReplayError, StoreError, GeneratorExit)

NUMBERS = (int, float)
LARGEST = 1e100
"""Above every amount that means something, and small enough for sums never to overflow."""
LONGEST = 10_000
"""Characters of an error that are kept: there may be one in every turn."""
COUNTS = 2**53
"""Above every count: the sum of a thousand still fits into a database."""


def check_decision(decision: Any, place: str) -> None:
    """Raise `RunError` unless a policy's answer is a decision."""
    kind: Any = type(decision)
    if (
        kind is Decision
        and type(decision.stop) is bool
        and decision.wait in ("all", "each")
        and type(decision.start) is tuple
        and type(decision.error) is str
    ):
        for one in decision.start:
            if type(one) is not Activation or (one.timeout is not None and not _lasts(one.timeout)):
                break
        else:
            return
    raise RunError(
        f"{place}: decide() must give Decisions with a tuple of "
        "Activations, stop true or false, wait 'all' or 'each', and an error in words; a timeout "
        f"is None or more than 0 s; it gave {decision!r:.200}"
    )


def _lasts(timeout: Any) -> bool:
    return type(timeout) in NUMBERS and 0 < timeout < inf


def check_step(step: Any, place: str, method: str) -> None:
    """Raise `RunError` unless what a task's `start` or `step` gave is a step."""
    kind: Any = type(step)
    if (
        kind is not Step
        or type(step.done) is not bool
        or (step.observation is not None and type(step.observation) is not Observation)
    ):
        raise RunError(
            f"{place}: {method}() must give a Step with an Observation or None, "
            f"and done true or false; it gave {step!r:.200}"
        )


def booked(output: Output, used: Usage, made: Sequence[str] = ()) -> Output:
    """The output, checked, with what went through calls added to its usage, and their names.

    Raises:
        TypeError, ValueError: it is not what an agent may return.
    """
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
    return evolve(output, usage=output.usage + used, calls=tuple(made) or output.calls)


def _check_rest(output: Output) -> None:
    if type(output.final) is not bool:
        raise TypeError(f"Output.final is {type(output.final).__name__}, not true or false")
    try:
        msgspec.json.encode((output.data, output.metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"Output.data and metadata must be JSON: {error}") from None


def check_usage(usage: Usage) -> None:
    """Raise unless a usage is one: counts and finite amounts, none of them negative."""
    if type(usage) is not Usage:
        raise TypeError(f"Output.usage is {type(usage).__name__}, not a Usage")
    # In one go, since there is one a turn; what is wrong with it is looked for only then.
    if not (
        type(usage.calls) is type(usage.input_tokens) is type(usage.output_tokens) is int
        and type(usage.usd) in NUMBERS
        and type(usage.cost) in NUMBERS
        and 0 <= usage.calls < COUNTS
        and 0 <= usage.input_tokens < COUNTS
        and 0 <= usage.output_tokens < COUNTS
        and 0 <= usage.usd < LARGEST
        and 0 <= usage.cost < LARGEST
    ):
        _refuse_usage(usage)


def check_paid(usage: Usage) -> None:
    """Raise unless a usage of a call is one; its dollars may be unknown (NaN)."""
    check_usage(evolve(usage, usd=0.0) if usage.usd != usage.usd else usage)


def _refuse_usage(usage: Usage) -> None:
    for name in ("calls", "input_tokens", "output_tokens"):
        value = getattr(usage, name)
        if type(value) is not int or not 0 <= value < COUNTS:
            raise ValueError(f"Usage.{name} is {value!r}, not a count")
    for name in ("usd", "cost"):
        value = getattr(usage, name)
        if type(value) not in NUMBERS or not 0 <= value < LARGEST:
            raise ValueError(f"Usage.{name} is {value!r}; it must be from 0 to {LARGEST:g}")


def judged(
    episode: Episode, scores: Scores, reward: Reward | None = None, team: Collection[str] = ()
) -> Episode:
    """The episode with its judgement; spelled out, since `evolve` costs as much as a turn."""
    if reward is None:
        _check_scores(scores)
    else:
        _check_reward(reward, len(episode.trajectory), team)
    return make_episode(
        episode.id,
        episode.problem,
        episode.trajectory,
        episode.decisions,
        episode.status,
        scores,
        reward,
        episode.error,
        episode.observation,
        episode.calls,
    )


def _check_scores(scores: Scores) -> None:
    if type(scores) is not Scores:
        raise TypeError(f"verify() returned {type(scores).__name__}, not Scores")
    if type(scores.value) not in (int, float) or not 0 <= scores.value <= 1:
        raise ValueError(f"Scores.value is {scores.value!r}; it must be from 0 to 1")
    if type(scores.success) is not bool:
        raise TypeError(f"Scores.success is {scores.success!r}, not true or false")
    _check_numbers("Scores.parts", scores.parts.items())


def _check_reward(reward: Reward, turns: int, team: Collection[str]) -> None:
    if type(reward) is not Reward:
        raise TypeError(f"score() returned {type(reward).__name__}, not a Reward or None")
    if type(reward.total) not in NUMBERS or not abs(reward.total) < LARGEST:
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


_AMOUNT = f"it must be a finite number, at most {LARGEST:g}"


def _check_numbers(what: str, numbers: Iterable[tuple[Any, Any]]) -> None:
    for name, value in numbers:
        if type(name) is not str:
            raise TypeError(f"{what} must have texts for names, not {name!r}")
        if not isinstance(value, NUMBERS) or not abs(value) < LARGEST:
            raise ValueError(f"{what}[{name}] is {value!r}; {_AMOUNT}")


def describe(error: BaseException, seconds: float | None) -> str:
    """An error in a sentence, as it stands in the record of a turn."""
    if isinstance(error, TimeoutError) and seconds is not None and not error.args:
        return f"no result within {seconds:g} s"
    try:
        text = str(error)
    except Exception:  # an exception of a plugin's own may be broken itself
        text = ""
    text = hidden(text)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} ... (cut here; it has {len(text)} characters)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def nothing_given(trajectory: Trajectory) -> str:
    """Why an episode has no answer although agents were asked; empty if it has one."""
    error = ""
    for turn in trajectory.backward():
        if turn.status == "completed":
            return ""
        error = error or f"{turn.agent}: {turn.error or turn.status}"
    count = len(trajectory)
    return f"none of its {count} turns gave anything; the last, {error}" if error else ""


def broken(place: str, method: str, error: BaseException) -> BaseException:
    """An error of plugin code with the component and method it came from."""
    if isinstance(error, OrchestrionError) or from_outside(error):
        return error
    return RunError(f"{place}: {method}() raised {describe(error, None)}")
