"""The runtime of `values`, and what its trainers install in it.

    policy.model is None                        # untrained: uniform over what is allowed
    scores = policy.model.scores(situations, allowed)  # [n, k]; the highest allowed one is taken

A trainer explores with `Exploring`, reads what came of it with `orchestrion.gather`, and sets
`policy.model`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from orchestrion_encoders import Reading, refuse_other_team
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder, join

from orchestrion import (
    Calls,
    CheckpointError,
    Decision,
    Key,
    OpenContext,
    Policy,
    Saved,
    Situation,
    UsageError,
    choice_name,
    choices,
    is_blocked,
)

__all__ = ["Exploring", "Floats", "Mask", "Model", "Taken", "ValuePolicy"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MODELS: dict[str, str] = {
    "bandit": "orchestrion_values.bandit_model:BanditModel",
    "fitted-q": "orchestrion_values.fitted_learner:FittedModel",
    "optimistic-beliefs": "orchestrion_values.optimism.planned:Believed",
    "optimistic-states": "orchestrion_values.optimism.planned:Planned",
}
"""Where the models of this package stand, by the name under which they are saved.

Other distributions name theirs by entry points of the group `MODEL_GROUP`, so that what a file
says is looked up among what is installed, and never imported by itself.
"""
MODEL_GROUP = "orchestrion.value_models"
STUCK = Decision(stop=True)
"""Where the task blocks everything and stopping is no choice."""


class Model(Protocol):
    """What a trainer has learned, as the policy uses it.

    A class of models also has `load(saved, policy)`, a class method that gives back what `save`
    saved, and stands in `MODELS`, or is an entry point of `MODEL_GROUP`, under its `name`.
    """

    name: str

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """How good each choice is [n, k]; of equal ones the first is taken.

        A pure function of each situation. What `allowed` [n, k] excludes is never taken, whatever
        its score.
        """
        ...

    def save(self) -> Saved:
        """All that `load` needs."""
        ...


@frozen(eq=False)
class Taken:
    """What a decision was taken on: the record that a trainer learns from.

    Args:
        situation: what it was shown.
        choice: the place of what was chosen among the policy's choices.
        allowed: what could be chosen [k].
        propensity: the probability with which it was chosen.
    """

    situation: Situation
    choice: int
    allowed: Mask
    propensity: float


class ValuePolicy(Reading):
    """Takes the choice of the highest score.

    Attributes:
        choices: what can be chosen, k of them, in roster order; None is stopping.
        names: of the choices: "agent", "agent:option", "stop".
        encoders: what makes numbers of situations.
        model: what gives the scores; None before training.
    """

    def __init__(self, encoders: Sequence[Encoder], ctx: OpenContext, *, stop: bool) -> None:
        self.choices: tuple[Choice, ...] = (*choices(ctx.roster), *([None] if stop else []))
        if not self.choices:
            raise UsageError(f"{ctx.path}: the team has no agent to choose")
        self.names = ["stop" if c is None else choice_name(c) for c in self.choices]
        self.roster = ctx.roster
        self.model: Model | None = None
        self.encoders, self._path = tuple(encoders), ctx.path
        self._decisions = [STUCK if c is None else Decision((c,)) for c in self.choices]

    def encode(self, situations: Sequence[Situation]) -> Encoded:
        """The situations as numbers."""
        return join([encoder.encode(situations, self.choices) for encoder in self.encoders])

    def allowed(self, situations: Sequence[Situation]) -> Mask:
        """What the task allows [n, k]; stopping always."""
        result = np.ones((len(situations), len(self.choices)), np.bool_)
        for row, situation in zip(result, situations, strict=True):
            if situation.observation is not None and situation.observation.blocked:
                for place, choice in enumerate(self.choices):
                    row[place] = choice is None or not is_blocked(choice, situation.observation)
        return result

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """The choice of the highest score in each; any choice before training."""
        if not situations:
            return []
        allowed = self.allowed(situations)
        if self.model is None:
            return [self.draw(row, key.uniform()) for row, key in zip(allowed, keys, strict=True)]
        scores = np.where(allowed, self.model.scores(situations, allowed), -np.inf)
        best = scores.argmax(axis=1).tolist()
        return [
            self._decisions[place] if row.any() else STUCK
            for place, row in zip(best, allowed, strict=True)
        ]

    def draw(self, allowed: Mask, uniform: float) -> Decision:
        """Draw uniformly from the allowed choices [k]; the number is random in [0, 1)."""
        places = np.flatnonzero(allowed)
        return self._decisions[places[int(uniform * len(places))]] if len(places) else STUCK

    def take(self, place: int, situation: Situation, allowed: Mask, propensity: float) -> Decision:
        """The decision for a choice, with the record that a trainer learns from."""
        choice = self.choices[place]
        return Decision(
            () if choice is None else (choice,),
            stop=choice is None,
            logp=float(np.log(propensity)) if propensity > 0 else None,
            record=Taken(situation, place, allowed, propensity),
        )

    def probabilities(self, situations: Sequence[Situation]) -> Floats:
        """How likely each choice is [n, k]; all zeros where nothing is allowed."""
        allowed = self.allowed(situations)
        if self.model is None:
            total = allowed.sum(axis=1, keepdims=True)
            result: Floats = allowed / np.where(total == 0, 1, total)
            return result
        scores = np.where(allowed, self.model.scores(situations, allowed), -np.inf)
        result = np.zeros(scores.shape)
        result[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
        result[~allowed.any(axis=1)] = 0.0
        return result

    def save(self) -> Saved:
        """The model, by its name, and the choices that it gives scores to."""
        if self.model is None:
            return Saved(data={"choices": self.names, "model": None, "data": None})
        saved = self.model.save()
        data = {"choices": self.names, "model": self.model.name, "data": saved.data}
        return Saved(saved.arrays, data)

    def load(self, saved: Saved) -> None:
        """Take over a saved model.

        Raises:
            CheckpointError: it was saved for another team, or by another version.
        """
        data: Any = saved.data
        saved_names = list(data["choices"])
        refuse_other_team(self._path, saved_names, self.names, "")
        if saved_names != self.names:
            raise CheckpointError(
                f"{self._path}: the policy was saved with its choices in the order "
                f"{', '.join(saved_names)}; list the team's agents in that order, or train anew"
            )
        if data["model"] is None:
            self.model = None
            return
        models = {plugin.name: plugin.value for plugin in entry_points(group=MODEL_GROUP)} | MODELS
        where = models.get(data["model"])
        if where is None:
            raise CheckpointError(
                f"{self._path}: the saved policy holds a model {data['model']!r}, which no "
                f"installed package has; there are {', '.join(sorted(models)) or 'none'}"
            )
        module, _, name = where.partition(":")
        kind: Any = getattr(import_module(module), name)
        self.model = kind.load(Saved(saved.arrays, data["data"]), self)


@frozen
class Exploring(Policy):
    """A policy for training episodes: takes what `choose` says, and records it.

    Args:
        policy: whose choices these are.
        choose: situations, allowed [n, k] and keys to places and their probabilities.
    """

    policy: ValuePolicy
    choose: Callable[[Sequence[Situation], Mask, Sequence[Key]], Sequence[tuple[int, float]]]

    @property
    def prepares(self) -> bool:
        """See `ValuePolicy.prepares`."""
        return self.policy.prepares

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        """See `ValuePolicy.prepare`."""
        await self.policy.prepare(situation, calls)

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """What `choose` takes in each situation."""
        if not situations:
            return []
        allowed = self.policy.allowed(situations)
        free = allowed.any(axis=1)
        decisions = [STUCK] * len(situations)
        at = np.flatnonzero(free).tolist()
        if at:
            chosen = self.choose([situations[i] for i in at], allowed[at], [keys[i] for i in at])
            for i, (place, propensity) in zip(at, chosen, strict=True):
                decisions[i] = self.policy.take(place, situations[i], allowed[i], propensity)
        return decisions
