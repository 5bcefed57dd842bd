"""Decisions as arrays, from episodes, other runs or logs; values are fitted on them.

data = Transitions.of(policy, gather(episodes, RecordedChoice))
data = from_steps(features, choices, allowed, choice, reward, next_features, ..., done)
data = data.joined(more)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import asdict, frozen

from orchestrion import Experience
from orchestrion_values.arrays import Floats, Ints, Mask
from orchestrion_values.policy import RecordedChoice, ValuePolicy


@frozen(eq=False)
class Transitions:
    """n situations with k choices each, and most of their decisions.

    Args:
        context: numbers of the situation [n, w].
        choices: numbers of each choice [n, k, v].
        allowed: which choices were allowed [n, k].
        choice: index of the choice [n]; -1 for a situation without a decision.
        reward: between this decision and the next one or the end [n].
        after: row of the next situation [n]; -1 at the end of an episode.
        problem: index of the problem [n]; -1 if unknown.
        category: index of the category [n]; -1 if unknown.
        problems: names of problems.
        categories: names of categories.
        blocks: widths of the parts of `context`, one for each encoder.
    """

    context: Floats
    choices: Floats
    allowed: Mask
    choice: Ints
    reward: Floats
    after: Ints
    problem: Ints
    category: Ints
    problems: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    blocks: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.choice)

    @classmethod
    def of(
        cls, policy: ValuePolicy, experiences: Sequence[Experience[RecordedChoice]]
    ) -> Transitions | None:
        """Return the decisions of episodes in order; None if there are none."""
        taken = [step for experience in experiences for step in experience.taken]
        if not taken:
            return None
        situations = [step.situation for step in taken]
        encoded = policy.encode(situations)
        blocks = [encoder.encode(situations[:1], policy.choices) for encoder in policy.encoders]
        after: list[int] = []
        for experience in experiences:
            first, count = len(after), len(experience.taken)
            after += [*range(first + 1, first + count), -1]
        problem, problems = _numbered([step.situation.problem.id for step in taken])
        category, categories = _numbered([step.situation.problem.category for step in taken])
        return cls(
            encoded.context,
            encoded.choices,
            np.array([step.allowed for step in taken]),
            np.array([step.choice for step in taken], np.int64),
            np.array([reward for experience in experiences for reward in experience.rewards]),
            np.array(after, np.int64),
            problem,
            category,
            problems,
            categories,
            tuple(block.context.shape[1] for block in blocks),
        )

    def joined(self, more: Transitions) -> Transitions:
        """Return these rows followed by more of the same team and task."""
        problem, problems = _numbered(
            [*_names(self.problem, self.problems), *_names(more.problem, more.problems)]
        )
        category, categories = _numbered(
            [*_names(self.category, self.categories), *_names(more.category, more.categories)]
        )
        width = max(self.choices.shape[2], more.choices.shape[2])
        return Transitions(
            np.concatenate([self.context, more.context]),
            np.concatenate([widened(self.choices, width), widened(more.choices, width)]),
            np.concatenate([self.allowed, more.allowed]),
            np.concatenate([self.choice, more.choice]),
            np.concatenate([self.reward, more.reward]),
            np.concatenate([self.after, np.where(more.after < 0, -1, more.after + len(self))]),
            problem,
            category,
            problems,
            categories,
            self.blocks,
        )

    @property
    def episode(self) -> Ints:
        """Return the first row of each situation's episode [n]."""
        result = np.arange(len(self))
        # A situation stands behind the one before it.
        for i in np.flatnonzero(self.after >= 0).tolist():
            result[self.after[i]] = result[i]
        return result

    @property
    def returns(self) -> Floats:
        """Return the sum of rewards from each decision to the end of its episode [n]."""
        result = self.reward.copy()
        for i in range(len(result) - 1, -1, -1):
            if self.after[i] >= 0:
                result[i] += result[self.after[i]]
        return result

    @property
    def tells_apart(self) -> bool:
        """Return whether two situations after the same choices differ, in one category.

        If none do, values have nothing to react to.
        """
        shown: dict[tuple[int, tuple[int, ...]], bytes] = {}
        before: list[tuple[int, ...]] = [()] * len(self)
        told = self.choices.reshape(len(self), -1)
        for i, row in enumerate(np.concatenate([self.context, told, self.allowed], axis=1)):
            where = int(self.category[i]), before[i]
            seen = row.round(6).tobytes()
            if shown.setdefault(where, seen) != seen:
                return True
            if self.after[i] >= 0:
                before[self.after[i]] = (*before[i], int(self.choice[i]))
        return False

    def save(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return arrays and plain data."""
        fields = asdict(self, recurse=False)
        plain = {name: list(fields.pop(name)) for name in PLAIN}
        return fields, plain

    @classmethod
    def load(cls, arrays: Mapping[str, Any], data: Mapping[str, Any]) -> Transitions:
        plain: Any = {name: tuple(data[name]) for name in PLAIN}
        return cls(**arrays, **plain)


PLAIN = ("problems", "categories", "blocks")


def from_steps(
    features: Floats,
    choices: Floats,
    allowed: Mask,
    choice: Ints,
    reward: Floats,
    next_features: Floats,
    next_choices: Floats,
    next_allowed: Mask,
    done: Mask,
    categories: Sequence[str] | None = None,
) -> Transitions:
    """Return single steps of any origin as transitions.

    Args:
        features: numbers of the situation of n decisions [n, w].
        choices: numbers of each choice [n, k, v]; v may be 0.
        allowed: which choices were allowed [n, k].
        choice: index of the choice [n].
        reward: before the next decision [n].
        next_features: numbers of the next situation [n, w]; ignored if `done`.
        next_choices: likewise [n, k, v].
        next_allowed: likewise [n, k].
        done: whether the episode ended [n].
        categories: of the problems [n].
    """
    n, going = len(choice), np.flatnonzero(~done)
    names = list(categories) if categories is not None else [""] * n
    category, known = _numbered([*names, *(names[i] for i in going)])
    after = np.full(n + len(going), -1)
    after[going] = n + np.arange(len(going))
    nothing = np.full(len(after), -1)
    return Transitions(
        np.concatenate([features, next_features[going]]),
        np.concatenate([choices, next_choices[going]]),
        np.concatenate([allowed, next_allowed[going]]),
        np.concatenate([choice, nothing[n:]]),
        np.concatenate([reward, np.zeros(len(going))]),
        after,
        nothing,
        category,
        (),
        known,
    )


def widened(choices: Floats, width: int) -> Floats:
    """Return numbers of choices padded with zeros [n, k, width].

    A task may show hints only later in an episode; before, choices have no numbers.
    """
    missing = width - choices.shape[2]
    return np.pad(choices, ((0, 0), (0, 0), (0, missing))) if missing > 0 else choices


def _numbered(names: Sequence[str | None]) -> tuple[Ints, tuple[str, ...]]:
    """Return indices of names in order of first appearance, -1 for None; and the names."""
    places: dict[str, int] = {}
    rows = [-1 if name is None else places.setdefault(name, len(places)) for name in names]
    return np.array(rows, np.int64), tuple(places)


def _names(indices: Ints, names: Sequence[str]) -> list[str | None]:
    return [None if i < 0 else names[i] for i in indices.tolist()]
