"""List what a policy can choose from: each agent with each of its options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrion._errors import UsageError
from orchestrion._interfaces import Member
from orchestrion._records import Activation, Observation, Turn
from orchestrion._suggest import did_you_mean


def choices(roster: Iterable[Member]) -> tuple[Activation, ...]:
    """Return an activation for each agent and option, in roster order."""
    return tuple(
        Activation(member.name, option)
        for member in roster
        for option in (member.options or (None,))
    )


def choice_name(choice: Activation | Turn) -> str:
    """Return "agent" or "agent:option"."""
    return choice.agent if choice.option is None else f"{choice.agent}:{choice.option}"


def parse_choice(text: str, roster: Sequence[Member], place: str = "") -> Activation:
    """Return the choice with this name; `place` is the config path of the name, for the error.

    Raises:
        UsageError: the team has none; the message lists its choices.
    """
    for choice in choices(roster):
        if text == choice_name(choice):
            return choice
    names = [choice_name(choice) for choice in choices(roster)]
    start = f"{place}: " if place else ""
    raise UsageError(
        f"{start}{text!r} is not a choice of this team{did_you_mean(text, names)}; "
        f"its choices: {', '.join(names)}"
    )


def is_blocked(choice: Activation, observation: Observation | None) -> bool:
    """Return whether the task refuses this choice now."""
    if observation is None or not observation.blocked:
        return False
    return choice.agent in observation.blocked or choice_name(choice) in observation.blocked
