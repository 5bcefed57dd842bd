"""What an iteration says of every agent: the numbers in which trouble shows first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrion_marl.calls import Call, Stream, lengths_of, rows_of
from orchestrion_marl.rows import Cells, Floats, Rows

__all__ = ["amplification", "describe"]


def amplification(rows: Rows, agent: int) -> float:
    """f_k = (sigma_k^2 + (mu_k - mu)^2) / sigma^2, the mean over groups where sigma is not 0.

    Lemma 4.2 of Feng et al. 2026: how much larger an agent's squared gradient is by statistics of
    the whole team than by its own. It cannot exceed the number of episodes in a group.
    """
    found = []
    for group in np.unique(rows.group):
        mine = rows.group == group
        firsts = np.unique(rows.episode[mine], return_index=True)[1]
        outcomes = rows.outcome[mine][firsts]
        own = rows.outcome[mine & (rows.agent == agent)]
        if outcomes.max() > outcomes.min() and len(own):
            found.append((own.var() + (own.mean() - outcomes.mean()) ** 2) / outcomes.var())
    return float(np.mean(found)) if found else 0.0


def describe(stream: Stream, agents: Sequence[str], tokens: Floats) -> dict[str, float]:
    """Per agent: calls, readable and cut shares, reward, dead groups, advantages, f_k.

    `agent/dead` is the share of its groups in which no call can be told from another: they teach
    it nothing.
    """
    calls = stream.calls
    rows, lengths = rows_of(calls, agents), lengths_of(calls)
    starts = np.cumsum(lengths) - lengths
    # Means over tokens of a call: they differ in estimators by token alone.
    by_call = np.add.reduceat(tokens, starts) / lengths if len(calls) else np.zeros(0)
    metrics = {
        "lost": float(stream.lost),
        "groups": float(len(set(stream.groups))),
    }
    for i, name in enumerate(agents):
        mine = np.flatnonzero(rows.agent == i)
        metrics[f"{name}/calls"] = len(mine) / max(1, len(stream.episodes))
        if len(mine):
            metrics.update(_of(name, [calls[j] for j in mine], rows, i, by_call[mine]))
    return metrics


def _of(
    name: str, calls: Sequence[Call], rows: Rows, agent: int, advantages: Floats
) -> dict[str, float]:
    own = rows.take(rows.agent == agent)
    groups = Cells(own.group)
    dead = groups.std(own.outcome, 0) == 0
    lengths = lengths_of(calls)
    return {
        f"{name}/valid": float(np.mean([call.valid for call in calls])),
        f"{name}/truncated": float(np.mean([call.truncated for call in calls])),
        f"{name}/reward": float(own.outcome.mean()),
        f"{name}/reward_std": float(own.outcome.std()),
        f"{name}/dead": float(dead.mean()),
        f"{name}/advantage": float(advantages.mean()),
        f"{name}/advantage_rms": float(np.sqrt((advantages**2).mean())),
        f"{name}/f": amplification(rows, agent),
        f"{name}/tokens": float(lengths.mean()),
    }
