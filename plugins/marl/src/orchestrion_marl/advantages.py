"""Advantages of calls of several agents: pure functions of numpy arrays, one element a call.

Notation: R is the reward of an episode, r = R - penalty that of a call, mu and sigma are means and
standard deviations, a group is the episodes of one problem, and a cell is a set of calls that are
compared with each other. Statistics never mix groups. In all estimators

- a cell whose values are equal gives exactly 0: the values are compared, since sigma itself may be
  a tiny number other than 0 after rounding;
- a cell of one call gives 0 unless `single` says otherwise: there is no call to compare it with;
- the penalty is subtracted once, after the normalisation, unless `fined` is "inside". In a group
  whose episodes differ in penalties only, sigma comes from the penalties alone, and normalised
  penalties have full size however small they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import evolve

from orchestrion_marl.rows import Cells, Floats, Integers, Rows
from orchestrion_marl.settings import Advantage, Overlong

DEFAULT = Advantage()


def estimate(
    rows: Rows,
    lengths: Integers,
    settings: Sequence[Advantage],
    moving: Mapping[int, float],
    values: Floats | None = None,
) -> Floats:
    """Return the advantage of every token of every response, shape [sum of lengths].

    Each estimator is given the calls of all agents; an agent takes those of its own calls.

    Args:
        rows: the calls of an iteration.
        lengths: tokens of each response, shape [B].
        settings: the estimator of each agent, by agent id.
        moving: running mean of rewards by agent id, for `baseline: moving`.
        values: value before each token, shape [sum of lengths]; required by `gae`, which uses those
            of first tokens where its actions are calls.
    """
    tokens = np.zeros(int(lengths.sum()))
    owner = np.repeat(rows.agent, lengths)
    computed: dict[Advantage, Floats] = {}
    for agent, advantage in enumerate(settings):
        if advantage not in computed:
            computed[advantage] = _of_tokens(rows, lengths, advantage, moving, values)
        mine = owner == agent
        tokens[mine] = computed[advantage][mine]
    return tokens


def _of_tokens(
    rows: Rows,
    lengths: Integers,
    settings: Advantage,
    moving: Mapping[int, float],
    values: Floats | None,
) -> Floats:
    if settings.estimator == "reinforce++":
        return reinforce_plus_plus(rows, lengths, settings)
    if settings.estimator == "gae":
        assert values is not None, "gae needs the values of a critic"
        if settings.actions == "tokens":
            return gae_of_team(rows, lengths, values, settings)
        first = values[np.cumsum(lengths) - lengths]
        return np.repeat(gae_of_team(rows, np.ones_like(lengths), first, settings), lengths)
    if settings.estimator == "reinforce":
        return np.repeat(reinforce(rows, settings, moving), lengths)
    of_calls = {
        "drmas": drmas,
        "grpo": grpo,
        "global_step": global_step,
        "rloo": rloo,
        "gigpo": gigpo,
    }
    return np.repeat(of_calls[settings.estimator](rows, settings), lengths)


def drmas(rows: Rows, settings: Advantage = DEFAULT) -> Floats:
    """Return the advantages of Dr.MAS, which normalises each agent's calls apart, shape [B].

    A = (r - mu_k) / sigma_k over the calls of agent k in the group, equation 5 of Feng et al.
    2026 (arXiv 2602.08847). `center` and `scale` give the four cells of its ablation: statistics
    of "group" are over episodes, each counted once, as in GRPO. `std` is "sample" in their code and
    "population" in their paper.
    """
    scores = _scores(rows, settings)
    cells = Cells(rows.group, rows.agent)
    mean = cells.mean(scores)[cells.of]
    deviation = cells.std(scores, settings.ddof)[cells.of]
    # Where an agent's calls are all equal, (mu, sigma_k) would divide a difference by 0.
    dead = deviation == 0
    if settings.center == "group" or settings.scale == "group":
        team_mean, team_deviation, _ = _episode_statistics(rows, scores, settings)
        mean = team_mean if settings.center == "group" else mean
        if settings.scale == "group":
            deviation = team_deviation
            dead = team_deviation == 0 if settings.center == "group" else dead
    advantages = scores - mean
    if settings.scale != "none":
        advantages = _divided(advantages, deviation, settings.floor)
        advantages[dead] = 0.0
    alone = cells.count[cells.of] == 1
    advantages[alone] = _uncompared(scores, settings, rows.agent)[alone]
    return _less_penalty(advantages, rows, settings)


def grpo(rows: Rows, settings: Advantage = DEFAULT) -> Floats:
    """Return the advantages of GRPO, equal for all calls of an episode, shape [B].

    A = (R - mu) / sigma over the episodes of a group, each counted once: Shao et al. 2024 (arXiv
    2402.03300); with `scale` "none" the form of Dr. GRPO (arXiv 2503.20783). With `fined` "inside"
    an episode's score is the mean of its calls' scores.
    """
    scores = rows.outcome
    if settings.fined == "inside":
        episodes = Cells(rows.episode)
        scores = episodes.mean(rows.outcome - rows.penalty)[episodes.of]
    mean, deviation, count = _episode_statistics(rows, scores, settings)
    advantages = _normalised(scores - mean, deviation, settings)
    alone = count == 1
    advantages[alone] = _uncompared(scores, settings, np.zeros_like(rows.agent))[alone]
    return _less_penalty(advantages, rows, settings)


def global_step(rows: Rows, settings: Advantage = DEFAULT) -> Floats:
    """Return advantages from all calls of a group normalised together, shape [B].

    Counts calls as `drmas` does, and mixes agents as `grpo` does: it separates the two differences
    between them.
    """
    return drmas(evolve(rows, agent=np.zeros_like(rows.agent)), settings)


def rloo(rows: Rows, settings: Advantage = DEFAULT) -> Floats:
    """Return r minus the mean of the group's other episodes, shape [B].

    Kool et al. 2019 (Buy 4 REINFORCE samples, get a baseline for free); Ahmadian et al. 2024
    (arXiv 2402.14740). The baseline leaves out the whole episode, since all of its calls share one
    reward. With `over` "agent" it is the mean over that agent's calls in the other episodes. A
    call without a baseline has advantage 0.
    """
    scores = _scores(rows, settings)
    if settings.over == "group":
        episode_scores, episodes, groups = _by_episode(rows, scores)
        total = groups.sum(episode_scores)[groups.of] - episode_scores
        others = groups.count[groups.of] - 1
        advantages = _less_mean(episode_scores, total, others)[episodes.of]
    else:
        cells = Cells(rows.group, rows.agent)
        own = Cells(rows.group, rows.agent, rows.episode)
        total = cells.sum(scores)[cells.of] - own.sum(scores)[own.of]
        others = cells.count[cells.of] - own.count[own.of]
        advantages = _less_mean(scores, total, others)
    return _less_penalty(advantages, rows, settings)


def reinforce(
    rows: Rows, settings: Advantage = DEFAULT, moving: Mapping[int, float] | None = None
) -> Floats:
    """Return R - b - penalty, shape [B]: Williams 1992.

    `baseline` says whether b is 0, the mean reward of all calls, that of all calls of the agent, or
    what `moving` has for its id from earlier batches.
    """
    scores: Floats = rows.outcome - rows.penalty
    if settings.baseline == "moving":
        means = moving or {}
        return scores - np.array([means.get(int(agent), 0.0) for agent in rows.agent], np.float64)
    if settings.baseline == "none":
        return scores
    cells = Cells(rows.agent if settings.baseline == "agent" else np.zeros_like(rows.agent))
    return scores - cells.mean(rows.outcome)[cells.of]


def reinforce_plus_plus(rows: Rows, lengths: Integers, settings: Advantage = DEFAULT) -> Floats:
    """Return the advantages of tokens by REINFORCE++, shape [sum of lengths].

    Hu 2025 (arXiv 2501.03262): the reward is on a call's last token, and discounted returns are
    whitened over the batch. `centered` is its variant with a baseline: the group's mean is
    subtracted first. Tokens of each agent are whitened apart, so that an agent's scale does not
    depend on other agents; `over` "group" whitens all together. The call's penalty is subtracted
    from each of its tokens.
    """
    scores = rows.outcome
    if settings.centered:
        groups = Cells(rows.group)
        scores = scores - groups.mean(scores)[groups.of]
    ends = np.cumsum(lengths)
    tokens_left = np.repeat(ends, lengths) - 1 - np.arange(ends[-1])
    returns = np.repeat(scores, lengths) * settings.gamma**tokens_left
    owner = np.repeat(rows.agent, lengths)
    if settings.over == "group":
        owner = np.zeros_like(owner)
    return whiten(returns, owner) - np.repeat(rows.penalty, lengths)


def whiten(values: Floats, owner: Integers) -> Floats:
    """Return values with mean 0 and sample variance 1 for each owner; 0 where all are equal."""
    cells = Cells(owner)
    return _divided(values - cells.mean(values)[cells.of], cells.std(values, 1)[cells.of], 0.0)


def gigpo(rows: Rows, settings: Advantage = DEFAULT) -> Floats:
    """Return an episode's advantage plus that of its steps among equal situations, shape [B].

    GiGPO, Feng et al. 2025 (arXiv 2505.10978). Steps are turns, and the reward comes with the turn
    of an episode's last call. All calls of one step share its discounted return, and calls of a
    group that met the same situation are compared with each other, with `over` "agent" only those
    of one agent. The penalty is subtracted with the episode's advantage.
    """
    of_episode = grpo(rows, settings)
    returns = _step_returns(rows, settings.gamma)
    by_agent = [rows.agent] if settings.over == "agent" else []
    cells = Cells(rows.group, rows.situation, *by_agent)
    deviation = cells.std(returns, settings.ddof)[cells.of]
    of_step = _normalised(returns - cells.mean(returns)[cells.of], deviation, settings)
    return of_episode + settings.weight * of_step


def _step_returns(rows: Rows, gamma: float) -> Floats:
    returns = np.zeros(len(rows))
    for episode in np.unique(rows.episode):
        mine = np.flatnonzero(rows.episode == episode)
        turns = rows.turn[mine]
        rewarded = later = int(turns[-1])
        value = 0.0
        for turn in sorted(set(turns.tolist()), reverse=True):
            reward = float(rows.outcome[mine[-1]]) if turn == rewarded else 0.0
            value = reward + value * gamma ** (later - turn)
            returns[mine[turns == turn]] = value
            later = turn
    return returns


def gae(rewards: Floats, values: Floats, gamma: float = 1.0, lam: float = 0.95) -> Floats:
    """Return generalised advantage estimates over one finished sequence, shape [T].

    Schulman et al. 2016 (arXiv 1506.02438): A_t = delta_t + gamma lam A_(t+1) with
    delta_t = r_t + gamma V_(t+1) - V_t, and V = 0 after the end. An element is a token, or a call
    of an agent taken as one action.

    Args:
        rewards: shape [T].
        values: value of the state before each element, shape [T].
        gamma: discount.
        lam: 1 gives return minus value, 0 the error of one step.
    """
    advantages = np.zeros(len(rewards))
    next_value, advantage = 0.0, 0.0
    for t in reversed(range(len(rewards))):
        advantage = rewards[t] + gamma * next_value - values[t] + gamma * lam * advantage
        advantages[t], next_value = advantage, values[t]
    return advantages


def gae_of_team(rows: Rows, lengths: Integers, values: Floats, settings: Advantage) -> Floats:
    """Return the advantage of every action by `gae` over episodes, shape [sum of lengths].

    Args:
        rows: the calls.
        lengths: actions in each call, shape [B].
        values: value before each action, shape [sum of lengths].
        settings: gamma and lambda.
    """
    actions = np.split(np.arange(len(values)), np.cumsum(lengths)[:-1])
    advantages = np.zeros(len(values))
    for episode in np.unique(rows.episode):
        calls = np.flatnonzero(rows.episode == episode)
        calls = calls[np.argsort(rows.turn[calls], kind="stable")]
        places = np.concatenate([actions[call] for call in calls])
        rewards = np.zeros(len(places))
        rewards[-1] = rows.outcome[calls[-1]]
        advantages[places] = gae(rewards, values[places], settings.gamma, settings.lam)
    # Each agent is whitened apart, so that its scale does not depend on other agents.
    whitened = whiten(advantages, np.repeat(rows.agent, lengths))
    return whitened - np.repeat(rows.penalty, lengths)


def overlong(lengths: Integers, settings: Overlong) -> Floats:
    """Return DAPO's soft reward of long responses, from 0 to -`factor`, shape of `lengths`.

    Equation 13 of Yu et al. 2025 (arXiv 2503.14476): 0 up to `longest - buffer` tokens, then
    linear down to -`factor` at `longest`.
    """
    begin = settings.longest - settings.buffer
    return settings.factor * np.clip((begin - lengths) / settings.buffer, -1.0, 0.0)


def amplification(rows: Rows, agent: int) -> float:
    """Return f_k = (sigma_k^2 + (mu_k - mu)^2) / sigma^2, the mean over groups with sigma > 0.

    Lemma 4.2 of Feng et al. 2026: the factor by which an agent's expected squared gradient is
    larger with statistics of the whole team than with its own. It is at most the number of
    episodes in a group.
    """
    factors = []
    for group in np.unique(rows.group):
        mine = rows.group == group
        outcomes = rows.outcome[mine][np.unique(rows.episode[mine], return_index=True)[1]]
        own = rows.outcome[mine & (rows.agent == agent)]
        if outcomes.max() > outcomes.min() and len(own):
            factors.append((own.var() + (own.mean() - outcomes.mean()) ** 2) / outcomes.var())
    return float(np.mean(factors)) if factors else 0.0


def _scores(rows: Rows, settings: Advantage) -> Floats:
    return rows.outcome - rows.penalty if settings.fined == "inside" else rows.outcome


def _less_penalty(advantages: Floats, rows: Rows, settings: Advantage) -> Floats:
    return advantages - rows.penalty if settings.fined == "outside" else advantages


def _by_episode(rows: Rows, scores: Floats) -> tuple[Floats, Cells, Cells]:
    """Return the mean score of each episode, the cells of episodes, and the groups of these."""
    episodes = Cells(rows.episode)
    # Both the cells and the first rows are in the order of episode ids.
    first_rows = np.unique(rows.episode, return_index=True)[1]
    return episodes.mean(scores), episodes, Cells(rows.group[first_rows])


def _episode_statistics(
    rows: Rows, scores: Floats, settings: Advantage
) -> tuple[Floats, Floats, Integers]:
    """Return mean, deviation and number of the episodes of each row's group."""
    episode_scores, episodes, groups = _by_episode(rows, scores)
    group = groups.of[episodes.of]
    deviation = groups.std(episode_scores, settings.ddof)
    return groups.mean(episode_scores)[group], deviation[group], groups.count[group]


def _normalised(centered: Floats, deviation: Floats, settings: Advantage) -> Floats:
    """Return `centered` over the deviation unless `scale` is "none"; 0 where that is 0."""
    if settings.scale != "none":
        return _divided(centered, deviation, settings.floor)
    return np.where(deviation == 0, 0.0, centered)


def _divided(centered: Floats, deviation: Floats, floor: float) -> Floats:
    """Return `centered` over `deviation`, at least `floor`; 0 where the deviation is 0."""
    divisor = np.maximum(deviation, floor)
    return np.divide(centered, divisor, out=np.zeros_like(centered), where=deviation > 0)


def _less_mean(scores: Floats, total: Floats, count: Integers) -> Floats:
    """Return `scores` minus the mean of `count` others with sum `total`; 0 where none is."""
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return np.where(count > 0, scores - mean, 0.0)


def _uncompared(scores: Floats, settings: Advantage, owner: Integers) -> Floats:
    """Return the advantages that calls have which no other call is compared with."""
    if settings.single == "zero":
        return np.zeros(len(scores))
    if settings.single == "raw":
        return scores
    cells = Cells(owner)
    return scores - cells.mean(scores)[cells.of]
