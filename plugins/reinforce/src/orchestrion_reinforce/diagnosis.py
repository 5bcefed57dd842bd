"""What can be said about a whole training run, and what a person should know at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import define, field

from orchestrion import Episode, Member

__all__ = ["Diagnosis", "convergence"]

LATE = 0.25
"""Share of the iterations at the end that is looked at."""


@define
class Diagnosis:
    """What training has seen: a row an iteration, and how often each agent acted."""

    rows: list[dict[str, Any]] = field(factory=list)
    """Episodes so far, mean reward, entropy, and by category (episodes, without any turn)."""
    acted: dict[str, int] = field(factory=dict)

    def add(self, episodes: Sequence[Episode], entropy: float | None) -> None:
        """Take note of an iteration."""
        rewards = [episode.reward.total for episode in episodes if episode.reward is not None]
        kinds: dict[str, list[int]] = {}
        for episode in episodes:
            count = kinds.setdefault(episode.problem.category, [0, 0])
            count[0] += 1
            # An agent whose job it is to end the episode makes the one turn of a stop at once.
            count[1] += not any(not turn.output.final for turn in episode.turns)
            for turn in episode.turns:
                self.acted[turn.agent] = self.acted.get(turn.agent, 0) + 1
        done = self.rows[-1]["episodes"] if self.rows else 0
        reward = float(np.mean(rewards)) if rewards else None
        row = {"episodes": done + len(episodes), "reward": reward, "entropy": entropy}
        self.rows.append({**row, "kinds": dict(sorted(kinds.items()))})

    def episodes_to(self) -> int:
        """Episodes until 90 % of the reward's rise, see `convergence`."""
        rows = [(row["episodes"], row["reward"]) for row in self.rows]
        return convergence([row for row in rows if row[1] is not None])

    def warnings(self, roster: Sequence[Member]) -> dict[str, str]:
        """What points to training that failed, by a short name."""
        result: dict[str, str] = {}
        late = self.rows[-max(1, int(LATE * len(self.rows))) :]
        kinds: dict[str, list[int]] = {}
        for row in late:
            for kind, counts in row["kinds"].items():
                kinds[kind] = [a + b for a, b in zip(kinds.get(kind, [0, 0]), counts, strict=True)]
        given_up = [
            kind or "(all)" for kind, (n, none) in kinds.items() if n > 4 and none > 0.9 * n
        ]
        if given_up:
            result["given up"] = (
                f"problems of these kinds are ended at once: {', '.join(given_up)}; if they can be "
                "solved, train with more `explore`, more entropy or more episodes"
            )
        never = [member.name for member in roster if not self.acted.get(member.name)]
        if never:
            result["never tried"] = f"agents that never acted in training: {', '.join(never)}"
        entropies = [row["entropy"] for row in self.rows if row["entropy"] is not None]
        early = entropies[: max(1, len(entropies) // 4)]
        if len(entropies) > 8 and early[-1] < 0.05:
            result["settled early"] = (
                f"the policy's entropy was {early[-1]:.2f} after a quarter of training; what it "
                "had not tried by then it never tried: raise `entropy`"
            )
        rising = self._rising()
        if rising:
            result["still improving"] = (
                f"the mean reward still rose in the last quarter, by {rising:.3g}; about "
                f"{self.rows[-1]['episodes'] // 2} more episodes may help"
            )
        return result

    def _rising(self) -> float:
        """By how much the reward rose in the last quarter, where that is more than noise."""
        rewards = np.array([row["reward"] for row in self.rows if row["reward"] is not None])
        n = len(rewards) // 8
        if n < 2:
            return 0.0
        before, after = rewards[-2 * n : -n], rewards[-n:]
        rise = float(after.mean() - before.mean())
        noise = float(np.sqrt(before.var(ddof=1) / n + after.var(ddof=1) / n))
        return rise if rise > 3 * noise and rise > 0.02 * float(np.ptp(rewards)) else 0.0

    def save(self) -> Any:
        """As plain data."""
        return {"rows": list(self.rows), "acted": dict(sorted(self.acted.items()))}

    @classmethod
    def load(cls, data: Any) -> Diagnosis:
        """From what `save` gave."""
        return cls([dict(row) for row in data["rows"]], dict(data["acted"]))


def convergence(history: Sequence[tuple[int, float]], share: float = 0.9, window: int = 10) -> int:
    """Episodes until the reward had risen by `share` of its whole rise; 0 if there is none.

    The final reward is the mean of the last `window` iterations, or of the last quarter of a
    short run, and the first that of as many at the beginning; single iterations are too noisy
    for either. The rise is measured from the first reward, because rewards may start below
    0. The level is reached with the first `window` iterations whose mean is that high.

    Args:
        history: (episodes so far, mean reward) of each iteration.
        share: of the rise.
        window: iterations that are averaged.
    """
    if len(history) < 2:
        return 0
    width = max(1, min(window, len(history) // 4))
    rewards = np.array([reward for _, reward in history])
    means = np.lib.stride_tricks.sliding_window_view(rewards, width).mean(axis=1)
    first, final = float(means[0]), float(means[-1])
    if final <= first:
        return 0
    reached = int(np.argmax(means >= first + share * (final - first)))
    return history[reached + width - 1][0]
