"""What choices lead to, estimated from counts and common features of states; plans over that.

Estimates that states share (`pool`) are a forest's prediction, worth as many tries as it has proved
to be:

    mean = (k * predicted + sum of what was seen) / (k + n)

k is the one of `WORTH` with the least squared error when each single observation is predicted from
the others of its state and from trees that never saw the state (out of bag). Where that decides
nothing, k is the smallest: nothing is taken for granted.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen

from orchestrion_values.arrays import Floats, Ints, Mask
from orchestrion_values.optimism.states import StateMoves, States

WORTH = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
LEAF = 4.0
"""The minimum of tries in a leaf."""
TREES = 10
FEWEST = 4
"""The minimum of rows for trees; fewer are predicted by their mean."""


def pool(
    queries: Floats,
    numbers: Floats,
    times: Floats,
    sums: Floats,
    squares: Floats,
    group: Ints,
    groups: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """Fit trees to the means of rows.

    Args:
        queries: features of the rows that are predicted [m, f].
        numbers: features of rows [n, f].
        times: how often each was seen, at least once [n].
        sums: of observations [n, c].
        squares: sums of squared observations [n, c].
        group: of each row [n]; each has a k of its own.
        groups: how many there are.
        seed: of the trees.

    Returns:
        The predictions [m, c], and the k of each group [groups].
    """
    mean = sums.sum(axis=0) / times.sum()
    worth = np.full(groups, WORTH[0])
    if len(numbers) < FEWEST:
        return np.tile(mean, (len(queries), 1)), worth
    from sklearn.tree import ExtraTreeRegressor  # slow to load, and not needed to open a run

    means = sums / times[:, None]
    single = numbers.astype(np.float32)
    rng = np.random.default_rng(seed)
    trees, guess, votes = [], np.zeros_like(sums), np.zeros(len(numbers))
    for _ in range(TREES):
        copies = rng.poisson(1.0, len(numbers))
        if not copies.any():
            continue
        weights = times * copies
        tree = ExtraTreeRegressor(
            max_features=0.7,
            min_weight_fraction_leaf=min(0.5, LEAF / weights.sum()),
            random_state=int(rng.integers(2**31)),
        )
        inside, outside = np.flatnonzero(copies), np.flatnonzero(copies == 0)
        tree.fit(single[inside], means[inside], weights[inside], check_input=False)
        if len(outside):
            guess[outside] += tree.predict(single[outside], check_input=False).reshape(
                -1, len(mean)
            )
            votes[outside] += 1
        trees.append(tree)
    guess = np.where(votes[:, None] > 0, guess / np.maximum(votes, 1)[:, None], mean)
    for i in range(groups):
        mine = group == i
        if mine.any():
            worth[i] = _worth(times[mine], sums[mine], squares[mine], guess[mine])
    if not trees or not len(queries):
        return np.tile(mean, (len(queries), 1)), worth
    predicted, single = np.zeros((len(queries), len(mean))), queries.astype(np.float32)
    for tree in trees:
        predicted += tree.predict(single, check_input=False).reshape(predicted.shape)
    return predicted / len(trees), worth


def _worth(times: Floats, sums: Floats, squares: Floats, guess: Floats) -> float:
    """Return the k with the least squared error over observations left out one at a time."""
    n, errors = times[:, None], []
    for k in WORTH:
        # (k g + S - x) / (k + n - 1) - x = (k g + S - (k + n) x) / (k + n - 1), summed over x
        first, both = k * guess + sums, k + n
        total = n * first**2 - 2 * first * both * sums + both**2 * squares
        errors.append(float((total / (k + n - 1) ** 2).sum()))
    best = min(errors)
    return next(k for k, error in zip(WORTH, errors, strict=True) if error <= best + 1e-9)


END = 10**6
"""Marks the effect of ending the episode."""
LEAST = 0.01
"""Smaller predicted chances are left out."""


@frozen(eq=False)
class Dynamics:
    """An estimated decision process over s states and k choices.

    Args:
        states: the states.
        moves: state * k + choice, next state and chance of m moves; the next state s stands for
            one that was never seen.
        reward: of the choice, plus that of the end if it ends the episode [s, k].
        known: how many tries the estimate is worth [s, k].
        tried: whether the choice was ever made [k].
        last: reward of the end in a state where the episode ends without a choice [s].
        last_known: how many tries that estimate is worth [s].
        low: the lowest expected reward of an end.
        high: the highest.
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


def learn(seen: StateMoves, states: States, seed: int, best: float) -> Dynamics:
    """Estimate the process from everything that was seen."""
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
    """Return the fewest tries of a choice in states that share two numbers with a state [s, k]."""
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
    """Return the reward of ends [s, k + 1], and how many tries each is worth."""
    s = states.count
    cell = where * (k + 1) + kind
    times = np.bincount(cell, minlength=s * (k + 1)).astype(np.float64)
    sums: Floats = np.bincount(cell, weights=outcomes, minlength=s * (k + 1)).astype(np.float64)
    squares: Floats = np.bincount(cell, weights=outcomes**2, minlength=s * (k + 1)).astype(
        np.float64
    )
    kinds = np.eye(k + 1)[:, np.unique(kind)]
    seen = np.flatnonzero(times)
    numbers = np.concatenate(
        [np.repeat(states.numbers, k + 1, axis=0), np.tile(kinds, (s, 1))], axis=1
    )
    group = np.tile(np.arange(k + 1), s)
    observed = numbers[seen], times[seen], sums[seen, None], squares[seen, None], group[seen]
    predicted, worth = pool(numbers, *observed, k + 1, seed)
    worth = worth[group]
    pay = (worth * predicted[:, 0] + sums) / (worth + times)
    return pay.reshape(s, k + 1), worth.reshape(s, k + 1)


def _effects(
    states: States, at: Ints, choice: Ints, then: Ints, k: int, moving: Mask, seed: int
) -> tuple[Ints, Ints, Floats, Floats]:
    """Return moves as state * k + choice, next state and weight [m], and their worth [s * k].

    The next state s stands for one never seen, s + 1 for the end of the episode.
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
    ask = np.flatnonzero(np.tile(moving, s))
    observed = numbers[tried], sums.sum(axis=1), sums, sums, tried % k
    predicted, worth = pool(numbers[ask], *observed, k, seed)
    place, effect_of = np.nonzero(predicted >= LEAST)
    row = ask[place]
    target = core[row // k] + effects[effect_of]
    ends = effects[effect_of, 0] == END
    possible = ends | ((target >= core.min(axis=0)) & (target <= core.max(axis=0))).all(axis=1)
    find = {tuple(row): i for i, row in enumerate(core.tolist())}
    to = np.array([find.get(tuple(row), s) for row in target.tolist()], np.int64)
    to[ends] = s + 1
    weight = predicted[place, effect_of] * possible
    total = np.bincount(row, weights=weight, minlength=s * k)
    lost = (total <= 0) & np.tile(moving, s)
    worth = np.where(lost, WORTH[0], np.tile(worth, s))
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


def optimistic(model: Dynamics, known: float, bonus: float) -> Floats:
    """Return values [t, s, k] in which hardly known choices count as the best possible.

    Args:
        model: the process.
        known: an estimate worth fewer tries counts as the best possible.
        bonus: added to the others over the square root of their tries, as a share of the
            difference between the best and the worst end.
    """
    scale = bonus * (model.high - model.low)
    more = scale / np.sqrt(np.maximum(model.known, 1e-9))
    last = model.last + scale / np.sqrt(np.maximum(model.last_known, 1e-9))
    last = np.where(model.last_known < known, model.high, np.minimum(model.high, last))
    return _values(model, more, model.known < known, last, model.high)


def plain(model: Dynamics) -> Floats:
    """Return values [t, s, k] by means; what was never tried or seen has the lowest."""
    shape = model.known.shape
    never = np.broadcast_to(~model.tried, shape)
    return _values(model, np.zeros(shape), never, model.last, model.low)


def _values(model: Dynamics, more: Floats, unknown: Mask, last: Floats, guess: float) -> Floats:
    """Return values [t, s, k] by backward induction; -inf where a choice is not allowed.

    Args:
        model: the process.
        more: added to the value of each choice [s, k].
        unknown: choices that have the value `guess` [s, k].
        last: reward of the end in states where the episode ends without a choice [s].
        guess: the value of states that were never seen.
    """
    horizon, s, k = model.states.allowed.shape
    result = np.empty((horizon, s, k))
    row, to, chance = model.moves
    ahead = np.append(last, guess)
    for t in range(horizon - 1, -1, -1):
        values = model.reward + np.bincount(row, chance * ahead[to], s * k).reshape(s, k) + more
        np.minimum(values, model.high, out=values)
        values[unknown] = guess
        values[~model.states.allowed[t]] = -np.inf
        result[t] = values
        best = values.max(axis=1)
        # Where nothing is known to be allowed, as nobody was there at that time: as if it ended.
        ahead = np.append(np.where(np.isfinite(best), best, last), guess)
    return result
