"""What a bandit knows, as the policy `values` uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import Factory, frozen

from orchestrion import Problem, Saved, Situation
from orchestrion_values.arrays import pack, unpack
from orchestrion_values.policy import Floats, Mask, ValuePolicy
from orchestrion_values.texts import Texts
from orchestrion_values.tries import Posterior

__all__ = ["BanditModel", "Neighbours", "View"]

EASE = 10.0
"""Tries among the neighbours that the linear value counts for."""
BLOCK = 512
KEPT = 20_000


@frozen(eq=False)
class View:
    """Which numbers values are linear in: the category, and what the encoders show.

    Args:
        policy: whose encoders and choices these are.
        categories: those that are told apart.
        guess: whether the category is guessed from the text, not read.
        texts: of problems, as numbers.
    """

    policy: ValuePolicy
    categories: tuple[str, ...]
    guess: bool
    texts: Texts | None
    _rows: dict[str, Floats] = Factory(dict)

    def columns(self, context: int, choices: int) -> tuple[str, ...]:
        """Names of the numbers, given how many the encoders make."""
        shown = [f"context {i}" for i in range(context)] + [f"choice {i}" for i in range(choices)]
        return (*(f"category {name}" for name in self.categories), *shown)

    def numbers(self, situations: Sequence[Situation]) -> tuple[Floats, tuple[str, ...]]:
        """The numbers of each choice [n, k, d], and their names [d]."""
        encoded = self.policy.encode(situations)
        k = encoded.choices.shape[1]
        context = np.concatenate(
            [self._category([s.problem for s in situations]), encoded.context], axis=1
        )
        wide = np.broadcast_to(context[:, None], (len(context), k, context.shape[1]))
        columns = self.columns(encoded.context.shape[1], encoded.choices.shape[2])
        return np.concatenate([wide, encoded.choices], axis=2), columns

    def words(self, problems: Sequence[Problem]) -> Floats:
        """Texts of problems as numbers [n, w]."""
        if self.texts is None:
            return np.zeros((len(problems), 0))
        new = sorted({one.text for one in problems} - self._rows.keys())
        if new:
            if len(self._rows) + len(new) > KEPT:
                self._rows.clear()
                new = sorted({one.text for one in problems})
            for begin in range(0, len(new), BLOCK):
                part = new[begin : begin + BLOCK]
                self._rows.update(zip(part, self.texts.numbers(part), strict=True))
        return np.array([self._rows[one.text] for one in problems])

    def _category(self, problems: Sequence[Problem]) -> Floats:
        if self.guess and self.texts is not None:
            return self.texts.guessed(self.words(problems))
        result = np.zeros((len(problems), len(self.categories)))
        for row, problem in zip(result, problems, strict=True):
            if problem.category in self.categories:
                row[self.categories.index(problem.category)] = 1.0
        return result


@frozen(eq=False)
class Neighbours:
    """Problems whose choices were tried, to look up similar ones.

    Args:
        words: what they are [n, w], rows of length 1.
        rewards: sums of the rewards of each choice [n, k].
        counts: how often each was tried [n, k].
        most: how many of them are looked at.
    """

    words: Floats
    rewards: Floats
    counts: Floats
    most: int

    def values(self, words: Floats, linear: Floats) -> Floats:
        """Mean rewards among the neighbours [n, k], shrunk towards linear values [n, k]."""
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
    """What each choice is worth: linear, and half by similar problems where texts are read.

    Args:
        view: what it is linear in.
        posterior: of the coefficients.
        neighbours: where texts are read and each episode is one decision.
    """

    view: View
    posterior: Posterior
    neighbours: Neighbours | None = None

    name = "bandit"

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Expected rewards [n, k]."""
        return self.believed(situations)[0]

    def believed(self, situations: Sequence[Situation]) -> tuple[Floats, Floats]:
        """Expected rewards [n, k], and how unsure they are [n, k]."""
        numbers, _ = self.view.numbers(situations)
        means = self.posterior.means(numbers)
        if self.neighbours is not None:
            words = self.view.words([one.problem for one in situations])
            means = (means + self.neighbours.values(words, means)) / 2
        return means, self.posterior.deviations(numbers)

    def save(self) -> Saved:
        """Coefficients, what makes numbers of texts, and the neighbours."""
        p, view = self.posterior, self.view
        arrays: dict[str, Any] = {
            "middle": p.middle,
            "coefficients": p.coefficients,
            "inverse": p.inverse,
        }
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
        """What `save` gave."""
        data: Any = saved.data
        arrays = unpack(saved.arrays)
        texts = None
        if data["texts"] is not None:
            texts = Texts.load(_under(arrays, "texts."), data["texts"])
        view = View(policy, tuple(data["categories"]), data["guess"], texts)
        coefficients = arrays["middle"], arrays["coefficients"], arrays["inverse"]
        near = None
        if data["most"] is not None:
            tables = arrays["words"], arrays["rewards"], arrays["counts"]
            near = Neighbours(*tables, data["most"])
        return cls(view, Posterior(*coefficients, data["noise"]), near)


def _under(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
