"""Turn the results of searches into groups: rewards compared, one chosen, turns credited.

The counterfactual credit of a turn is the score that is lost without it:

    credit_t = score(trajectory) - score(trajectory without turn t)

The trajectory is forked before turn t and goes on with the turns after it: the same activations
under the same keys. Agents that draw from their key alone then give the same output, unless they
read turn t. Turns that started together are left out together and share the credit. Scores are
the verifier's, so costs of turns have no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from orchestrion import Activation, Key, Session, replace
from orchestrion_beam.interfaces import Group, Scale, make_group, reward_of
from orchestrion_beam.nodes import SearchNode, new_turns
from orchestrion_beam.search import BeamSearch, run_all


class JudgedSearch(NamedTuple):
    """A search with the group of its finalists; `nodes` are in the order of the group."""

    search: BeamSearch
    group: Group
    nodes: Sequence[SearchNode]
    chosen: SearchNode | None


async def judge_searches(
    session: Session,
    searches: Sequence[BeamSearch],
    *,
    select: Literal["reward", "value"],
    scale: Scale = "mean",
    least_std: float = 0.0,
    credited: int = 0,
) -> list[JudgedSearch]:
    """Verify and reward all finalists, and compare them within each problem.

    Episodes are numbered in the order of `searches`. The turns of the `credited` best trajectories
    of a problem get counterfactual credits; those of all others share the advantage equally. For
    `scale` and `least_std` see `group_advantages`.
    """
    nodes = [node for search in searches for node in search.finalists]
    for node, episode in zip(
        nodes, await run_all(session.finish(node.branch) for node in nodes), strict=True
    ):
        node.episode = episode

    async def judged(search: BeamSearch) -> JudgedSearch:
        ranked = sorted(search.finalists, key=_rank_by_reward)
        credits: dict[int, tuple[float, ...]] = {}
        for n, node in enumerate(ranked[:credited]):
            if node.episode is not None and node.episode.scores is not None:
                score = node.episode.scores.value
                credits[n], turns = await counterfactual_credits(session, node, score, search.key)
                search.counts.credit_turns += turns
        group = make_group(
            [node.episode for node in ranked if node.episode is not None],
            search.problem.public(),
            search.counts.calls,
            scale=scale,
            least_std=least_std,
            credits=credits,
        )
        if select == "value":
            chosen = min(ranked, key=lambda node: node.rank, default=None)
        else:
            chosen = next((node for node in ranked if reward_of(node.episode) is not None), None)
        return JudgedSearch(search, group, ranked, chosen)

    return await run_all(judged(search) for search in searches)


def _rank_by_reward(node: SearchNode) -> tuple[bool, float, bytes]:
    reward = reward_of(node.episode)
    return (reward is None, -(reward or 0.0), node.tie)


async def counterfactual_credits(
    session: Session, node: SearchNode, score: float, key: Key
) -> tuple[tuple[float, ...], int]:
    """Return the credit of each turn of a trajectory, and how many turns were run for that.

    The node is the end of the trajectory, `score` its verified score, `key` that of the search.
    """
    lineage = node.lineage()
    results = await run_all(_score_without(session, lineage, t, key) for t in range(len(lineage)))
    credits: dict[int, float] = {}
    for (other_score, _), step in zip(results, lineage, strict=True):
        for turn in step.turns:
            credits[turn.index] = (score - other_score) / len(step.turns)
    turns_run = sum(turns for _, turns in results)
    return tuple(credits[turn.index] for turn in node.branch.trajectory.turns), turns_run


async def _score_without(
    session: Session, lineage: Sequence[SearchNode], left_out: int, key: Key
) -> tuple[float, int]:
    """Return the score of a trajectory without one of its steps, and the turns run for it."""
    before = lineage[left_out].parent
    assert before is not None
    branch = before.branch
    new_index = {turn.index: turn.index for turn in branch.trajectory.turns}
    turns_run = 0
    for step in lineage[left_out + 1 :]:
        if branch.step.done:
            break
        start = tuple(_with_reads(activation, new_index) for activation in step.start)
        length = len(branch.trajectory)
        branch = await session.extend(branch, start, key.child("extend", *step.path))
        turns = new_turns(branch.trajectory, length)
        new_index |= {old.index: new.index for old, new in zip(step.turns, turns, strict=True)}
        turns_run += len(turns)
        if any(turn.output.final for turn in turns):
            break
    return (await session.score(branch, final=True)).value, turns_run


def _with_reads(activation: Activation, new_index: Mapping[int, int]) -> Activation:
    """Return the activation reading the same turns at their new indices."""
    if activation.reads is None:
        return activation
    return replace(
        activation, reads=tuple(new_index[i] for i in activation.reads if i in new_index)
    )
