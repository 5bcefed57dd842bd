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
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from orchestrion_marl.settings import Advantage, Fined, Over, Single

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def _integers(values: Any) -> Integers:
    return np.asarray(values, np.int64)


def _floats(values: Any) -> Floats:
    return np.asarray(values, np.float64)


@frozen(eq=False)
class Rows:
    """The calls of an iteration as arrays of shape [B]; ids are any integers.

    Args:
        outcome: reward of the episode of each call.
        group: id of the group.
        episode: id of the episode, unique over all groups.
        agent: id of the agent that was called.
        penalty: penalty of the call, e.g. for a response that could not be read; by default 0.
        turn: index of the turn in its episode (`gigpo`, `gae`); by default 0.
        situation: equal ids for equal situations (`gigpo`); by default 0.

    Raises:
        ValueError: the arrays differ in shape.
    """

    outcome: Floats = field(converter=_floats)
    group: Integers = field(converter=_integers)
    episode: Integers = field(converter=_integers)
    agent: Integers = field(converter=_integers)
    penalty: Floats = field(converter=_floats)
    turn: Integers = field(converter=_integers)
    situation: Integers = field(converter=_integers)

    @penalty.default
    @turn.default
    @situation.default
    def _zeros(self) -> Floats:
        return np.zeros(len(self.outcome))

    def __attrs_post_init__(self) -> None:
        for name in ("group", "episode", "agent", "penalty", "turn", "situation"):
            shape = getattr(self, name).shape
            if shape != self.outcome.shape or self.outcome.ndim != 1:
                raise ValueError(
                    f"{name} has shape {shape}, outcome {self.outcome.shape}; both must be [B]"
                )

    def __len__(self) -> int:
        return len(self.outcome)

    @property
    def first_rows(self) -> Integers:
        """Index of the first row of each episode, in the order of episode ids."""
        indices: Integers = np.unique(self.episode, return_index=True)[1]
        return indices


class Cells:
    """Rows grouped by equal ids, and statistics of each cell.

    Args:
        ids: arrays of shape [B]; rows that agree in all of them are in one cell.

    Attributes:
        of: index of the cell of each row, shape [B]; `statistic[cells.of]` is a value a row.
        count: number of rows in each cell, shape [C].
    """

    def __init__(self, *ids: Integers) -> None:
        stacked = np.stack(ids, axis=1) if ids[0].size else np.zeros((0, len(ids)), np.int64)
        _, indices = np.unique(stacked, axis=0, return_inverse=True)
        self.of: Integers = indices.reshape(-1)
        self.count: Integers = np.bincount(self.of)

    def mean(self, values: Floats) -> Floats:
        """Return the mean of each cell, shape [C]."""
        return self.sum(values) / self.count

    def sum(self, values: Floats) -> Floats:
        """Return the sum of each cell, shape [C]."""
        return np.asarray(np.bincount(self.of, values, len(self.count)), np.float64)

    def std(self, values: Floats, ddof: int) -> Floats:
        """Return the standard deviation of each cell, shape [C]; exactly 0 for equal values.

        Values count as equal if rounding could explain their difference.
        """
        low = np.full(len(self.count), np.inf)
        high = np.full(len(self.count), -np.inf)
        np.minimum.at(low, self.of, values)
        np.maximum.at(high, self.of, values)
        equal = high - low <= 1e-12 * np.maximum(1.0, np.maximum(abs(low), abs(high)))
        squares = self.sum((values - self.mean(values)[self.of]) ** 2)
        deviation: Floats = np.sqrt(squares / np.maximum(1, self.count - ddof))
        deviation[equal] = 0.0
        return deviation


def agent_wise(
    rows: Rows,
    center: Over = "agent",
    scale: Over | Literal["none"] = "agent",
    ddof: int = 1,
    floor: float = 0.0,
    single: Single = "zero",
    fined: Fined = "outside",
) -> Floats:
    """Return the advantages of Dr.MAS, which normalises each agent's calls apart, shape [B].

    A = (r - mu_k) / sigma_k over the calls of agent k in the group, equation 5 of Feng et al.
    2026 (arXiv 2602.08847). `center` and `scale` give the four cells of its ablation: statistics
    of "group" are over episodes, each counted once, as in GRPO.

    Args:
        rows: the calls.
        center: whose mean is subtracted.
        scale: whose standard deviation divides; "none" does not divide.
        ddof: 1 for the sample form of sigma (their code), 0 for the population form (their paper).
        floor: smallest divisor.
        single: advantage of an agent called once in a group: 0, its reward, or its reward minus
            the agent's mean over the batch.
        fined: whether penalties are subtracted after or before the normalisation.
    """
    scores = rows.outcome - rows.penalty if fined == "inside" else rows.outcome
    cells = Cells(rows.group, rows.agent)
    mean = cells.mean(scores)[cells.of]
    deviation = cells.std(scores, ddof)[cells.of]
    # Where an agent's calls are all equal, (mu, sigma_k) would divide a difference by 0.
    dead = deviation == 0
    if center == "group" or scale == "group":
        team_mean, team_deviation = _episode_statistics(rows, scores, ddof)
        mean = team_mean if center == "group" else mean
        if scale == "group":
            deviation = team_deviation
            dead = team_deviation == 0 if center == "group" else dead
    advantages = scores - mean
    if scale != "none":
        advantages = _divided(advantages, deviation, floor)
        advantages[dead] = 0.0
    alone = cells.count[cells.of] == 1
    advantages[alone] = _uncompared(scores, single, rows.agent)[alone]
    return _less_penalty(advantages, rows, fined)


def grpo(
    rows: Rows,
    scale: bool = True,
    ddof: int = 1,
    floor: float = 0.0,
    single: Single = "zero",
    fined: Fined = "outside",
) -> Floats:
    """Return the advantages of GRPO, equal for all calls of an episode, shape [B].

    A = (R - mu) / sigma over the episodes of a group, each counted once: Shao et al. 2024 (arXiv
    2402.03300); without `scale` the form of Dr. GRPO (arXiv 2503.20783). With `fined` "inside" an
    episode's score is the mean of its calls' scores.
    """
    scores = rows.outcome
    if fined == "inside":
        by_episode = Cells(rows.episode)
        scores = by_episode.mean(rows.outcome - rows.penalty)[by_episode.of]
    mean, deviation = _episode_statistics(rows, scores, ddof)
    advantages = scores - mean
    if scale:
        advantages = _divided(advantages, deviation, floor)
    else:
        advantages[deviation == 0] = 0.0
    group_of_episode = rows.group[rows.first_rows]
    groups = Cells(group_of_episode)
    alone = np.isin(rows.group, group_of_episode[groups.count[groups.of] == 1])
    advantages[alone] = _uncompared(scores, single, np.zeros_like(rows.agent))[alone]
    return _less_penalty(advantages, rows, fined)


def pooled(
    rows: Rows,
    ddof: int = 1,
    floor: float = 0.0,
    single: Single = "zero",
    fined: Fined = "outside",
) -> Floats:
    """Return advantages from all calls of a group normalised together, shape [B].

    Counts calls as `agent_wise` does, and mixes agents as `grpo` does: it separates the two
    differences between them.
    """
    one_agent = Rows(
        rows.outcome, rows.group, rows.episode, np.zeros_like(rows.agent), rows.penalty
    )
    return agent_wise(one_agent, "agent", "agent", ddof, floor, single, fined)


def rloo(rows: Rows, over: Over = "agent", fined: Fined = "outside") -> Floats:
    """Return r minus the mean of the group's other episodes, shape [B].

    Kool et al. 2019 (Buy 4 REINFORCE samples, get a baseline for free); Ahmadian et al. 2024
    (arXiv 2402.14740). The baseline leaves out the whole episode, since all of its calls share one
    reward. With `over` "agent" it is the mean over that agent's calls in the other episodes. A
    call without a baseline has advantage 0.
    """
    scores = rows.outcome - rows.penalty if fined == "inside" else rows.outcome
    if over == "group":
        episodes = Cells(rows.episode)
        # Both the cells and `first_rows` are in the order of episode ids.
        episode_scores = episodes.mean(scores)
        groups = Cells(rows.group[rows.first_rows])
        total = groups.sum(episode_scores)[groups.of] - episode_scores
        others = groups.count[groups.of] - 1
        advantages = _less_mean(episode_scores, total, others)[episodes.of]
        return _less_penalty(advantages, rows, fined)
    cells = Cells(rows.group, rows.agent)
    own = Cells(rows.group, rows.agent, rows.episode)
    total = cells.sum(scores)[cells.of] - own.sum(scores)[own.of]
    others = cells.count[cells.of] - own.count[own.of]
    return _less_penalty(_less_mean(scores, total, others), rows, fined)


def reinforce(
    rows: Rows,
    baseline: Literal["none", "batch", "agent"] = "agent",
    moving: Mapping[int, float] | None = None,
) -> Floats:
    """Return R - b - penalty, shape [B]: Williams 1992.

    Args:
        rows: the calls.
        baseline: b is 0, the mean reward of all calls, or that of all calls of the agent.
        moving: b by agent id, from earlier batches; replaces `baseline`.
    """
    scores: Floats = rows.outcome - rows.penalty
    if moving is not None:
        return scores - np.array([moving.get(int(agent), 0.0) for agent in rows.agent], np.float64)
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
    """Return the advantages of tokens by REINFORCE++, shape [sum of lengths].

    Hu 2025 (arXiv 2501.03262): the reward is on a call's last token, and discounted returns are
    whitened over the batch. `centered` is its variant with a baseline: the group's mean is
    subtracted first. Tokens of each agent are whitened apart, so that an agent's scale does not
    depend on other agents; `over` "group" whitens all together. The call's penalty is subtracted
    from each of its tokens.

    Raises:
        ValueError: a call has no tokens.
    """
    if (lengths < 1).any():
        raise ValueError("a call has no tokens; every call needs at least 1")
    scores = rows.outcome
    if centered:
        groups = Cells(rows.group)
        scores = scores - groups.mean(scores)[groups.of]
    ends = np.cumsum(lengths)
    tokens_left = np.repeat(ends, lengths) - 1 - np.arange(ends[-1] if len(ends) else 0)
    returns = np.repeat(scores, lengths) * gamma**tokens_left
    owner = np.zeros(len(returns), np.int64) if over == "group" else np.repeat(rows.agent, lengths)
    return whiten(returns, owner) - np.repeat(rows.penalty, lengths)


def whiten(values: Floats, owner: Integers) -> Floats:
    """Return values with mean 0 and sample variance 1 for each owner; 0 where all are equal."""
    cells = Cells(owner)
    return _divided(values - cells.mean(values)[cells.of], cells.std(values, 1)[cells.of], 0.0)


def gigpo(
    rows: Rows,
    step: Integers,
    rewards: Floats,
    situation: Integers,
    weight: float = 1.0,
    gamma: float = 0.95,
    scale: bool = False,
    by_agent: bool = True,
    ddof: int = 1,
) -> Floats:
    """Return an episode's advantage plus that of its steps among equal situations, shape [B].

    GiGPO, Feng et al. 2025 (arXiv 2505.10978). Returns are discounted over steps of the
    environment. All calls of one step share its return, and calls of a group that met the same
    situation are compared with each other. The penalty is subtracted with the episode's advantage.

    Args:
        rows: the calls; within an episode in any order.
        step: the environment's step of each call, from 0, shape [B].
        rewards: reward of the step of each call, equal for all calls of one step, shape [B].
        situation: equal integers for equal situations, shape [B].
        weight: weight of the steps' part.
        gamma: discount between steps.
        scale: whether standard deviations divide.
        by_agent: whether only calls of one agent are compared.
        ddof: see `agent_wise`.
    """
    of_episode = grpo(rows, scale=scale, ddof=ddof)
    returns = _step_returns(rows, step, rewards, gamma)
    cells = Cells(rows.group, situation, *([rows.agent] if by_agent else []))
    of_step = returns - cells.mean(returns)[cells.of]
    deviation = cells.std(returns, ddof)[cells.of]
    if scale:
        of_step = _divided(of_step, deviation, 0.0)
    else:
        of_step[deviation == 0] = 0.0
    return of_episode + weight * of_step


def _step_returns(rows: Rows, step: Integers, rewards: Floats, gamma: float) -> Floats:
    returns = np.zeros(len(rows))
    for episode in np.unique(rows.episode):
        mine = np.flatnonzero(rows.episode == episode)
        reward_of = {int(step[i]): float(rewards[i]) for i in mine}
        return_of: dict[int, float] = {}
        value, later = 0.0, None
        for at in sorted(reward_of, reverse=True):
            value = reward_of[at] + (value * gamma ** (later - at) if later is not None else 0.0)
            return_of[at], later = value, at
        returns[mine] = [return_of[int(at)] for at in step[mine]]
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


def overlong(lengths: Integers, longest: int, buffer: int, factor: float = 1.0) -> Floats:
    """Return DAPO's soft reward of long responses, from 0 to -`factor`, shape of `lengths`.

    Equation 13 of Yu et al. 2025 (arXiv 2503.14476): 0 up to `longest - buffer` tokens, then
    linear down to -`factor` at `longest`.

    Raises:
        ValueError: the buffer is not between 1 and `longest`.
    """
    if not 0 < buffer <= longest:
        raise ValueError(f"the buffer must be from 1 to {longest}, not {buffer}")
    return factor * np.clip((longest - buffer - lengths) / buffer, -1.0, 0.0)


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
            if advantage.estimator == "reinforce++":
                computed[advantage] = reinforce_plus_plus(
                    rows, lengths, advantage.gamma, advantage.over, advantage.centered
                )
            elif advantage.estimator == "gae" and advantage.actions == "tokens":
                computed[advantage] = _gae(advantage, rows, lengths, values)
            else:
                first = None if values is None else values[np.cumsum(lengths) - lengths]
                by_call = _of_calls(advantage, rows, moving, first)
                computed[advantage] = np.repeat(by_call, lengths)
        mine = owner == agent
        tokens[mine] = computed[advantage][mine]
    return tokens


def _of_calls(
    settings: Advantage, rows: Rows, moving: Mapping[int, float], values: Floats | None
) -> Floats:
    """Return the advantage of every call, shape [B]."""
    s, ddof = settings, 1 if settings.std == "sample" else 0
    if s.estimator == "drmas":
        return agent_wise(rows, s.center, s.scale, ddof, s.floor, s.single, s.fined)
    if s.estimator == "grpo":
        return grpo(rows, s.scale != "none", ddof, s.floor, s.single, s.fined)
    if s.estimator == "global_step":
        return pooled(rows, ddof, s.floor, s.single, s.fined)
    if s.estimator == "rloo":
        return rloo(rows, s.over, s.fined)
    if s.estimator == "reinforce":
        if s.baseline == "moving":
            return reinforce(rows, moving=moving)
        return reinforce(rows, s.baseline)
    if s.estimator == "gigpo":
        # Steps are turns, and the reward comes with the turn of an episode's last call.
        last_turn = dict(zip(rows.episode.tolist(), rows.turn.tolist(), strict=True))
        is_last = rows.turn == [last_turn[episode] for episode in rows.episode.tolist()]
        rewards = np.where(is_last, rows.outcome, 0.0)
        by_agent = s.over == "agent"
        scale = s.scale != "none"
        return gigpo(
            rows, rows.turn, rewards, rows.situation, s.weight, s.gamma, scale, by_agent, ddof
        )
    return _gae(s, rows, np.ones(len(rows), np.int64), values)


def _gae(settings: Advantage, rows: Rows, lengths: Integers, values: Floats | None) -> Floats:
    """Return the advantage of every action, shape [sum of lengths].

    Args:
        settings: gamma and lambda.
        rows: the calls.
        lengths: actions in each call, shape [B].
        values: value before each action, shape [sum of lengths].
    """
    assert values is not None, "gae needs the values of a critic"
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


def _episode_statistics(rows: Rows, scores: Floats, ddof: int) -> tuple[Floats, Floats]:
    """Return mean and deviation of each row's group, over episodes counted once each."""
    episodes = Cells(rows.episode)
    episode_scores = episodes.mean(scores)
    groups = Cells(rows.group[rows.first_rows])
    mean = groups.mean(episode_scores)[groups.of]
    deviation = groups.std(episode_scores, ddof)[groups.of]
    return mean[episodes.of], deviation[episodes.of]


def _divided(centered: Floats, deviation: Floats, floor: float) -> Floats:
    """Return `centered` over `deviation`, at least `floor`; 0 where the deviation is 0."""
    divisor = np.maximum(deviation, floor)
    return np.divide(centered, divisor, out=np.zeros_like(centered), where=deviation > 0)


def _less_mean(scores: Floats, total: Floats, count: Integers) -> Floats:
    """Return `scores` minus the mean of `count` others with sum `total`; 0 where none is."""
    mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return np.where(count > 0, scores - mean, 0.0)


def _uncompared(scores: Floats, single: Single, owner: Integers) -> Floats:
    """Return the advantages that calls have which no other call is compared with."""
    if single == "zero":
        return np.zeros(len(scores))
    if single == "raw":
        return scores
    cells = Cells(owner)
    return scores - cells.mean(scores)[cells.of]


def _less_penalty(advantages: Floats, rows: Rows, fined: Fined) -> Floats:
    return advantages - rows.penalty if fined == "outside" else advantages
