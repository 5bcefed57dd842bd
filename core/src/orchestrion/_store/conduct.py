"""Whom a team called on the problems that it was judged on, by category of these."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice
from math import isfinite

from orchestrion._choices import choice_name
from orchestrion._records import TRAINING, Episode
from orchestrion._report import LEARNED
from orchestrion._statistics import mean
from orchestrion._store.conversations import turns_with_names
from orchestrion._store.reader import RunReader

EPISODES = 500
"""How many episodes are read."""
LONGEST = 6
"""Calls of an order that are named."""


def orders_by_category(store: RunReader, source: str = LEARNED) -> dict[str, Counter[str]]:
    """Return how often which order of calls occurred, in the first episodes of an evaluation.

    Empty where the run does not keep its turns.
    """
    orders: dict[str, Counter[str]] = {}
    for stored in islice(store.episodes(source=source), EPISODES):
        if len(stored.episode.trajectory) == stored.turn_count:
            category = stored.episode.problem.category
            orders.setdefault(category, Counter())[_order(stored.episode)] += 1
    return dict(sorted(orders.items()))


def completed_by(store: RunReader, source: str = LEARNED) -> set[str]:
    """Return the agents that completed a turn in the first episodes of an evaluation."""
    return {
        turn.agent
        for stored in islice(store.episodes(source=source), EPISODES)
        for _, turn in turns_with_names(stored.episode.trajectory)
        if turn.status == "completed"
    }


def mean_costs(store: RunReader, source: str) -> dict[str, float]:
    """Return what a turn of each agent cost, in first episodes of training and an evaluation.

    Empty where the run does not keep its turns.
    """
    costs: dict[str, list[float]] = {}
    for part in (TRAINING, source):
        for stored in islice(store.episodes(source=part), EPISODES):
            for turn in stored.episode.turns:
                if turn.status == "completed" and isfinite(turn.usage.cost):
                    costs.setdefault(turn.agent, []).append(turn.usage.cost)
    return {agent: mean(values) for agent, values in costs.items()}


def _order(episode: Episode) -> str:
    """Return the calls of an episode as text; repeated ones as "agent x 3"."""
    calls = [choice_name(turn) for turn in episode.turns]
    named = [(name, len(list(same))) for name, same in groupby(calls)]
    texts = [name if count == 1 else f"{name} x {count}" for name, count in named]
    if len(texts) > LONGEST:
        texts = [*texts[:LONGEST], f"... ({len(calls)} calls)"]
    return " > ".join(texts) or "nobody"
