"""What a choice is believed to lead to, from counts and from what states have in common."""

from __future__ import annotations

import numpy as np
from attrs import frozen

from orchestrion_values.optimism.pooled import WORTH, pool
from orchestrion_values.optimism.seen import Floats, Ints, Mask, Seen
from orchestrion_values.optimism.states import States

__all__ = ["Dynamics", "learn"]

END = 10**6
"""The effect of ending the episode."""
LEAST = 0.01
"""Predicted chances below it are left out."""


@frozen(eq=False)
class Dynamics:
    """A decision process over s states and k choices, as far as it is known.

    Args:
        states: what the states are.
        moves: state * k + choice, next state and chance of each move, m of them; the next state s
            stands for one that was never seen.
        reward: of the choice, and of the end where it ends the episode [s, k].
        known: how many tries the estimate is worth [s, k].
        tried: whether the choice was ever made, anywhere [k].
        last: what the end pays in a state where the episode is over by itself [s].
        last_known: how many tries that is worth [s].
        low: the least that an end is expected to pay.
        high: the most.
    """

    states: States
    moves: tuple[Ints, Ints, Floats]
    reward: Floats
    known: Floats
    tried: Mask
    last: Floats
    last_known: Floats
    low: float
    high: float


def learn(seen: Seen, states: States, seed: int, best: float) -> Dynamics:
    """Estimate the process from all that was seen."""
    s, k = states.count, seen.choices
    moves = np.array(seen.moves, np.int64)
    rewards, outcomes = np.array(seen.rewards), np.array(seen.outcomes)
    at, t, choice, then, ended = (
        states.of[moves[:, 0]],
        moves[:, 1],
        moves[:, 2],
        states.of[moves[:, 3]],
        moves[:, 4] == 1,
    )
    early = ended & (t < states.horizon - 1)
    used = np.bincount(choice, minlength=k)
    # Choices after which nothing ever went on end the episode. Others are the last ones by chance,
    # or because it was over by itself at the last decision.
    ends = (used > 0) & (np.bincount(choice, weights=~ended, minlength=k) == 0)
    chosen = ended & (early | ends[choice])
    clock = ended & ~chosen
    low = float(outcomes[ended].min())
    high = max(best, float(outcomes[ended].max()))

    # What an end pays: by state, and whether a choice or nobody ended the episode.
    kind = np.where(chosen, choice, k)[ended]
    where = np.where(chosen, at, then)[ended]
    pay, pay_known = _ends(states, where, kind, outcomes[ended], k, seed)

    # What a choice costs: its own mean, unless the state has another.
    times = np.bincount(at * k + choice, minlength=s * k).reshape(s, k).astype(float)
    sums = np.bincount(at * k + choice, weights=rewards, minlength=s * k).reshape(s, k)
    mean = np.bincount(choice, weights=rewards, minlength=k) / np.maximum(used, 1)
    reward = (sums + mean) / (times + 1)

    moving = ~ends & (used > 0)
    mine = moving[choice]
    row, to, weight, worth = _effects(
        states, at[mine], choice[mine], np.where(chosen, s + 1, then)[mine], k, moving, seed
    )
    chance = weight / np.bincount(row, weights=weight, minlength=s * k)[row]
    over = to == s + 1
    finish = np.bincount(row[over], weights=chance[over], minlength=s * k).reshape(s, k)
    tried = np.zeros((s, k))
    np.add.at(tried, (at, choice), 1.0)
    support = _support(states, tried)
    known = np.where(ends, pay_known[:, :k], worth.reshape(s, k))
    known = np.where(used > 0, times + np.minimum(known, support), 0.0)
    reward += np.where(ends, pay[:, :k], finish * pay[:, :k])
    ahead = row[~over], to[~over], chance[~over]
    overs = np.zeros((s, 1))
    np.add.at(overs[:, 0], then[clock], 1.0)
    last_known = overs[:, 0] + np.minimum(pay_known[:, k], _support(states, overs)[:, 0])
    return Dynamics(states, ahead, reward, known, used > 0, pay[:, k], last_known, low, high)


def _support(states: States, tried: Floats) -> Floats:
    """The least number of tries of a choice that any two numbers of a state share with [s, k]."""
    bits = states.bits
    result = np.full(tried.shape, np.inf)
    for a in range(tried.shape[1]):
        mine = np.flatnonzero(tried[:, a])
        both = (bits[mine].T * tried[mine, a]) @ bits[mine]
        for i in range(0, states.count, 512):
            rows = states.held[i : i + 512]
            result[i : i + 512, a] = both[rows[:, :, None], rows[:, None, :]].min(axis=(1, 2))
    return result


def _ends(
    states: States, where: Ints, kind: Ints, outcomes: Floats, k: int, seed: int
) -> tuple[Floats, Floats]:
    """What an end pays [s, k + 1], and how many tries that is worth."""
    s = states.count
    cell = where * (k + 1) + kind
    times = np.bincount(cell, minlength=s * (k + 1)).astype(np.float64)
    sums: Floats = np.bincount(cell, weights=outcomes, minlength=s * (k + 1)).astype(np.float64)
    squares: Floats = np.bincount(cell, weights=outcomes**2, minlength=s * (k + 1)).astype(
        np.float64
    )
    kinds = np.eye(k + 1)[:, np.unique(kind)]
    rows = np.flatnonzero(times)
    numbers = np.concatenate(
        [np.repeat(states.numbers, k + 1, axis=0), np.tile(kinds, (s, 1))], axis=1
    )
    group = np.tile(np.arange(k + 1), s)
    guess = pool(
        numbers[rows], times[rows], sums[rows, None], squares[rows, None], group[rows], k + 1, seed
    )
    worth = guess.worth[group]
    pay = (worth * guess.predict(numbers)[:, 0] + sums) / (worth + times)
    return pay.reshape(s, k + 1), worth.reshape(s, k + 1)


def _effects(
    states: States, at: Ints, choice: Ints, then: Ints, k: int, moving: Mask, seed: int
) -> tuple[Ints, Ints, Floats, Floats]:
    """Where choices lead: state * k + choice, next state and weight, m of each.

    The next state s is one never seen, s + 1 the end of the episode. At last, how many tries the
    predictions are worth [s * k].
    """
    s = states.count
    pairs, n = np.unique(np.stack([at * k + choice, then], axis=1), axis=0, return_counts=True)
    core = states.core
    start = pairs[:, 0] // k
    # The effect of each pair: what it changes in the core.
    change = np.full((len(pairs), core.shape[1]), END)
    inside = pairs[:, 1] < s
    change[inside] = core[pairs[inside, 1]] - core[start[inside]]
    effects, effect = np.unique(change, axis=0, return_inverse=True)
    tried, row = np.unique(pairs[:, 0], return_inverse=True)
    sums = np.zeros((len(tried), len(effects)))
    np.add.at(sums, (row.reshape(-1), effect.reshape(-1)), n)
    numbers = np.concatenate(
        [np.repeat(states.numbers, k, axis=0), np.tile(np.eye(k), (s, 1))], axis=1
    )
    # Each observation is 0 or 1, so that its square is itself.
    guess = pool(numbers[tried], sums.sum(axis=1), sums, sums, tried % k, k, seed)
    ask = np.flatnonzero(np.tile(moving, s))
    predicted = guess.predict(numbers[ask])
    place, effect_of = np.nonzero(predicted >= LEAST)
    row = ask[place]
    target = core[row // k] + effects[effect_of]
    ends = effects[effect_of, 0] == END
    possible = ends | ((target >= core.min(axis=0)) & (target <= core.max(axis=0))).all(axis=1)
    find = {tuple(one): i for i, one in enumerate(core.tolist())}
    to = np.array([find.get(tuple(one), s) for one in target.tolist()], np.int64)
    to[ends] = s + 1
    weight = predicted[place, effect_of] * possible
    total = np.bincount(row, weights=weight, minlength=s * k)
    lost = (total <= 0) & np.tile(moving, s)
    worth = np.where(lost, WORTH[0], guess.worth[np.tile(np.arange(k), s)])
    weight *= (worth / np.where(total > 0, total, 1.0))[row]
    # A state that nobody has ever seen may not exist: that is worth one try.
    weight[to == s] *= 1.0 / np.maximum(1.0, worth)[row[to == s]]
    nothing = np.flatnonzero(lost)
    parts = (
        (pairs[:, 0], pairs[:, 1], n.astype(np.float64)),
        (row, to, weight),
        (nothing, np.full(len(nothing), s), np.full(len(nothing), WORTH[0])),
    )
    rows, targets, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    some = weights > 0
    return rows[some], targets[some], weights[some], worth
