"""How a result is judged: every contender by the same evaluator, on the same problems and keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import Factory, asdict, frozen

from orchestrion._errors import UsageError
from orchestrion._keys import Key
from orchestrion._records import TRAINING, Episode, Status
from orchestrion._statistics import Estimate, difference, estimate, mean

if TYPE_CHECKING:
    from orchestrion._config import Config

__all__ = [
    "RESERVED",
    "Comparison",
    "Contender",
    "Outcomes",
    "Report",
    "Verdict",
    "compare",
    "compare_outcomes",
    "contender",
    "kinds",
    "of_evaluations",
    "outcomes",
    "own_name",
    "unit_of",
]

Outcomes = Mapping[str, Mapping[str, float | None]]
"""By problem id: `solved`, `limit` and `failed` as shares of its episodes, `cost`, `usd`, `tokens`,
`calls`, `turns` and `reward` as means over them, and `missing`, how many have no reward."""

OWN_UNIT = "own unit"

LEARNED = "learned"
TEAM = "team"
"""The team of a config without a trainer: nothing of it was learned."""
UNTRAINED = "policy (untrained)"
RESERVED = {
    LEARNED: "the trained policy",
    TEAM: "the team as it is configured",
    TRAINING: "the episodes of training",
}
"""Names that no baseline can have, and what they stand for."""


def own_name(config: Config, trained: bool = True) -> str:
    """What reports call a config's own policy, trained or not."""
    if not config.stages:
        return TEAM
    return LEARNED if trained else UNTRAINED


@frozen
class Contender:
    """One policy's result. Per-problem means are kept, so that two can be compared in pairs.

    Args:
        name: "learned", "policy (untrained)" before any training, "team" where the config has no
            trainer, or the baseline's.
        solved: share of problems solved.
        cost: mean cost of an episode, in the report's unit.
        reward: mean reward; over the problems that have one.
        turns: mean number of turns.
        limit: share of episodes that a limit or the budget ended.
        failed: share of episodes that failed or were cut off.
        missing: episodes without a reward.
        trained_on: episodes this policy was trained with.
        passes: by k, share of problems solved by at least one of k tries (pass@k); empty where
            problems are tried once. `solved` is the mean over tries (avg@k).
    """

    name: str
    solved: Estimate
    cost: Estimate
    reward: Estimate
    turns: Estimate
    limit: float
    failed: float
    missing: int
    trained_on: int
    passes: Mapping[int, Estimate] = Factory(dict)


@frozen
class Report:
    """Contenders in order, and what the first has over each other one, in reward per problem.

    Args:
        split: the problems they were judged on.
        problems: how many.
        seeds: tries of each.
        contenders: their results.
        ahead: reward of the first minus that of each other one.
        unit: what costs are measured in, see `unit_of`.
        outcomes: what each contender reached on each problem.
    """

    split: str
    problems: int
    seeds: int
    contenders: tuple[Contender, ...]
    ahead: Mapping[str, Estimate]
    unit: str
    outcomes: Mapping[str, Outcomes]

    @property
    def verdict(self) -> Verdict:
        """Return which of the others the first is ahead of."""
        return Verdict.of(self.ahead)

    def as_json(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it and the store keeps it; null for what is unknown."""
        data = asdict(self, value_serializer=lambda _owner, _field, value: _known(value))
        return {"verdict": self.verdict.as_text(self), **asdict(self.verdict), **data}


@frozen
class Verdict:
    """Whom the first contender of a report beats, by paired intervals of the reward.

    Args:
        ahead_of: the interval of the difference lies above 0.
        level_with: it includes 0, or there is no difference that is known.
        behind: it lies below 0.
    """

    ahead_of: tuple[str, ...]
    level_with: tuple[str, ...]
    behind: tuple[str, ...]

    @classmethod
    def of(cls, ahead: Mapping[str, Estimate]) -> Verdict:
        """Return the verdict on differences in reward from each of the others."""
        return cls(
            tuple(name for name, one in ahead.items() if one.low > 0),
            tuple(name for name, one in ahead.items() if not one.excludes_zero),
            tuple(name for name, one in ahead.items() if one.high < 0),
        )

    def as_text(self, report: Report) -> str:
        """Return it as a sentence, with the differences where the first is not ahead."""
        first = report.contenders[0].name

        def named(names: Sequence[str]) -> str:
            return enumerated([f"{name}{_bracketed(report.ahead[name])}" for name in names])

        parts = [
            f"{word} {text}"
            for word, text in (
                ("ahead of", enumerated(self.ahead_of)),
                ("not ahead of", named(self.level_with)),
                ("behind", named(self.behind)),
            )
            if text
        ]
        if not parts:
            return f"{first} was compared with nothing: no baseline is named"
        return f"by reward, {first} is {'; '.join(parts)}"


def enumerated(names: Sequence[str]) -> str:
    """Return "a, b and c"; empty for nothing."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


def _bracketed(one: Estimate) -> str:
    return f" ({one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}])" if one.count else ""


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def outcomes(episodes: Sequence[Episode]) -> dict[str, dict[str, float | None]]:
    """Per-problem means of an evaluation's episodes, in the order of their first episode."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.problem.id, []).append(episode)
    return {problem: _means(group) for problem, group in groups.items()}


def kinds(episodes: Sequence[Episode]) -> dict[str, dict[str, float | None]]:
    """Return what came of each kind (category) of problems in an evaluation, by its name.

    `reward` is the mean of the episodes that have one, `solved` the share that were solved,
    `at_once` the share that ended at once: completed before anything was called or paid for, by the
    policy or by a first turn that ends the episode. `at_once_reward` is the mean reward of these.
    """
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.problem.category, []).append(episode)
    return {kind: _kind(groups[kind]) for kind in sorted(groups)}


def _kind(group: Sequence[Episode]) -> dict[str, float | None]:
    at_once = [one for one in group if _ended_at_once(one)]
    return {
        "episodes": float(len(group)),
        "solved": sum(one.success for one in group) / len(group),
        "reward": _mean_reward(group),
        "at_once": len(at_once) / len(group),
        "at_once_reward": _mean_reward(at_once),
    }


def _ended_at_once(episode: Episode) -> bool:
    turns = episode.turns
    ended = not turns or (len(turns) == 1 and turns[0].output.final)
    free = not episode.usage.cost and not episode.usage.calls
    return episode.status is Status.COMPLETED and ended and free


def _mean_reward(group: Sequence[Episode]) -> float | None:
    rewards = [one.reward.total for one in group if one.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _means(group: Sequence[Episode]) -> dict[str, float | None]:
    usages = [one.usage for one in group]

    def share(*statuses: Status) -> float:
        return sum(one.status in statuses for one in group) / len(group)

    return {
        "solved": sum(one.success for one in group) / len(group),
        "cost": sum(usage.cost for usage in usages) / len(group),
        "turns": sum(len(one.trajectory) for one in group) / len(group),
        "reward": _mean_reward(group),
        "missing": float(sum(one.reward is None for one in group)),
        "limit": share(Status.LIMIT, Status.BUDGET),
        "failed": share(Status.FAILED, Status.CANCELLED),
        "usd": sum(usage.usd for usage in usages) / len(group),
        "tokens": sum(usage.tokens for usage in usages) / len(group),
        "calls": sum(usage.calls for usage in usages) / len(group),
    }


def unit_of(rows: Iterable[Mapping[str, float | None]]) -> str:
    """What the `cost` of rows is measured in.

    Agents define the unit of their cost. Where it is everywhere the same number as the US dollars,
    the tokens or the calls of the same row, that is its unit; else it is the agents' own.
    """
    table = [row for row in rows if row["cost"]]
    for unit, field in (("US dollars", "usd"), ("tokens", "tokens"), ("calls", "calls")):
        if table and all(math.isclose(row["cost"] or 0, row[field] or 0) for row in table):
            return unit
    return OWN_UNIT


def pass_at(share: float, tries: int, k: int) -> float:
    """Return the probability that at least one of `k` of the tries of a problem solved it.

    Unbiased for `k` fresh tries: 1 - C(n - c, k) / C(n, k) with c of n tries solved, equation 1 of
    Chen et al. 2021 (arXiv 2107.03374).
    """
    return 1 - math.comb(tries - round(share * tries), k) / math.comb(tries, k)


def contender(name: str, results: Outcomes, trained_on: int, key: Key, seeds: int = 1) -> Contender:
    """A contender's summary; `seeds` is how often each problem was tried."""

    def column(field: str) -> Estimate:
        values = [row[field] for row in results.values()]
        return estimate([value for value in values if value is not None], key.child(field))

    def share(field: str) -> float:
        return mean([row[field] or 0.0 for row in results.values()])

    return Contender(
        name,
        column("solved"),
        column("cost"),
        column("reward"),
        column("turns"),
        share("limit"),
        share("failed"),
        int(sum(row["missing"] or 0 for row in results.values())),
        trained_on,
        {
            k: estimate(
                [pass_at(row["solved"] or 0.0, seeds, k) for row in results.values()],
                key.child("pass", k),
            )
            for k in sorted({*(2**n for n in range(1, seeds.bit_length())), seeds})
            if 1 < k <= seeds
        },
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
        ahead[name] = paired(results[first], results[name], "reward", key.child(name))
    return Report(
        split,
        len(results[first]),
        seeds,
        tuple(
            contender(name, rows, trained_on.get(name, 0), key, seeds)
            for name, rows in results.items()
        ),
        ahead,
        unit_of(row for rows in results.values() for row in rows.values()),
        results,
    )


def paired(first: Outcomes, second: Outcomes, field: str, key: Key) -> Estimate:
    """The mean of `first - second` over the problems that both have a number for."""
    pairs = [
        (row[field], second[problem][field]) for problem, row in first.items() if problem in second
    ]
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    return difference([a for a, _ in both], [b for _, b in both], key)


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


@frozen
class Comparison:
    """Two results on the problems that both were judged on.

    Args:
        names: what was compared.
        problems: how many problems both have.
        unit: of both costs.
        means: by name of a figure: the mean of each, and the paired difference.
        better: problems that the first solves more often, and that the second does.
        alone: how many problems only one of them was judged on.
        several: whether problems were tried more than once.
        notes: what a person should know.
    """

    names: tuple[str, str]
    problems: int
    unit: str
    means: Mapping[str, tuple[float, float, Estimate]]
    better: tuple[tuple[str, ...], tuple[str, ...]]
    alone: tuple[int, int]
    several: bool
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self, value_serializer=lambda _owner, _field, value: _known(value))


def compare_outcomes(
    names: tuple[str, str], first: Outcomes, second: Outcomes, seeds: tuple[int, int], key: Key
) -> Comparison:
    """Compare two results problem by problem.

    Args:
        names: of both.
        first: one result.
        second: the other.
        seeds: tries a problem of each.
        key: of the bootstrap.

    Raises:
        UsageError: they have no problem in common.
    """
    shared = [problem for problem in first if problem in second]
    if not shared:
        raise UsageError(f"{names[0]} and {names[1]} were judged on no problem with the same id")
    a, b = ({problem: rows[problem] for problem in shared} for rows in (first, second))
    units = unit_of(a.values()), unit_of(b.values())
    means = {
        field: (_mean(a, field), _mean(b, field), paired(a, b, field, key.child(field)))
        for field in ("solved", "reward", "cost", "turns", "limit", "failed")
    }
    notes = []
    if units[0] != units[1]:
        del means["cost"]
        notes.append(f"costs are not compared: A has {units[0]}, B has {units[1]}")
    if seeds[0] != seeds[1]:
        notes.append(f"A tried each problem {seeds[0]} times, B {seeds[1]} times")

    def ahead(one: Outcomes, other: Outcomes) -> tuple[str, ...]:
        return tuple(p for p in shared if (one[p]["solved"] or 0) > (other[p]["solved"] or 0))

    return Comparison(
        names,
        len(shared),
        units[0],
        means,
        (ahead(a, b), ahead(b, a)),
        (len(first) - len(shared), len(second) - len(shared)),
        max(seeds) > 1,
        tuple(notes),
    )


def _mean(rows: Outcomes, field: str) -> float:
    values = [value for row in rows.values() if (value := row[field]) is not None]
    return mean(values) if values else math.nan
