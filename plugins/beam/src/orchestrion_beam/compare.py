"""The last iteration: the search beside its baselines, on problems that chose nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from attrs import frozen

from orchestrion import JSON, Episode, Key, Problem, Session
from orchestrion.runs import Estimate, difference, estimate, mean
from orchestrion_beam.baselines import Attempt, Rivals
from orchestrion_beam.groups import Judged, judge, reward_of
from orchestrion_beam.planning import DEPTHS
from orchestrion_beam.ranks import spearman
from orchestrion_beam.search import Counts, Estimates, Found
from orchestrion_beam.together import together

if TYPE_CHECKING:
    from orchestrion_beam.learner import Learner

__all__ = ["Outcome", "compare", "correlation"]

BEAM = "beam"


@frozen
class Outcome:
    """What a contender has to show on one problem.

    Args:
        reward: of what it picked; None if that is missing, or nothing could be picked.
        solved: whether that is a success.
        calls: what it took.
        turns: likewise.
        attempts: whole trajectories it picked from.
    """

    reward: float | None
    solved: bool
    calls: int
    turns: int
    attempts: int


async def compare(learner: Learner, session: Session, problems: Sequence[Problem]) -> JSON:
    """Search and baselines on every problem; the report as plain data."""
    settings, keys = learner.settings, session.key.child("compare")

    async def one(problem: Problem) -> tuple[Found, Rivals, Key]:
        key = keys.child(problem.id)
        search = learner.search(session, problem, key.child("search"), training=False)
        found = await search.run()
        rivals = Rivals(
            settings,
            session,
            problem,
            search.chooser,
            learner.estimator,
            key.child("baselines"),
            learner.flight,
        )
        await rivals.run(found.counts)
        if settings.select == "value":
            await rivals.pick()
        return found, rivals, key

    ran = await together(one(problem) for problem in problems)
    searches = [(found, key.child("search")) for found, _, key in ran]
    judged = await judge(settings, session, searches, learner.flight, credit=False)
    attempts = [attempt for _, rivals, _ in ran for attempt in rivals.unjudged()]
    episodes = await together(session.finish(one.last.branch) for one in attempts)
    for attempt, episode in zip(attempts, episodes, strict=True):
        attempt.episode = episode
    for _, rivals, _ in ran:
        if settings.select == "reward":
            await rivals.pick()
    probes = await together(_probe(learner, session, rivals, key) for _, rivals, key in ran)
    return _report(learner, judged, [rivals for _, rivals, _ in ran], probes)


# ---------------------------------------------------------------------- is the value any good?


async def _probe(learner: Learner, session: Session, rivals: Rivals, key: Key) -> float | None:
    """How well values order trajectories as their final scores do, on one problem."""
    attempts = [
        one for one in rivals.probes() if one.episode is not None and one.episode.scores is not None
    ]
    values = Estimates(learner.estimator, session, key.child("probe"), Counts())
    found = []
    for depth in DEPTHS:
        nodes = [one.nodes[ceil(depth * (len(one.nodes) - 1))] for one in attempts]
        said = await together(values.of(node) for node in nodes)
        pairs = [
            (one.value, _score(attempt))
            for one, attempt in zip(said, attempts, strict=True)
            if one.value is not None
        ]
        found.append(spearman([a for a, _ in pairs], [b for _, b in pairs]))
    known = [one for one in found if one is not None]
    return mean(known) if known else None


def _score(attempt: Attempt) -> float:
    assert attempt.episode is not None
    assert attempt.episode.scores is not None
    return attempt.episode.scores.value


def correlation(probes: Sequence[float | None], key: Key) -> Estimate:
    """The mean over the problems on which there was anything to order."""
    return estimate([one for one in probes if one is not None], key.child("correlation"))


# -------------------------------------------------------------------------------- the report


def _report(
    learner: Learner,
    judged: Sequence[Judged],
    rivals: Sequence[Rivals],
    probes: Sequence[float | None],
) -> JSON:
    from orchestrion_beam.report import FEW, as_data, sentences

    settings, key = learner.settings, learner.key.child("report")
    results = {BEAM: [_of_beam(one) for one in judged]}
    for name in settings.baselines:
        results[name] = [_of_rival(one, name) for one in rivals]
    noise = correlation(probes, key)
    report = {
        "problems": len(judged),
        "select": settings.select,
        "value": {
            "name": learner.value_name,
            "correlation": as_data(noise),
            "better_than_noise": noise.low > 0 if noise.count >= FEW else None,
        },
        "contenders": [
            _contender(name, outcomes, results[BEAM], key.child(name))
            for name, outcomes in results.items()
        ],
    }
    return {**report, "sentences": sentences(report)}


def _contender(
    name: str, outcomes: Sequence[Outcome], beam: Sequence[Outcome], key: Key
) -> dict[str, JSON]:
    from orchestrion_beam.report import as_data

    rewarded = [one.reward for one in outcomes if one.reward is not None]
    pairs = [
        (a.reward, b.reward)
        for a, b in zip(beam, outcomes, strict=True)
        if a.reward is not None and b.reward is not None
    ]
    ahead = difference([a for a, _ in pairs], [b for _, b in pairs], key)
    return {
        "name": name,
        "reward": as_data(estimate(rewarded, key.child("reward"))),
        "solved": mean([float(one.solved) for one in outcomes]),
        "missing": len(outcomes) - len(rewarded),
        "calls": mean([float(one.calls) for one in outcomes]),
        "turns": mean([float(one.turns) for one in outcomes]),
        "attempts": mean([float(one.attempts) for one in outcomes]),
        "ahead": None if name == BEAM else as_data(ahead),
    }


def _of_beam(judged: Judged) -> Outcome:
    counts, episodes = judged.found.counts, judged.group.episodes
    episode = None if judged.chosen is None else episodes[judged.chosen]
    return _outcome(episode, counts.calls, counts.activations, len(episodes))


def _of_rival(rivals: Rivals, name: str) -> Outcome:
    tried = rivals.tried[name]
    episode = None if tried.picked is None else tried.picked.episode
    return _outcome(episode, tried.calls, tried.turns, len(tried.attempts))


def _outcome(episode: Episode | None, calls: int, turns: int, attempts: int) -> Outcome:
    if episode is None:
        return Outcome(None, False, calls, turns, attempts)
    return Outcome(reward_of(episode), episode.success, calls, turns, attempts)
