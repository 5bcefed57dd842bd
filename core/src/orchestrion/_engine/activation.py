"""One activation: whether it may start, and what its agent gives."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from orchestrion._engine.calls import ActivationCalls
from orchestrion._engine.checks import booked
from orchestrion._engine.deadline import exited
from orchestrion._engine.reuse import digest
from orchestrion._engine.team import Seat
from orchestrion._errors import RunError
from orchestrion._interfaces import View
from orchestrion._keys import Key
from orchestrion._records import NO_USAGE, Activation, Observation, Output

if TYPE_CHECKING:
    from orchestrion._engine.episode import Engine

__all__ = ["act", "content_of", "refusal", "reused"]


def refusal(
    activation: Activation, seats: Mapping[str, Seat], observation: Observation | None
) -> str:
    """Why an activation cannot start; empty if it can.

    Raises:
        RunError: the policy started what is not in the team.
    """
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
    if observation is not None and observation.blocked:
        blocked = observation.blocked
        if agent in blocked or (option is not None and f"{agent}:{option}" in blocked):
            return "blocked by the task"
    return ""


async def act(
    engine: Engine,
    seat: Seat,
    view: View,
    key: Key,
    handle: ActivationCalls,
    seconds: float | None,
) -> Output:
    """What an agent returns, checked, with what it spent through `handle`."""
    work = seat.act(view, key, handle)
    began = monotonic()
    try:
        waits_for = work.send(None)
    except StopIteration as stop:
        # It never had to wait: no timer, and no way through the event loop.
        output = stop.value
        if seconds is not None and monotonic() - began > seconds:
            raise TimeoutError from None
    except GeneratorExit as error:
        raise exited(error) from error
    else:
        output = await engine.rest(seconds, work, waits_for, engine.name_of(seat))
    stated = booked(output, handle.used, handle.made)
    if output.usage is not NO_USAGE:
        await engine.calls.state(output.usage, handle.who, engine.stage)
    return stated


async def reused(
    engine: Engine,
    seat: Seat,
    view: View,
    seconds: float | None,
    who: str = "",
    label: str | None = None,
) -> Output:
    """The output of a pure agent, computed once for equal content."""
    content = seat.memo(view) if seat.memo is not None else content_of(view)
    name = digest("act", seat.identity, view.option, content)
    key = Key(name.encode()[:32])

    async def compute() -> Output:
        handle = ActivationCalls(engine, key, name, who, label)
        return await act(engine, seat, view, key, handle, seconds)

    output: Output = await engine.calls.reuse.get(name, compute)
    return output


def content_of(view: View) -> Any:
    """All that a view shows, as JSON."""
    observation = view.observation
    return [
        view.problem.text,
        view.problem.data,
        [[turn.agent, turn.option, turn.output.content, turn.output.data] for turn in view.turns],
        [observation.text, observation.data] if observation is not None else None,
    ]
