"""Advantages of calls of several agents, as pure functions over arrays.

Names: R is an episode's reward, r = R - penalty a call's, mu and sigma are means and standard
deviations. Statistics never cross a group, which is one problem's episodes. In all estimators

- a cell whose values are equal gives exactly 0, by comparing values, not by dividing by a
  standard deviation that rounding has made;
- a cell of one gives 0 unless `single` says otherwise: nothing was there to compare it with;
- the penalty comes off once, after the normalisation, unless `fined` is "inside": a group that
  differs in penalties alone would otherwise be blown up to full size, whatever the penalty's size.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrion_marl.rows import Cells, Floats, Integers, Rows

__all__ = [
    "Fined",
    "Over",
    "Single",
    "agent_wise",
    "gae",
    "gigpo",
    "grpo",
    "mixed_groups",
    "overlong",
    "pooled",
    "reinforce",
    "reinforce_plus_plus",
    "rloo",
    "whiten",
]

Over = Literal["agent", "group"]
Single = Literal["zero", "raw", "batch"]
Fined = Literal["outside", "inside"]


def agent_wise(
    rows: Rows,
    center: Over = "agent",
    scale: Over | Literal["none"] = "agent",
    ddof: int = 1,
    floor: float = 0.0,
    single: Single = "zero",
    fined: Fined = "outside",
) -> Floats:
    """Dr.MAS: every agent's calls are normalised among themselves, shape [B].

    A = (r - mu_k) / sigma_k over the calls of agent k in the group, equation 5 of Feng et al.
    2026 (arXiv 2602.08847). `center` and `scale` give the four cells of its ablation: statistics
    of "group" are over episodes, each counted once, as in GRPO.

    Args:
        rows: the calls.
        center: whose mean is subtracted.
        scale: whose standard deviation divides; "none" divides by nothing.
        ddof: 1 for the sample form of sigma (their code), 0 for the population form (their paper).
        floor: least standard deviation that divides.
        single: what an agent called once in a group gets: 0, its reward, or its reward minus the
            agent's mean over the batch.
        fined: whether penalties come off after or before the normalisation.
    """
    scores = rows.outcome - rows.penalty if fined == "inside" else rows.outcome
    cells = Cells(rows.group, rows.agent)
    mean = cells.mean(scores)[cells.of]
    deviation = cells.std(scores, ddof)[cells.of]
    # Where an agent's calls are all equal there is nothing to tell apart: (mu, sigma_k) would
    # otherwise divide a difference by nothing.
    dead = deviation == 0
    if center == "group" or scale == "group":
        team_mean, team_deviation = _of_episodes(rows, scores, ddof)
        mean = team_mean if center == "group" else mean
        if scale == "group":
            deviation = team_deviation
            dead = team_deviation == 0 if center == "group" else dead
    advantages = scores - mean
    if scale != "none":
        advantages = _divided(advantages, deviation, floor)
        advantages[dead] = 0.0
    alone = cells.count[cells.of] == 1
    advantages[alone] = _single(rows, scores, single)[alone]
    return _fine(advantages, rows, fined)


def grpo(
    rows: Rows,
    scale: bool = True,
    ddof: int = 1,
    floor: float = 0.0,
    single: Single = "zero",
    fined: Fined = "outside",
) -> Floats:
    """GRPO over episodes, which every call of an episode shares, shape [B].

    A = (R - mu) / sigma over the episodes of a group, each counted once: Shao et al. 2024 (arXiv
    2402.03300); without `scale` the form of Dr. GRPO (arXiv 2503.20783). With `fined` "inside" an
    episode's score is the mean of its calls'.
    """
    scores = rows.outcome
    if fined == "inside":
        cells = Cells(rows.episode)
        scores = cells.mean(rows.outcome - rows.penalty)[cells.of]
    mean, deviation = _of_episodes(rows, scores, ddof)
    advantages = scores - mean
    if scale:
        advantages = _divided(advantages, deviation, floor)
    else:
        advantages[deviation == 0] = 0.0
    episodes = Cells(rows.group[rows.firsts])
    lonely = np.isin(rows.group, rows.group[rows.firsts][episodes.count[episodes.of] == 1])
    advantages[lonely] = _single(rows, scores, single, by_agent=False)[lonely]
    return _fine(advantages, rows, fined)


def pooled(
    rows: Rows,
    ddof: int = 1,
    floor: float = 0.0,
    single: Single = "zero",
    fined: Fined = "outside",
) -> Floats:
    """All calls of a group normalised together, whoever was called, shape [B].

    Weighs calls as `agent_wise` does and pools agents as `grpo` does: it tells apart the two
    things in which those differ.
    """
    everyone = Rows(rows.outcome, rows.group, rows.episode, np.zeros_like(rows.agent), rows.penalty)
    return agent_wise(everyone, "agent", "agent", ddof, floor, single, fined)


def rloo(rows: Rows, over: Over = "agent", fined: Fined = "outside") -> Floats:
    """REINFORCE with the mean of the other episodes as baseline, shape [B].

    Kool et al. 2019 (Buy 4 REINFORCE samples, get a baseline for free); Ahmadian et al. 2024
    (arXiv 2402.14740). A whole episode is left out and not a call: calls of one episode share its
    reward, which must not be in its own baseline. With `over` "agent" the baseline is the mean
    over that agent's calls in the other episodes; without any, the advantage is 0.
    """
    scores = rows.outcome - rows.penalty if fined == "inside" else rows.outcome
    if over == "group":
        own = Cells(rows.episode)
        scores = own.mean(scores)[own.of]
        firsts = rows.firsts
        group, first_scores = Cells(rows.group[firsts]), scores[firsts]
        total = group.sum(first_scores)[group.of] - first_scores
        others = group.count[group.of] - 1
        baseline, known = _ratio(total, others)
        by_episode = np.where(known, first_scores - baseline, 0.0)
        # `firsts` is in the order of episode ids, and so are the cells of episodes.
        return _fine(by_episode[own.of], rows, fined)
    cells = Cells(rows.group, rows.agent)
    own = Cells(rows.group, rows.agent, rows.episode)
    total = cells.sum(scores)[cells.of] - own.sum(scores)[own.of]
    baseline, known = _ratio(total, cells.count[cells.of] - own.count[own.of])
    return _fine(np.where(known, scores - baseline, 0.0), rows, fined)


def reinforce(
    rows: Rows,
    baseline: Literal["none", "batch", "agent"] = "agent",
    moving: dict[int, float] | None = None,
) -> Floats:
    """R - b - penalty, shape [B]: Williams 1992.

    Args:
        rows: the calls.
        baseline: nothing, the mean reward of all calls, or of all calls of that agent.
        moving: baselines by agent from earlier batches; takes the place of `baseline`.
    """
    scores: Floats = rows.outcome - rows.penalty
    if moving is not None:
        known = [moving.get(int(agent), 0.0) for agent in rows.agent]
        return scores - np.array(known, np.float64)
    if baseline == "none" or not len(rows):
        return scores
    cells = Cells(rows.agent if baseline == "agent" else np.zeros_like(rows.agent))
    return scores - cells.mean(rows.outcome)[cells.of]


def reinforce_plus_plus(
    rows: Rows,
    lengths: Integers,
    gamma: float = 1.0,
    over: Over = "agent",
    centered: bool = False,
) -> Floats:
    """REINFORCE++: discounted returns of tokens, whitened over the batch, shape [sum of lengths].

    Hu 2025 (arXiv 2501.03262). The reward is on a call's last token. With `centered`, its variant
    with a baseline: the group's mean is subtracted first. Whitening is over the tokens of each
    agent, so that no agent's scale is another's; `over` "group" whitens all together. Every token
    of a call then has the call's penalty taken off.

    Raises:
        ValueError: a call has no tokens.
    """
    if (lengths < 1).any():
        raise ValueError("every call needs a token")
    scores = rows.outcome
    if centered:
        groups = Cells(rows.group)
        scores = scores - groups.mean(scores)[groups.of]
    ends = np.cumsum(lengths)
    to_end = np.repeat(ends, lengths) - 1 - np.arange(ends[-1] if len(ends) else 0)
    returns = np.repeat(scores, lengths) * gamma**to_end
    owner = np.zeros(len(returns), np.int64) if over == "group" else np.repeat(rows.agent, lengths)
    return whiten(returns, owner) - np.repeat(rows.penalty, lengths)


def whiten(values: Floats, owner: Integers) -> Floats:
    """Mean 0 and sample variance 1 among the values of each owner; 0 where all are equal."""
    cells = Cells(owner)
    return _divided(values - cells.mean(values)[cells.of], cells.std(values, 1)[cells.of], 0.0)


def gigpo(
    rows: Rows,
    step: Integers,
    rewards: Floats,
    anchor: Integers,
    weight: float = 1.0,
    gamma: float = 0.95,
    scale: bool = False,
    by_agent: bool = True,
    ddof: int = 1,
) -> Floats:
    """GiGPO: an episode's advantage plus that of its steps among equal situations, shape [B].

    Feng et al. 2025 (arXiv 2505.10978). Returns are discounted over steps of the environment; all
    calls of one step share its return, and calls that met the same situation in a group are
    compared with each other. The penalty comes off with the episode's advantage.

    Args:
        rows: the calls; within an episode in any order.
        step: the environment's step of each call, from 0, shape [B].
        rewards: what the step of each call gave, equal for all calls of one step, shape [B].
        anchor: equal integers for equal situations, shape [B].
        weight: of the second part.
        gamma: discount between steps.
        scale: divide by standard deviations; else by nothing.
        by_agent: compare calls of one agent only.
        ddof: see `agent_wise`.
    """
    overall = grpo(rows, scale=scale, ddof=ddof)
    returns = _step_returns(rows, step, rewards, gamma)
    ids = (rows.group, anchor, rows.agent) if by_agent else (rows.group, anchor)
    cells = Cells(*ids)
    local = returns - cells.mean(returns)[cells.of]
    deviation = cells.std(returns, ddof)[cells.of]
    if scale:
        local = _divided(local, deviation, 0.0)
    else:
        local[deviation == 0] = 0.0
    return overall + weight * local


def _step_returns(rows: Rows, step: Integers, rewards: Floats, gamma: float) -> Floats:
    returns = np.zeros(len(rows))
    for episode in np.unique(rows.episode):
        mine = np.flatnonzero(rows.episode == episode)
        by_step = {int(step[i]): float(rewards[i]) for i in mine}
        value, after = 0.0, None
        found: dict[int, float] = {}
        for at in sorted(by_step, reverse=True):
            value = by_step[at] + (value * gamma ** (after - at) if after is not None else 0.0)
            found[at], after = value, at
        returns[mine] = [found[int(at)] for at in step[mine]]
    return returns


def gae(
    rewards: Floats,
    values: Floats,
    gamma: float = 1.0,
    lam: float = 0.95,
    mask: Integers | None = None,
    last: float = 0.0,
) -> Floats:
    """Generalised advantage estimation over one sequence, shape [T]: Schulman et al. 2016.

    An element is a token, or a call of an agent taken as one action; A_t = delta_t + gamma lam
    A_(t+1) with delta_t = r_t + gamma V_(t+1) - V_t.

    Args:
        rewards: shape [T].
        values: of the state before each element, shape [T].
        gamma: discount.
        lam: 1 gives return minus value, 0 the error of one step.
        mask: 0 for elements that the policy did not choose: what is known beyond them is carried
            through unchanged, and their own advantage is 0.
        last: value after the end; 0 for an episode that is over.
    """
    advantages = np.zeros(len(rewards))
    value, carried = last, 0.0
    for t in reversed(range(len(rewards))):
        if mask is not None and not mask[t]:
            continue
        carried = rewards[t] + gamma * value - values[t] + gamma * lam * carried
        advantages[t], value = carried, values[t]
    return advantages


def overlong(lengths: Integers, longest: int, buffer: int, factor: float = 1.0) -> Floats:
    """DAPO's soft punishment of long answers, 0 to -`factor`, shape of `lengths`.

    Equation 13 of Yu et al. 2025 (arXiv 2503.14476): nothing up to `longest - buffer` tokens, then
    linear down to -`factor` at `longest`.

    Raises:
        ValueError: the buffer is no part of the length.
    """
    if not 0 < buffer <= longest:
        raise ValueError(f"the buffer must be from 1 to {longest}, not {buffer}")
    return factor * np.clip((longest - buffer - lengths) / buffer, -1.0, 0.0)


def mixed_groups(rows: Rows) -> Integers:
    """The groups whose episodes do not all have the same reward: DAPO's dynamic sampling."""
    firsts = rows.firsts
    groups = Cells(rows.group[firsts])
    spread = groups.std(rows.outcome[firsts], 0)[groups.of] > 0
    return np.unique(rows.group[firsts][spread])


def _of_episodes(rows: Rows, scores: Floats, ddof: int) -> tuple[Floats, Floats]:
    """Mean and deviation of each row's group over its episodes, each counted once."""
    own = Cells(rows.episode)
    firsts = rows.firsts
    by_episode = own.mean(scores)
    groups = Cells(rows.group[firsts])
    mean = groups.mean(by_episode)[groups.of]
    deviation = groups.std(by_episode, ddof)[groups.of]
    return mean[own.of], deviation[own.of]


def _divided(centered: Floats, deviation: Floats, floor: float) -> Floats:
    divisor = np.maximum(deviation, floor)
    return np.divide(centered, divisor, out=np.zeros_like(centered), where=deviation > 0)


def _ratio(total: Floats, count: Integers) -> tuple[Floats, NDArray[np.bool_]]:
    known = count > 0
    return np.divide(total, count, out=np.zeros_like(total), where=known), known


def _single(rows: Rows, scores: Floats, how: Single, by_agent: bool = True) -> Floats:
    if how == "zero":
        return np.zeros(len(rows))
    if how == "raw":
        return scores
    cells = Cells(rows.agent if by_agent else np.zeros_like(rows.agent))
    return scores - cells.mean(scores)[cells.of]


def _fine(advantages: Floats, rows: Rows, fined: Fined) -> Floats:
    return advantages - rows.penalty if fined == "outside" else advantages
