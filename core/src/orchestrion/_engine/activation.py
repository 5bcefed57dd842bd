"""One activation, from what the policy started to its turn."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from attrs import frozen

from orchestrion._choices import is_blocked
from orchestrion._engine.calls import ActivationCalls, Host
from orchestrion._engine.checks import booked
from orchestrion._engine.deadline import exited, rest_of
from orchestrion._engine.recording import Facts, Failure
from orchestrion._engine.reuse import digest
from orchestrion._engine.team import Seat
from orchestrion._errors import RunError
from orchestrion._guards import FATAL, describe, note_line
from orchestrion._interfaces import Member, View
from orchestrion._interrupts import from_outside
from orchestrion._keys import Key
from orchestrion._records import (
    NO_USAGE,
    Activation,
    Observation,
    Output,
    Problem,
    Trajectory,
    Turn,
)


@frozen(eq=False)
class EpisodeContext:
    """What all activations of one loop share."""

    engine: Host
    problem: Problem  # without its hidden part
    key: Key
    seats: Mapping[str, Seat]  # the agents that may be started
    roster: tuple[Member, ...]  # the same agents, as they see each other
    episode: str  # its name in the run; of a nested team, that of the episode it is part of
    given: tuple[Turn, ...] = ()  # turns that a nested team may read beside its own
    who: str = ""  # before the names of agents in reports, e.g. "crew/" in a nested team
    label: str = ""  # the same, for people who watch


async def take_turn(
    context: EpisodeContext,
    activation: Activation,
    trajectory: Trajectory,
    observation: Observation | None,
    index: int,
    nth: int,
    decision: int,
) -> Turn:
    """Return the turn of an activation; whatever its agent raises makes it a failed turn.

    `trajectory` and `observation` are what the policy saw when it decided, `nth` is how often the
    agent was started before in this episode, `decision` the index of the decision.
    """
    engine, agent, option = context.engine, activation.agent, activation.option
    seat = context.seats.get(agent)
    if seat is None or option is not None or seat.options:
        seat = _seat(activation, context.seats)
    if observation is not None and is_blocked(activation, observation):
        blocked = "blocked by the task"
        engine.count_failure(agent, blocked)
        return Turn(index, agent, option, Output(), "failed", blocked, decision)
    view = View(
        agent,
        option,
        context.problem,
        trajectory,
        observation,
        activation.reads,
        context.given,
        context.roster,
    )
    # Draws depend on how often an agent acted, or on the index that the policy gave: not on time.
    key = context.key.child("act", agent, nth if activation.index is None else f"@{index}")
    who = context.who + agent
    label = None if engine.viewer is None else f"{context.label}{index + 1} {agent}"
    handle = ActivationCalls(engine, key, "", who, label, context.episode)
    failure = engine.calls.late(context.episode, key)
    if failure is None:
        seconds = engine.timeout
        if activation.timeout is not None:
            seconds = engine.calls.time_limit(activation.timeout)
        try:
            if seat.pure or activation.reuse:
                output = await _reused(engine, seat, view, seconds, who, label)
            else:
                output = await act(engine, seat, view, key, handle, seconds)
            return Turn(index, agent, option, output, "completed", "", decision, activation.reads)
        except FATAL:
            raise
        except BaseException as error:
            if from_outside(error):
                raise
            note_line(error, type(seat.agent))
            late, message = isinstance(error, TimeoutError), describe(error, seconds)
            if late:
                message += handle.trouble()
            failure = Failure(message, handle.used, tuple(handle.made))
            if late:
                facts = Facts(who=who, stage=engine.stage)
                await engine.calls.record_late(context.episode, key, failure, facts)
    engine.count_failure(agent, failure.message)
    output = Output(usage=failure.usage, calls=failure.made)
    return Turn(index, agent, option, output, "failed", failure.message, decision, activation.reads)


def _seat(activation: Activation, seats: Mapping[str, Seat]) -> Seat:
    """Return the agent of an activation; raise `RunError` if the policy must not choose it so."""
    agent, option = activation.agent, activation.option
    seat = seats.get(agent)
    if seat is None:
        raise RunError(
            f"the policy started {agent!r}, which is not in the team ({', '.join(seats)})"
        )
    if option is None:
        if seat.options:
            raise RunError(f"the policy started {agent!r} without one of its options")
    elif option not in seat.options:
        raise RunError(
            f"the policy started {agent!r} with option {option!r}; "
            f"it has {', '.join(sorted(seat.options)) or 'none'}"
        )
    return seat


async def act(
    engine: Host, seat: Seat, view: View, key: Key, handle: ActivationCalls, seconds: float | None
) -> Output:
    """Return an agent's output, checked, with the usage of its calls through `handle`.

    Raises:
        TimeoutError: it took more than `seconds`.
        Exception: as raised by the agent, or its output is not valid.
    """
    work = seat.act(view, key, handle)
    began = monotonic()
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        # It did not wait for anything: neither a timer nor the event loop is needed.
        output = stop.value
        if seconds is not None and monotonic() - began > seconds:
            raise TimeoutError from None
    except GeneratorExit as error:
        raise exited(error) from error
    else:
        output = await rest_of(work, waits_for, seconds, engine.name_of(seat))
    stated = booked(output, handle.used, handle.made)
    if output.usage is not NO_USAGE:
        await engine.calls.state(output.usage, handle.who, engine.stage, handle.scope)
    return stated


async def _reused(
    engine: Host, seat: Seat, view: View, seconds: float | None, who: str, label: str | None
) -> Output:
    """Return the output of a pure agent, computed once for equal content."""
    content = seat.memo(view) if seat.memo is not None else content_of(view)
    name = digest("act", engine.identity(seat), view.option, content)
    key = Key(name.encode()[:32])

    async def compute() -> Output:
        handle = ActivationCalls(engine, key, name, who, label)
        return await act(engine, seat, view, key, handle, seconds)

    output: Output = await engine.calls.reuse.get(name, compute)
    return output


def content_of(view: View) -> Any:
    """Return all that a view shows, as JSON."""
    observation = view.observation
    return [
        view.problem.text,
        view.problem.data,
        [[turn.agent, turn.option, turn.output.content, turn.output.data] for turn in view.turns],
        [observation.text, observation.data] if observation is not None else None,
    ]
