"""What components say of themselves before a run: what they take at most, what they never can.

An agent, a model, a task and a reward function may have `ceiling(tokens)`, a policy `route(turns)`,
a trainer `plan(i, sizes, turns)`; see `orchestrion._interfaces`. Whoever does not say is unknown,
and never counted as free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orchestrion._records import NO_USAGE, Usage

__all__ = ["ceiling_of", "reading", "route_of", "team_ceiling", "times", "worst"]


def ceiling_of(component: Any, tokens: int) -> Usage | None:
    """What a component says that it takes at most; None if it does not say."""
    say = getattr(component, "ceiling", None)
    found: Usage | None = None if say is None else say(tokens)
    return found


def route_of(
    policy: Any, names: Collection[str], turns: int | None
) -> Sequence[Collection[str]] | None:
    """Who may take each turn of an episode; None if there is no end to them."""
    say = getattr(policy, "route", None)
    route = None if say is None else say(turns)
    if route is None:
        return None if turns is None else [names] * turns
    if turns is None or len(route) <= turns:
        return list(route)
    # Where turns may be left out, those that come late may still be within the limit.
    fixed = all("" not in one for one in route)
    return list(route)[:turns] if fixed else [names] * turns


def times(usage: Usage, count: int) -> Usage:
    """So much, so often."""
    return Usage(
        usage.calls * count,
        usage.input_tokens * count,
        usage.output_tokens * count,
        usage.usd * count,
        usage.cost * count,
    )


def worst(usages: Sequence[Usage]) -> Usage:
    """The most of each; unknown if one is."""
    if not usages:
        return NO_USAGE
    return Usage(
        max(one.calls for one in usages),
        max(one.input_tokens for one in usages),
        max(one.output_tokens for one in usages),
        _most([one.usd for one in usages]),
        _most([one.cost for one in usages]),
    )


def _most(values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


def reading(
    agents: Mapping[str, Any],
    route: Sequence[Collection[str]],
    tokens: int,
    unsaid: int = 0,
) -> tuple[list[Usage], int] | None:
    """What each turn of an episode takes at most, and how much there is to read after the last.

    Args:
        agents: the team.
        route: who may take each turn.
        tokens: what there is to read before the first.
        unsaid: what a turn is taken to add that makes no calls and does not say how much it adds.

    Returns:
        None if an agent that may act does not say what it takes.
    """
    taken = []
    for names in route:
        says = [ceiling_of(agents[name], tokens) for name in names if name]
        known = [one for one in says if one is not None]
        if len(known) < len(says):
            return None
        most = worst(known)
        taken.append(most)
        quiet = any(not one.calls and not one.output_tokens for one in known)
        tokens += max(most.output_tokens, unsaid if quiet else 0)
    return taken, tokens


def team_ceiling(
    members: Mapping[str, Any], policy: Any, turns: int | None, tokens: int
) -> Usage | None:
    """What a nested team takes at most: for the `ceiling` of an agent that runs one.

    Its last turn's output is what it adds to the trajectory of the outer team, or less.
    """
    route = route_of(policy, tuple(members), turns)
    if route is None:
        return None
    found = reading(members, route, tokens, tokens)
    return None if found is None else sum(found[0], NO_USAGE)
