"""Everything that was ever shown and done, once each, with how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from orchestrion import RunError, Saved
from orchestrion_values.arrays import pack, unpack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

__all__ = ["Seen", "Shown"]


class Shown(NamedTuple):
    """What a situation shows: the category of its problem, numbers, and what is allowed [k]."""

    category: str
    features: tuple[float, ...]
    allowed: tuple[bool, ...]


class Seen:
    """Episodes, as moves between things that were shown.

    Args:
        choices: k, how many choices there are.

    Attributes:
        shown: every different thing that was shown [n].
        moves: one row a decision [m, 5]: place of what was shown, number of the decision in its
            episode, choice, place of what was shown then, whether the episode ended.
        rewards: what came of the decision itself [m].
        outcomes: what came at the end of the episode, where it ended [m].
        episodes: how many there were.
    """

    def __init__(self, choices: int) -> None:
        self.choices = choices
        self.shown: list[Shown] = []
        self.places: dict[Shown, int] = {}
        self.moves: list[tuple[int, int, int, int, bool]] = []
        self.rewards: list[float] = []
        self.outcomes: list[float] = []
        self.episodes = 0

    def place(self, shown: Shown) -> int:
        """The place of what was shown, which is a new one the first time."""
        place = self.places.get(shown)
        if place is None:
            if self.shown and len(shown.features) != len(self.shown[0].features):
                counts = sorted({len(shown.features), len(self.shown[0].features)})
                raise RunError(
                    f"trainer optimistic: the task shows {counts[0]} and {counts[1]} numbers; a "
                    "task must always show equally many"
                )
            place = self.places[shown] = len(self.shown)
            self.shown.append(shown)
        return place

    def add(
        self,
        shown: Sequence[Shown],
        chosen: Sequence[int],
        rewards: Sequence[float],
        last: Shown | None,
        outcome: float,
    ) -> None:
        """Add an episode of m decisions.

        Args:
            shown: what each was taken on [m].
            chosen: the places of the choices [m].
            rewards: of each [m], without `outcome`.
            last: what was shown at the end; None stands for the last of `shown`.
            outcome: what came at the end.
        """
        places = [self.place(one) for one in shown]
        places.append(places[-1] if last is None else self.place(last))
        count = len(shown)
        for t, (choice, reward) in enumerate(zip(chosen, rewards, strict=True)):
            ended = t + 1 == count
            self.moves.append((places[t], t, choice, places[t + 1], ended))
            self.rewards.append(reward)
            self.outcomes.append(outcome if ended else 0.0)
        self.episodes += 1

    def save(self) -> Saved:
        """All of it, as arrays."""
        return Saved(
            pack(
                {
                    "features": np.array([shown.features for shown in self.shown], np.float64),
                    "allowed": np.array([shown.allowed for shown in self.shown], np.bool_),
                    "moves": np.array(self.moves, np.int64).reshape(-1, 5),
                    "rewards": np.array(self.rewards, np.float64),
                    "outcomes": np.array(self.outcomes, np.float64),
                }
            ),
            {
                "choices": self.choices,
                "episodes": self.episodes,
                "categories": [shown.category for shown in self.shown],
            },
        )

    @classmethod
    def load(cls, saved: Saved) -> Seen:
        """What `save` saved."""
        arrays = unpack(saved.arrays)
        data: Any = saved.data
        seen = cls(data["choices"])
        seen.episodes = data["episodes"]
        rows = zip(
            data["categories"],
            arrays["features"].tolist(),
            arrays["allowed"].tolist(),
            strict=True,
        )
        for category, numbers, mask in rows:
            seen.place(Shown(category, tuple(numbers), tuple(mask)))
        seen.moves = [tuple(row) for row in arrays["moves"].tolist()]
        seen.rewards, seen.outcomes = arrays["rewards"].tolist(), arrays["outcomes"].tolist()
        return seen
