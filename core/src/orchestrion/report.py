"""How a result is judged: every contender by the same evaluator, on the same problems and keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from orchestrion.keys import Key
from orchestrion.records import Episode
from orchestrion.statistics import Estimate, difference, estimate

__all__ = ["Contender", "Report", "compare", "contender", "of_evaluations", "outcomes"]

LEARNED = "learned"
UNTRAINED = "policy (untrained)"
"""Like the other one, no baseline can be called so."""


@frozen
class Contender:
    """One policy's result. Per-problem means are kept, so that two can be compared in pairs.

    Args:
        name: "learned", "policy (untrained)" for a config as it is, or the baseline's.
        solved: share of problems solved.
        cost: mean cost of an episode, in the agents' unit.
        reward: mean reward; over the problems that have one.
        turns: mean number of turns.
        missing: episodes without a reward.
        trained_on: episodes this policy was trained with.
    """

    name: str
    solved: Estimate
    cost: Estimate
    reward: Estimate
    turns: Estimate
    missing: int
    trained_on: int


@frozen
class Report:
    """Contenders in order, and what the first has over each other one, in reward per problem."""

    split: str
    problems: int
    seeds: int
    contenders: tuple[Contender, ...]
    ahead: Mapping[str, Estimate]

    def as_json(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it and the store keeps it; null for what is unknown."""
        return asdict(self, value_serializer=lambda _owner, _field, value: _known(value))


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


Outcomes = Mapping[str, Mapping[str, float | None]]
"""Per problem: solved, cost, reward and turns, each a mean over its episodes."""


def outcomes(episodes: Sequence[Episode]) -> dict[str, dict[str, float | None]]:
    """Per-problem means of an evaluation's episodes, in the order of their first episode."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.problem.id, []).append(episode)
    return {problem: _means(group) for problem, group in groups.items()}


def _means(group: Sequence[Episode]) -> dict[str, float | None]:
    rewards = [one.reward.total for one in group if one.reward is not None]
    return {
        "solved": sum(one.success for one in group) / len(group),
        "cost": sum(one.usage.cost for one in group) / len(group),
        "turns": sum(len(one.trajectory) for one in group) / len(group),
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "missing": float(len(group) - len(rewards)),
    }


def contender(name: str, results: Outcomes, trained_on: int, key: Key) -> Contender:
    """A contender's summary."""

    def column(field: str) -> Estimate:
        values = [row[field] for row in results.values()]
        return estimate([value for value in values if value is not None], key.child(field))

    return Contender(
        name,
        column("solved"),
        column("cost"),
        column("reward"),
        column("turns"),
        int(sum(row["missing"] or 0 for row in results.values())),
        trained_on,
    )


def compare(
    split: str,
    seeds: int,
    results: Mapping[str, Outcomes],
    trained_on: Mapping[str, int],
    key: Key,
) -> Report:
    """The report on several contenders; the first is compared with each other one.

    Args:
        split: the problems they were judged on.
        seeds: tries of each.
        results: outcomes of each contender.
        trained_on: how many episodes it was trained with.
        key: of the bootstrap.
    """
    first, *others = results
    ahead: dict[str, Estimate] = {}
    for name in others:
        pairs = [
            (mine["reward"], results[name][problem]["reward"])
            for problem, mine in results[first].items()
            if problem in results[name]
        ]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        ahead[name] = difference([a for a, _ in both], [b for _, b in both], key.child(name))
    return Report(
        split,
        len(results[first]),
        seeds,
        tuple(
            contender(name, rows, trained_on.get(name, 0), key) for name, rows in results.items()
        ),
        ahead,
    )


def of_evaluations(
    evaluations: Mapping[str, Mapping[str, Any]], split: str, seeds: int, seed: int
) -> Report:
    """The report on a run's evaluations as its store keeps them, the learned policy first.

    Args:
        evaluations: what was found, by contender.
        split: as in `compare`.
        seeds: likewise.
        seed: the run's.
    """
    return compare(
        split,
        seeds,
        {name: one["outcomes"] for name, one in evaluations.items()},
        {name: one["trained_on"] for name, one in evaluations.items()},
        Key(seed).child("report"),
    )
