"""Compare the search with baselines on held-out problems: the numbers of the report.

Whether the estimator is any good is measured on independent attempts, whose values chose nothing:
the rank correlation (Spearman) of values along the way with final scores, within each problem.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from statistics import correlation
from typing import Any

from attrs import asdict

from orchestrion import JSON, Key, Problem, Session
from orchestrion.runs import Estimate, difference, estimate, mean
from orchestrion_beam.baselines import DEPTHS, Baselines, ComparisonSettings, ContenderRun
from orchestrion_beam.groups import judge_searches
from orchestrion_beam.interfaces import ValueEstimator
from orchestrion_beam.nodes import SearchNode
from orchestrion_beam.report import FEWEST_PROBLEMS, sentences
from orchestrion_beam.search import BeamSearch, EstimateCache, run_all

BEAM = "beam"


async def compare(
    settings: ComparisonSettings,
    session: Session,
    problems: Sequence[Problem],
    make_search: Callable[[Problem, Key], BeamSearch],
    estimator: ValueEstimator,
    value_name: str,
    key: Key,
) -> dict[str, Any]:
    """Run search and baselines on every problem; return the report as plain data.

    The session's key names all draws of the runs, `key` those of resampling for intervals;
    `value_name` stands for the estimator in the report.
    """
    keys = session.key.child("compare")

    async def run(problem: Problem) -> tuple[BeamSearch, Baselines]:
        problem_key = keys.child(problem.id)
        search = make_search(problem, problem_key.child("search"))
        await search.run()
        key = problem_key.child("baselines")
        values = EstimateCache(estimator, session, key.child("values"))
        baselines = Baselines(settings, session, problem, search.chooser, key, values)
        await baselines.run(search.counts)
        if settings.select == "value":
            await baselines.pick()
        return search, baselines

    runs = await run_all(run(problem) for problem in problems)
    judged = await judge_searches(session, [search for search, _ in runs], select=settings.select)
    ends = [end for _, baselines in runs for end in baselines.to_judge()]
    episodes = await run_all(session.finish(end.branch) for end in ends)
    for end, episode in zip(ends, episodes, strict=True):
        end.episode = episode
    if settings.select == "reward":
        for _, baselines in runs:
            await baselines.pick()
    correlations = await run_all(
        _correlation(
            baselines.probes(),
            EstimateCache(estimator, session, keys.child(baselines.problem.id).child("probe")),
        )
        for _, baselines in runs
    )
    contenders: dict[str, list[ContenderRun]] = {
        BEAM: [
            ContenderRun(nodes, search.counts.calls, search.counts.activations, chosen)
            for search, _, nodes, chosen in judged
        ],
    }
    for name in settings.baselines:
        contenders[name] = [baselines.runs[name] for _, baselines in runs]
    defined = [number for number in correlations if number is not None]
    overall = estimate(defined, key.child("correlation"))
    enough = overall.count >= FEWEST_PROBLEMS
    report: dict[str, Any] = {
        "problems": len(judged),
        "select": settings.select,
        "value": {
            "name": value_name,
            "correlation": _as_data(overall),
            "better_than_noise": overall.low > 0 if enough else None,
        },
        "contenders": [
            _contender(name, own, contenders[BEAM], key.child(name))
            for name, own in contenders.items()
        ],
    }
    return {**report, "sentences": sentences(report)}


async def _correlation(ends: Sequence[SearchNode], values: EstimateCache) -> float | None:
    """Return the mean rank correlation of values with final scores on one problem."""
    scored = [end for end in ends if end.episode is not None and end.episode.scores is not None]
    scores = [end.episode.scores.value for end in scored if end.episode and end.episode.scores]
    correlations = []
    for depth in DEPTHS:
        nodes = [_at_depth(end, depth) for end in scored]
        estimates = await run_all(values.value_of(node) for node in nodes)
        pairs = [
            (valued.value, score)
            for valued, score in zip(estimates, scores, strict=True)
            if valued.value is not None
        ]
        correlations.append(spearman([a for a, _ in pairs], [b for _, b in pairs]))
    defined = [number for number in correlations if number is not None]
    return mean(defined) if defined else None


def _at_depth(end: SearchNode, depth: float) -> SearchNode:
    """Return a trajectory as it was at this share of its length; lengths count starts."""
    lineage = end.lineage()
    n = math.ceil(depth * len(lineage))
    return lineage[n - 1] if n else end


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; equal numbers share their mean rank.

    Returns None if all of `second` are equal, since there is nothing to order; 0 if only all of
    `first` are, since it orders nothing.
    """
    if len(second) < 2 or min(second) == max(second):
        return None
    if min(first) == max(first):
        return 0.0
    return correlation(ranks_of(first), ranks_of(second))


def ranks_of(numbers: Sequence[float]) -> list[float]:
    """Return the rank of each number, from 0; equal numbers share their mean rank."""
    ordered = sorted(numbers)
    return [(bisect_left(ordered, n) + bisect_right(ordered, n) - 1) / 2 for n in numbers]


def _contender(
    name: str, runs: Sequence[ContenderRun], beam: Sequence[ContenderRun], key: Key
) -> dict[str, JSON]:
    rewards = [run.reward for run in runs if run.reward is not None]
    pairs = [
        (of_beam.reward, own.reward)
        for of_beam, own in zip(beam, runs, strict=True)
        if of_beam.reward is not None and own.reward is not None
    ]
    ahead = difference([a for a, _ in pairs], [b for _, b in pairs], key)
    return {
        "name": name,
        "reward": _as_data(estimate(rewards, key.child("reward"))),
        "solved": mean([float(run.solved) for run in runs]),
        "missing": len(runs) - len(rewards),
        "calls": mean([float(run.calls) for run in runs]),
        "turns": mean([float(run.turns) for run in runs]),
        "attempts": mean([float(len(run.attempts)) for run in runs]),
        "ahead": None if name == BEAM else _as_data(ahead),
    }


def _as_data(value: Estimate) -> dict[str, JSON]:
    """Return an estimate as plain data, with null for NaN."""
    return {
        name: None if isinstance(number, float) and math.isnan(number) else number
        for name, number in asdict(value).items()
    }
