"""Combine the upper bounds that components give on their own calls, see `Agent.ceiling`.

A component without a bound is unknown; it never counts as free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from msgspec.structs import astuple

from orchestrion._records import NO_USAGE, Usage


def ceiling_of(component: Any, tokens: int) -> Usage | None:
    """Return the upper bound of a component for so many tokens to read; None if it gives none."""
    ceiling = getattr(component, "ceiling", None)
    usage: Usage | None = None if ceiling is None else ceiling(tokens)
    return usage


def times(usage: Usage, count: int) -> Usage:
    """Return a usage multiplied by a count; nothing for 0, whatever the price."""
    return NO_USAGE if not count else Usage(*(value * count for value in astuple(usage)))


def worst(usages: Sequence[Usage]) -> Usage:
    """Return the maximum of each field; NaN if it is NaN in any usage."""
    fields = zip(*map(astuple, usages), strict=True)
    return Usage(*(max(values, key=lambda value: (isnan(value), value)) for values in fields))


def turns_of(policy: Any, limit: int | None) -> int | None:
    """Return the most turns of an episode under a limit; None if neither gives one."""
    limits = [turns for turns in (limit, getattr(policy, "longest", None)) if turns is not None]
    return min(limits, default=None)


def turn_ceilings(
    agents: Mapping[str, Any], turns: int, tokens: int, free_output: int = 0
) -> tuple[list[Usage], int] | None:
    """Return the upper bound of each turn of an episode, and of the tokens to read at its end.

    Any agent may take any turn, and reads everything that was written before it. Return None if an
    agent gives no bound.
    """
    ceilings = []
    for _ in range(turns):
        bounds = [ceiling_of(agent, tokens) for agent in agents.values()]
        with_bound = [bound for bound in bounds if bound is not None]
        if len(with_bound) < len(bounds):
            return None
        ceilings.append(worst(with_bound))
        has_no_length = any(not bound.output_tokens for bound in with_bound)
        tokens += max(ceilings[-1].output_tokens, free_output if has_no_length else 0)
    return ceilings, tokens


def team_ceiling(
    members: Mapping[str, Any], policy: Any, turns: int | None, tokens: int
) -> Usage | None:
    """Return the upper bound of a nested team, for the `ceiling` of an agent that runs one.

    None if a member gives no bound, or if the number of turns has none.
    """
    most_turns = turns_of(policy, turns)
    bounds = None if most_turns is None else turn_ceilings(members, most_turns, tokens, tokens)
    return None if bounds is None else sum(bounds[0], NO_USAGE)
