"""Reads and combines the upper bounds that components give on their calls, before a run.

An agent, a model, a task and a reward function may have `ceiling(tokens)`, a policy `route(turns)`,
a trainer `plan(i, sizes, turns)`; see `orchestrion._interfaces`. A component without a bound is
unknown, and never counted as free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orchestrion._records import NO_USAGE, Usage

__all__ = ["ceiling_of", "reading", "route_of", "team_ceiling", "times", "worst"]


def ceiling_of(component: Any, tokens: int) -> Usage | None:
    """Return the upper bound of a component for so many tokens to read; None if it gives none."""
    ceiling = getattr(component, "ceiling", None)
    usage: Usage | None = None if ceiling is None else ceiling(tokens)
    return usage


def route_of(
    policy: Any, names: Collection[str], turns: int | None
) -> Sequence[Collection[str]] | None:
    """Return the agents that may take each turn of an episode; None if turns have no limit."""
    give_route = getattr(policy, "route", None)
    route = None if give_route is None else give_route(turns)
    if route is None:
        return None if turns is None else [names] * turns
    if turns is None or len(route) <= turns:
        return list(route)
    # If turns may be skipped, turns that come late in the route may still be within the limit.
    no_skips = all("" not in agents for agents in route)
    return list(route)[:turns] if no_skips else [names] * turns


def times(usage: Usage, count: int) -> Usage:
    """Return a usage multiplied by a count."""
    return Usage(
        usage.calls * count,
        usage.input_tokens * count,
        usage.output_tokens * count,
        usage.usd * count,
        usage.cost * count,
    )


def worst(usages: Sequence[Usage]) -> Usage:
    """Return the maximum of each field; NaN if it is NaN in any usage."""
    if not usages:
        return NO_USAGE
    return Usage(
        max(usage.calls for usage in usages),
        max(usage.input_tokens for usage in usages),
        max(usage.output_tokens for usage in usages),
        _maximum([usage.usd for usage in usages]),
        _maximum([usage.cost for usage in usages]),
    )


def _maximum(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


def reading(
    agents: Mapping[str, Any],
    route: Sequence[Collection[str]],
    tokens: int,
    free_output: int = 0,
) -> tuple[list[Usage], int] | None:
    """Return the upper bound of each turn of an episode, and of the tokens to read at its end.

    Args:
        agents: the team.
        route: the agents that may take each turn.
        tokens: the tokens to read before the first turn.
        free_output: tokens that a turn is assumed to add if it makes no calls and gives no bound
            of its output.

    Returns:
        None if an agent that may act gives no bound.
    """
    turns = []
    for names in route:
        bounds = [ceiling_of(agents[name], tokens) for name in names if name]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return None
        turn = worst(known)
        turns.append(turn)
        is_free = any(not bound.calls and not bound.output_tokens for bound in known)
        tokens += max(turn.output_tokens, free_output if is_free else 0)
    return turns, tokens


def team_ceiling(
    members: Mapping[str, Any], policy: Any, turns: int | None, tokens: int
) -> Usage | None:
    """Return the upper bound of a nested team: for the `ceiling` of an agent that runs one.

    The nested team adds at most the output of its last turn to the trajectory of the outer team.
    """
    route = route_of(policy, tuple(members), turns)
    if route is None:
        return None
    bounds = reading(members, route, tokens, tokens)
    return None if bounds is None else sum(bounds[0], NO_USAGE)
