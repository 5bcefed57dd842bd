"""From what a search ended with to a group: rewards compared, one chosen, turns credited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from orchestrion import Episode, Key, Session
from orchestrion_beam.advantages import equal_shares, group_advantages, per_agent
from orchestrion_beam.credit import counterfactual
from orchestrion_beam.interfaces import Group
from orchestrion_beam.nodes import Node
from orchestrion_beam.search import Flight, Found
from orchestrion_beam.together import together

if TYPE_CHECKING:
    from orchestrion_beam.trainer import GrpoBeam

__all__ = ["Judged", "judge", "reward_of"]


class Judged(NamedTuple):
    """A search with its group; `nodes` are in the order of the group's episodes."""

    found: Found
    group: Group
    nodes: tuple[Node, ...]
    chosen: int | None
    """Place of the trajectory that was selected; None if there is none."""


def reward_of(episode: Episode) -> float | None:
    """The team's total; None if it is missing."""
    return None if episode.reward is None else episode.reward.total


async def judge(
    settings: GrpoBeam,
    session: Session,
    searches: Sequence[tuple[Found, Key]],
    flight: Flight,
    credit: bool = True,
) -> list[Judged]:
    """Verify and reward everything the searches ended with, and compare it within each problem.

    Args:
        settings: of the trainer.
        session: finishes episodes, which get their numbers in the order given here.
        searches: what was found, each with the key of its search.
        flight: counts what runs.
        credit: whether turns may be left out to see what they are worth.
    """
    nodes = [node for found, _ in searches for node in found.finalists]
    episodes = await together(session.finish(node.branch) for node in nodes)
    ends = iter(zip(nodes, episodes, strict=True))
    return await together(
        _group(settings, session, found, key, [next(ends) for _ in found.finalists], flight, credit)
        for found, key in searches
    )


async def _group(
    settings: GrpoBeam,
    session: Session,
    found: Found,
    key: Key,
    ends: Sequence[tuple[Node, Episode]],
    flight: Flight,
    credit: bool,
) -> Judged:
    def rank(end: tuple[Node, Episode]) -> tuple[bool, float, bytes]:
        reward = reward_of(end[1])
        return (reward is None, -(reward or 0.0), key.child("tie", *end[0].path).digest)

    ends = sorted(ends, key=rank)
    episodes = tuple(episode for _, episode in ends)
    advantages = group_advantages(
        [reward_of(one) for one in episodes], settings.advantage, settings.least_std
    )
    credits = [
        equal_shares(advantage, len(one.trajectory))
        for advantage, one in zip(advantages, episodes, strict=True)
    ]
    if credit and settings.credit == "counterfactual":
        for n, (node, episode) in enumerate(ends[: settings.credited]):
            if episode.scores is not None:
                credits[n], spent = await counterfactual(
                    session, node, episode.scores.value, key, flight
                )
                found.counts.credit_turns += spent
    group = Group(
        found.problem.public(),
        episodes,
        tuple(advantages),
        tuple(credits),
        tuple(
            per_agent([turn.agent for turn in one.turns], credit)
            for one, credit in zip(episodes, credits, strict=True)
        ),
        found.counts.calls,
    )
    nodes = tuple(node for node, _ in ends)
    return Judged(found, group, nodes, _chosen(settings, nodes, episodes, key))


def _chosen(
    settings: GrpoBeam, nodes: Sequence[Node], episodes: Sequence[Episode], key: Key
) -> int | None:
    """The best by reward or by value; ties go by key."""
    if settings.select == "reward":
        # They stand in that order.
        return 0 if episodes and reward_of(episodes[0]) is not None else None
    ranks = [
        (node.value is None, -(node.value or 0.0), key.child("tie", *node.path).digest)
        for node in nodes
    ]
    return min(range(len(nodes)), key=ranks.__getitem__) if nodes else None
