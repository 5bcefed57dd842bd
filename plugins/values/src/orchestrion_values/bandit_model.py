"""The model that the trainer `bandit` installs in the policy `values`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import Factory, frozen

from orchestrion import Problem, Saved, Situation
from orchestrion_values.arrays import Floats, Mask, pack, under, unpack
from orchestrion_values.policy import ValuePolicy
from orchestrion_values.texts import Texts
from orchestrion_values.tries import Posterior

EASE = 10.0
"""The linear value counts for so many tries of neighbours."""
BLOCK = 512
KEPT = 20_000


@frozen(eq=False)
class BanditView:
    """The numbers that values are linear in: the category, and what the encoders show.

    Args:
        policy: whose encoders and choices these are.
        categories: that have a number of their own.
        guess: predict the category from the text instead of reading it.
        texts: turns texts of problems into numbers.
    """

    policy: ValuePolicy
    categories: tuple[str, ...]
    guess: bool
    texts: Texts | None
    _rows: dict[str, Floats] = Factory(dict)

    def numbers(self, situations: Sequence[Situation]) -> tuple[Floats, tuple[str, ...]]:
        """Return the numbers of each choice [n, k, d] and their names [d]."""
        encoded = self.policy.encode_alike(situations)
        n, k, own = encoded.choices.shape
        category = self._category([situation.problem for situation in situations])
        context = np.concatenate([category, encoded.context], axis=1)
        wide = np.broadcast_to(context[:, None], (n, k, context.shape[1]))
        columns = (
            *(f"category {name}" for name in self.categories),
            *(f"context {i}" for i in range(encoded.context.shape[1])),
            *(f"choice {i}" for i in range(own)),
        )
        return np.concatenate([wide, encoded.choices], axis=2), columns

    def words(self, problems: Sequence[Problem]) -> Floats:
        """Return the texts of problems as numbers [n, w]."""
        if self.texts is None:
            return np.zeros((len(problems), 0))
        texts = {problem.text for problem in problems}
        new = sorted(texts - self._rows.keys())
        if new and len(self._rows) + len(new) > KEPT:
            self._rows.clear()
            new = sorted(texts)
        for begin in range(0, len(new), BLOCK):
            part = new[begin : begin + BLOCK]
            self._rows.update(zip(part, self.texts.numbers(part), strict=True))
        return np.array([self._rows[problem.text] for problem in problems])

    def _category(self, problems: Sequence[Problem]) -> Floats:
        if self.guess and self.texts is not None:
            return self.texts.guessed(self.words(problems))
        # With equal shares, the value for an unknown category is the mean over all of them.
        shares = 1 / max(1, len(self.categories))
        result = np.full((len(problems), len(self.categories)), shares)
        for row, problem in zip(result, problems, strict=True):
            if problem.category in self.categories:
                row[:] = 0.0
                row[self.categories.index(problem.category)] = 1.0
        return result


@frozen(eq=False)
class Neighbours:
    """Problems whose choices were tried; similar ones are looked up in it.

    Args:
        words: their texts [n, w], rows of length 1.
        rewards: sums of the rewards of each choice [n, k].
        counts: tries of each choice [n, k].
        most: how many neighbours are used.
    """

    words: Floats
    rewards: Floats
    counts: Floats
    most: int

    def values(self, words: Floats, linear: Floats) -> Floats:
        """Return mean rewards of the neighbours [n, k], shrunk towards linear values [n, k]."""
        most = min(self.most, len(self.words))
        if not most:
            return linear
        result = np.empty_like(linear)
        for begin in range(0, len(words), BLOCK):
            part = slice(begin, begin + BLOCK)
            alike = words[part] @ self.words.T
            near = np.argsort(-np.round(alike, 9), axis=1, kind="stable")[:, :most]
            sums, tries = self.rewards[near].sum(axis=1), self.counts[near].sum(axis=1)
            result[part] = (sums + EASE * linear[part]) / (tries + EASE)
        return result


@frozen(eq=False)
class BanditModel:
    """Expected rewards of choices: linear, averaged with similar problems where texts are read.

    Args:
        view: what it is linear in.
        posterior: of the coefficients.
        neighbours: if texts are read and each episode is one decision.
    """

    view: BanditView
    posterior: Posterior
    neighbours: Neighbours | None = None

    name = "bandit"

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return expected rewards [n, k]."""
        return self.believed(situations)[0]

    def believed(self, situations: Sequence[Situation]) -> tuple[Floats, Floats]:
        """Return expected rewards [n, k] and their standard deviations [n, k]."""
        numbers, _ = self.view.numbers(situations)
        means = self.posterior.means(numbers)
        if self.neighbours is not None:
            words = self.view.words([situation.problem for situation in situations])
            means = (means + self.neighbours.values(words, means)) / 2
        return means, self.posterior.deviations(numbers)

    def save(self) -> Saved:
        p, view = self.posterior, self.view
        arrays = {"middle": p.middle, "coefficients": p.coefficients, "inverse": p.inverse}
        data: dict[str, Any] = {
            "noise": p.noise,
            "categories": list(view.categories),
            "guess": view.guess,
            "texts": None,
            "most": None,
        }
        if view.texts is not None:
            parts, data["texts"] = view.texts.save()
            arrays |= {f"texts.{name}": part for name, part in parts.items()}
        if (near := self.neighbours) is not None:
            data["most"] = near.most
            arrays |= {"words": near.words, "rewards": near.rewards, "counts": near.counts}
        return Saved(pack(arrays), data)

    @classmethod
    def load(cls, saved: Saved, policy: ValuePolicy) -> BanditModel:
        data: Any = saved.data
        arrays = unpack(saved.arrays)
        texts = None
        if data["texts"] is not None:
            texts = Texts.load(under(arrays, "texts."), data["texts"])
        view = BanditView(policy, tuple(data["categories"]), data["guess"], texts)
        coefficients = arrays["middle"], arrays["coefficients"], arrays["inverse"]
        near = None
        if data["most"] is not None:
            tables = arrays["words"], arrays["rewards"], arrays["counts"]
            near = Neighbours(*tables, data["most"])
        return cls(view, Posterior(*coefficients, data["noise"]), near)
