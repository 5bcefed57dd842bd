"""From settings to advantages: one number a call, or one a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from orchestrion_marl import advantages as adv
from orchestrion_marl.calls import Call, lengths_of, rows_of
from orchestrion_marl.marl import Advantage
from orchestrion_marl.rows import Floats, Integers, Rows, ragged

__all__ = ["Values", "estimate"]

Values = Mapping[int, float]
"""A critic's value of what was seen before a call, by the call's place."""


def estimate(
    calls: Sequence[Call],
    agents: Sequence[str],
    settings: Mapping[str, Advantage],
    moving: Mapping[str, float],
    values: Floats | None = None,
) -> Floats:
    """The advantage of every token of every response, shape [sum of lengths].

    An estimator sees the calls of all agents, whoever uses it, and gives those of its own.

    Args:
        calls: of one iteration.
        agents: names of the team.
        settings: the estimator of each agent.
        moving: running means by agent, for `baseline: moving`.
        values: of the critic, shape [B]; for `gae`.
    """
    rows, lengths = rows_of(calls, agents), lengths_of(calls)
    tokens = np.zeros(int(lengths.sum()))
    owner = np.repeat(rows.agent, lengths)
    done: dict[Advantage, Floats] = {}
    for i, name in enumerate(agents):
        one = settings[name]
        if one not in done:
            done[one] = _all(one, calls, rows, lengths, agents, moving, values)
        mine = owner == i
        tokens[mine] = done[one][mine]
    return tokens


def _all(
    one: Advantage,
    calls: Sequence[Call],
    rows: Rows,
    lengths: Integers,
    agents: Sequence[str],
    moving: Mapping[str, float],
    values: Floats | None,
) -> Floats:
    if one.estimator == "reinforce++":
        return adv.reinforce_plus_plus(rows, lengths, one.gamma, one.over, one.centered)
    return ragged(_by_call(one, calls, rows, agents, moving, values), lengths)


def _by_call(
    one: Advantage,
    calls: Sequence[Call],
    rows: Rows,
    agents: Sequence[str],
    moving: Mapping[str, float],
    values: Floats | None,
) -> Floats:
    ddof = 1 if one.std == "sample" else 0
    if one.estimator == "drmas":
        return adv.agent_wise(rows, one.center, one.scale, ddof, one.floor, one.single, one.fined)
    if one.estimator == "grpo":
        return adv.grpo(rows, one.scale != "none", ddof, one.floor, one.single, one.fined)
    if one.estimator == "global_step":
        return adv.pooled(rows, ddof, one.floor, one.single, one.fined)
    if one.estimator == "rloo":
        return adv.rloo(rows, one.over, one.fined)
    if one.estimator == "reinforce":
        known = {i: moving.get(name, 0.0) for i, name in enumerate(agents)}
        if one.baseline == "moving":
            return adv.reinforce(rows, moving=known)
        return adv.reinforce(rows, one.baseline)
    if one.estimator == "gigpo":
        return _gigpo(one, calls, rows, ddof)
    assert values is not None
    return _gae(one, calls, rows, values)


def _gigpo(one: Advantage, calls: Sequence[Call], rows: Rows, ddof: int) -> Floats:
    """Steps are turns; a situation is what the call was prompted with."""
    step = np.array([call.turn for call in calls], np.int64)
    prompts: dict[tuple[int, ...], int] = {}
    anchor = [prompts.setdefault(call.generation.prompt, len(prompts)) for call in calls]
    # The outcome comes with the last call of an episode.
    last = {call.episode: call.turn for call in calls}
    rewards = [call.outcome if call.turn == last[call.episode] else 0.0 for call in calls]
    return adv.gigpo(
        rows,
        step,
        np.array(rewards),
        np.array(anchor, np.int64),
        one.weight,
        one.gamma,
        one.scale != "none",
        one.over == "agent",
        ddof,
    )


def _gae(one: Advantage, calls: Sequence[Call], rows: Rows, values: Floats) -> Floats:
    """An episode's calls are its actions; the outcome comes with the last one."""
    estimates = np.zeros(len(rows))
    for episode in np.unique(rows.episode):
        mine = np.flatnonzero(rows.episode == episode)
        mine = mine[np.argsort([calls[int(i)].turn for i in mine], kind="stable")]
        rewards = np.zeros(len(mine))
        rewards[-1] = rows.outcome[mine[-1]]
        estimates[mine] = adv.gae(rewards, values[mine], one.gamma, one.lam)
    # Whitened by agent: another's scale is none of its business.
    return adv.whiten(estimates, rows.agent) - rows.penalty
