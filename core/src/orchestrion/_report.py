"""Report the results of contenders on the same problems with the same random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attrs import Factory, asdict, field, frozen

from orchestrion._errors import StoreError
from orchestrion._keys import Key
from orchestrion._records import Episode, Problem, Status, Usage, replace
from orchestrion._statistics import Estimate, difference, estimate, estimate_share, mean
from orchestrion._store.serial import encode

if TYPE_CHECKING:
    from orchestrion.config import Config

Outcomes = Mapping[str, Mapping[str, float | None]]
"""By problem id: `solved`, `limit` and `failed` as shares of its episodes, `cost`, `usd`, `tokens`,
`calls`, `turns` and `reward` as means over them, and `missing`, how many have no reward."""

OWN_UNIT = "agents' unit"
"""In which agents state their `cost`; it has no name."""

LEARNED = "learned"
TEAM = "team"
"""The team of a config without a trainer, which learns nothing."""
UNTRAINED = "policy (untrained)"


def own_name(config: Config, trained: bool = True) -> str:
    """Return what reports call a config's own team, trained or not."""
    if not config.stages:
        return TEAM
    return LEARNED if trained else UNTRAINED


@frozen
class Contender:
    """The result of one contender.

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
        trained_on: episodes it was trained with.
        passes: by k, share of problems solved by at least one of k tries (pass@k), for k > 1;
            `solved` is the mean over tries (avg@k).
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
    """The results of all contenders, and how far the first is ahead of each of the others.

    Args:
        split: of the problems they were evaluated on.
        problems: how many.
        seeds: tries of each problem.
        contenders: their results, in order.
        ahead: reward of the first minus that of each of the others, paired by problem.
        unit: what costs are measured in, see `unit_of`.
        outcomes: of each contender on each problem.
        digests: see `problem_digests`; empty for results that were stored without.
    """

    split: str
    problems: int
    seeds: int
    contenders: tuple[Contender, ...]
    ahead: Mapping[str, Estimate]
    unit: str
    outcomes: Mapping[str, Outcomes] = field(repr=False)
    digests: Mapping[str, str] = field(factory=dict, repr=False)

    def __str__(self) -> str:
        from orchestrion._cli.display import report_lines

        return "\n".join(report_lines(self))

    def _repr_html_(self) -> str:
        from orchestrion._html import report_html

        return report_html(self)

    @property
    def judged_on(self) -> str:
        """Return the split in words; the training problems are not held out."""
        return f"{'training' if self.split == 'train' else 'held-out'} split '{self.split}'"

    @property
    def verdict(self) -> Verdict:
        """Return which of the others the first contender beats."""
        return Verdict.of(self.ahead)

    @property
    def repeated(self) -> dict[str, str]:
        """Return, by name, the earlier baseline that had the same results on every problem.

        Both came to the same rule, such as an untrained policy and chance, and count as one.
        """
        columns = ("solved", "reward", "cost", "turns")
        earlier: dict[str, str] = {}
        same: dict[str, str] = {}
        for name in self.ahead:
            rows = self.outcomes[name].items()
            results = repr(sorted((id, [row[column] for column in columns]) for id, row in rows))
            if earlier.setdefault(results, name) != name:
                same[name] = earlier[results]
        return same

    @property
    def solves_nothing(self) -> bool:
        """Return whether the first contender solves no problem and earns nothing either."""
        first = self.contenders[0]
        return first.solved.mean == 0 and first.reward.mean <= 0

    def as_json(self) -> dict[str, Any]:
        """Return plain data, as `--json` prints it and the store keeps it."""
        verdict = self.verdict
        return {"verdict": verdict.as_text(self), **plain_data(verdict), **plain_data(self)}


@frozen
class Verdict:
    """Which contenders the first of a report beats, by paired intervals of the reward.

    Args:
        ahead_of: the interval of the difference lies above 0.
        level_with: it includes 0, or no problem has a reward of both.
        behind: it lies below 0.
    """

    ahead_of: tuple[str, ...]
    level_with: tuple[str, ...]
    behind: tuple[str, ...]

    @classmethod
    def of(cls, ahead: Mapping[str, Estimate]) -> Verdict:
        """Return the verdict on differences in reward to each of the others."""
        return cls(
            tuple(name for name, reward in ahead.items() if reward.low > 0),
            tuple(name for name, reward in ahead.items() if not reward.excludes_zero),
            tuple(name for name, reward in ahead.items() if reward.high < 0),
        )

    def as_text(self, report: Report) -> str:
        """Return the verdict as a sentence, with the differences where the first is not ahead.

        It begins with the baselines that are hardest to beat.
        """
        first, repeated = report.contenders[0].name, report.repeated

        def text_of(name: str) -> str:
            return f"{name} (the same as {repeated[name]})" if name in repeated else name

        def with_rewards(names: Sequence[str]) -> str:
            strongest_first = sorted(names, key=lambda name: report.ahead[name].mean)
            return enumerated(
                [f"{text_of(name)}{_in_brackets(report.ahead[name])}" for name in strongest_first]
            )

        others = {
            "behind": with_rewards(self.behind),
            "not ahead of": with_rewards(self.level_with),
            "ahead of": enumerated([text_of(name) for name in self.ahead_of]),
        }
        parts = [f"{word} {names}" for word, names in others.items() if names]
        if not parts:
            return f"{first} was compared with nothing: the config names no baseline"
        text = f"by reward, {first} is {'; '.join(parts)}"
        return f"{first} solves nothing; {text}" if report.solves_nothing else text


def enumerated(names: Sequence[str]) -> str:
    """Return "a, b and c"; empty for nothing."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


def _in_brackets(value: Estimate) -> str:
    return f" ({value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}])" if value.count else ""


def plain_data(record: Any) -> dict[str, Any]:
    """Return an attrs object as plain data, with None for NaN."""

    def without_nan(_owner: Any, _field: Any, value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value

    return asdict(record, value_serializer=without_nan)


def outcomes(episodes: Sequence[Episode]) -> dict[str, dict[str, float | None]]:
    """Return per-problem means of an evaluation's episodes, in the order of the episodes."""
    groups = _grouped(episodes, lambda problem: problem.id)
    return {problem: _means(group) for problem, group in groups.items()}


def problem_digests(problems: Iterable[Problem]) -> dict[str, str]:
    """Return by id the digest of each problem, hidden part included: an id alone proves nothing.

    Problems that differ only by their category are the same to whoever judges the answers.
    """
    return {p.id: problem_digest(replace(p, category="")) for p in problems}


def problem_digest(problem: Problem) -> str:
    try:
        data = encode(problem)
    except StoreError:  # a hidden part is never stored, and may be more than JSON
        data = encode(problem.public())
    return blake2b(data, digest_size=8).hexdigest()


def kinds(episodes: Sequence[Episode]) -> dict[str, dict[str, float | None]]:
    """Return the results of an evaluation by category of problems.

    `reward` is the mean of the episodes that have one, `solved` the share that were solved,
    `at_once` the share that were completed without any call or cost, and without a turn or by a
    first turn that ends the episode. `at_once_reward` is the mean reward of these.
    """
    groups = _grouped(episodes, lambda problem: problem.category)
    return {kind: _kind(groups[kind]) for kind in sorted(groups)}


def _grouped(
    episodes: Sequence[Episode], name: Callable[[Problem], str]
) -> dict[str, list[Episode]]:
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(name(episode.problem), []).append(episode)
    return groups


def _kind(group: Sequence[Episode]) -> dict[str, float | None]:
    at_once = [episode for episode in group if _ended_at_once(episode)]
    return {
        "episodes": float(len(group)),
        "solved": _share(group, lambda episode: episode.success),
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
    rewards = [episode.reward.total for episode in group if episode.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def _share(group: Sequence[Episode], condition: Callable[[Episode], bool]) -> float:
    return sum(map(condition, group)) / len(group)


def _means(group: Sequence[Episode]) -> dict[str, float | None]:
    usages = [episode.usage for episode in group]
    return {
        "solved": _share(group, lambda episode: episode.success),
        "cost": sum(usage.cost for usage in usages) / len(group),
        "turns": sum(len(episode.trajectory) for episode in group) / len(group),
        "reward": _mean_reward(group),
        "missing": float(sum(episode.reward is None for episode in group)),
        "limit": _share(group, lambda episode: episode.status is Status.LIMIT),
        "failed": _share(group, lambda episode: episode.status is Status.FAILED),
        "usd": sum(usage.usd for usage in usages) / len(group),
        "tokens": sum(usage.tokens for usage in usages) / len(group),
        "calls": sum(usage.calls for usage in usages) / len(group),
    }


def amounts(usage: Usage) -> dict[str, float]:
    """Return what `unit_of` compares."""
    return {name: getattr(usage, name) for name in ("cost", "usd", "tokens")}


def unit_of(rows: Iterable[Mapping[str, float | None]]) -> str:
    """Return the unit of the `cost` of rows: what every cost is equal to, or the agents' own.

    Calls are no such unit: costs of 1 a call are common, and mean the agents' own unit.
    """
    table = [row for row in rows if row["cost"]]
    for unit, name in (("US dollars", "usd"), ("tokens", "tokens")):
        if table and all(math.isclose(row["cost"] or 0, row[name] or 0) for row in table):
            return unit
    return OWN_UNIT


def pass_at(share: float, tries: int, k: int) -> float:
    """Return the probability that at least one of `k` of the tries of a problem solved it.

    Unbiased for `k` fresh tries: 1 - C(n - c, k) / C(n, k) with c of n tries solved, equation 1 of
    Chen et al. 2021 (arXiv 2107.03374).
    """
    return 1 - math.comb(tries - round(share * tries), k) / math.comb(tries, k)


def contender(name: str, results: Outcomes, trained_on: int, key: Key, seeds: int = 1) -> Contender:
    """Return a contender's summary; `seeds` is how often each problem was tried."""

    def column(field: str) -> Estimate:
        values = [row[field] for row in results.values()]
        return estimate([value for value in values if value is not None], key.child(field))

    def share(field: str) -> float:
        return mean([row[field] or 0.0 for row in results.values()])

    def passes(k: int) -> Estimate:
        return estimate_share([pass_at(x, seeds, k) for x in solved], key.child("pass", k))

    solved = [row["solved"] or 0.0 for row in results.values()]
    missing = int(sum(row["missing"] or 0 for row in results.values()))
    powers = {2**n for n in range(1, seeds.bit_length())}
    tries = sorted((powers | {seeds}) - {1})
    return Contender(
        name,
        solved=estimate_share(solved, key.child("solved")),
        cost=column("cost"),
        reward=column("reward"),
        turns=column("turns"),
        limit=share("limit"),
        failed=share("failed"),
        missing=missing,
        trained_on=trained_on,
        passes={k: passes(k) for k in tries},
    )


def compare(
    split: str,
    seeds: int,
    results: Mapping[str, Outcomes],
    trained_on: Mapping[str, int],
    key: Key,
    digests: Mapping[str, str] | None = None,
) -> Report:
    """Return the report on several contenders; the first is compared with each of the others."""
    first, *others = results
    contenders = tuple(
        contender(name, rows, trained_on.get(name, 0), key, seeds) for name, rows in results.items()
    )
    ahead = {name: paired(results[first], results[name], "reward") for name in others}
    unit = unit_of(row for rows in results.values() for row in rows.values())
    problems = len(results[first])
    return Report(split, problems, seeds, contenders, ahead, unit, results, digests or {})


def paired(first: Outcomes, second: Outcomes, field: str) -> Estimate:
    """Return the mean of `first - second` over the problems that have a number in both.

    All comparisons draw the same resamples: equal results get equal intervals.
    """
    pairs = [
        (row[field], second[problem][field]) for problem, row in first.items() if problem in second
    ]
    complete = [(a, b) for a, b in pairs if a is not None and b is not None]
    return difference(
        [a for a, _ in complete], [b for _, b in complete], Key(0).child("compare").child(field)
    )


def of_evaluations(
    evaluations: Mapping[str, Mapping[str, Any]], split: str, seeds: int, seed: int
) -> Report:
    """Return the report on a run's evaluations as its store keeps them, its own team first.

    `seeds` is how often each problem was tried, `seed` that of the run.
    """
    results = {name: stored["outcomes"] for name, stored in evaluations.items()}
    trained_on = {name: stored["trained_on"] for name, stored in evaluations.items()}
    key = Key(seed).child("report")
    return compare(split, seeds, results, trained_on, key, stored_digests(evaluations))


def stored_digests(evaluations: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the digests of all problems that stored evaluations name; older runs have none."""
    return {k: v for stored in evaluations.values() for k, v in stored.get("digests", {}).items()}
