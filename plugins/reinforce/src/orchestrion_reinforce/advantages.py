"""Advantage estimators: pure functions over arrays, no network and no trainer.

Arrays are flat: the decisions of all episodes one after another, each episode's in order of
time; `lengths` [e] says how many belong to each episode. r_t is what came after decision t: its
turns' share of the reward, and at the last decision also the terminal part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["gae", "leave_one_out", "normalize", "returns_to_go", "spread"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EQUAL = 1e-8
"""Relative spread below which advantages count as equal: rounding, not information."""


def returns_to_go(rewards: Floats, lengths: Ints, gamma: float = 1.0) -> Floats:
    """REINFORCE's return (Williams 1992): G_t = r_t + gamma G_(t+1), G = 0 after the end.

    With r_t = -w c_t and the outcome at the end this is
    G_t = gamma^(T-t) outcome - w sum_(k>=t) gamma^(k-t) c_k: every cost is counted once.
    """
    return gae(rewards, np.zeros_like(rewards), lengths, gamma, 1.0)


def gae(rewards: Floats, values: Floats, lengths: Ints, gamma: float, lam: float) -> Floats:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16).

    A_t = delta_t + gamma lam A_(t+1), delta_t = r_t + gamma V_(t+1) - V_t, with V = A = 0 after
    an episode's end. lam = 1 gives G_t - V_t, lam = 0 the one-step error.
    """
    table, there = _table(rewards, lengths)
    value, _ = _table(values, lengths)
    result = np.zeros_like(table)
    after = np.zeros(len(lengths))
    next_value = np.zeros(len(lengths))
    for t in range(table.shape[1] - 1, -1, -1):
        delta = table[:, t] + gamma * next_value - value[:, t]
        # Columns beyond an episode's end are 0 and stay 0.
        after = np.where(there[:, t], delta + gamma * lam * after, 0.0)
        next_value = np.where(there[:, t], value[:, t], 0.0)
        result[:, t] = after
    flat: Floats = result[there]
    return flat


def leave_one_out(returns: Floats, groups: Ints) -> Floats:
    """Each episode's return minus the mean of the *others* in its group (Kool et al. 2019).

    A_i = R_i - 1/(n-1) sum_(j != i) R_j, one number an episode. Groups are samples of one
    problem. A group of one compares with nothing: its advantage is 0, not its raw return. Equal
    returns give exactly 0.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    # Shifted by one member, so that equal returns cancel exactly.
    first = np.zeros(len(counts))
    first[group[::-1]] = returns[::-1]
    shifted = returns - first[group]
    total = np.bincount(group, weights=shifted, minlength=len(counts))[group]
    n = counts[group]
    others = (total - shifted) / np.maximum(n - 1, 1)
    result: Floats = np.where(n > 1, shifted - others, 0.0)
    return result


def spread(per_episode: Floats, lengths: Ints) -> Floats:
    """One number an episode to one a decision."""
    result: Floats = np.repeat(per_episode, lengths)
    return result


def normalize(advantages: Floats) -> Floats:
    """Mean 0 and standard deviation 1 over the batch; zeros where all are equal.

    Without that rule, a batch in which nothing differs would turn rounding into full-strength
    gradients. One advantage alone is equal to itself.
    """
    if len(advantages) == 0:
        return advantages
    centred = advantages - advantages.mean()
    deviation = float(np.sqrt(np.mean(centred * centred)))
    if deviation <= EQUAL * float(np.abs(advantages).max()):
        return np.zeros_like(advantages)
    result: Floats = centred / deviation
    return result


def _table(flat: Floats, lengths: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """Rows of unequal length as a table padded with zeros [e, t], and where something is."""
    longest = int(lengths.max()) if len(lengths) else 0
    there = np.arange(longest) < lengths[:, None]
    table = np.zeros((len(lengths), longest))
    table[there] = flat
    return table, there
