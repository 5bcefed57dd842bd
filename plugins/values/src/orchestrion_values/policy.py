"""The runtime of `values`, the models that its trainers install, and how they explore.

    policy.model is None                        # untrained: uniform over what is allowed
    scores = policy.model.scores(situations, allowed)  # [n, k]; the highest allowed one is taken

A trainer explores with `Exploring` or `sampling`, reads the results with `orchestrion.gather`, and
sets `policy.model`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Protocol

import numpy as np
from attrs import frozen
from orchestrion_encoders import Allowing, Joined, Reading, encoder_settings, refuse_other_team
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
)
from orchestrion_values.arrays import Floats, Mask
from orchestrion_values.threads import serial
from orchestrion_values.values import STANDARD

MODELS: dict[str, str] = {
    "bandit": "orchestrion_values.bandit_model:BanditModel",
    "fitted-q": "orchestrion_values.fitted_learner:FittedModel",
    "optimistic-beliefs": "orchestrion_values.optimism.learner:Believed",
    "optimistic-states": "orchestrion_values.optimism.learner:Planned",
}
"""The models of this package, by the name under which they are saved.

Other distributions name theirs by entry points of the group `MODEL_GROUP`: a name in a file is
looked up among what is installed, and no path in a file is ever imported.
"""
MODEL_GROUP = "orchestrion.value_models"
STUCK = Decision(stop=True)
"""The decision where the task blocks every choice."""


class ValueModel(Protocol):
    """What a trainer has learned, as the policy uses it.

    A class of models also has a class method `load(saved, policy)`, the inverse of `save`, and is
    listed under its `name` in `MODELS` or as an entry point of `MODEL_GROUP`. It may have an
    attribute `learned`: what of it `learned_behaviors.json` shows, as JSON.
    """

    name: str

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return the score of each choice [n, k]; the first of equal ones is taken.

        It depends on each situation alone. A choice that `allowed` [n, k] excludes is never taken.
        """
        ...

    def save(self) -> Saved:
        """Return everything that `load` needs."""
        ...


@frozen(eq=False)
class RecordedChoice:
    """The record of a decision that a trainer learns from.

    Args:
        situation: what the policy saw.
        choice: the index of the choice among the policy's choices.
        allowed: which choices were allowed [k].
    """

    situation: Situation
    choice: int
    allowed: Mask


class ValuePolicy(Reading):
    """Takes the choice with the highest score.

    Attributes:
        choices: k of them, in roster order; None is stopping.
        names: of the choices: "agent", "agent:option", "stop".
        ending: whether each choice ends the episode [k].
        encoders: turn situations into numbers.
        model: computes the scores; None before training.
    """

    def __init__(self, encoders: Sequence[Encoder], ctx: OpenContext, *, stop: bool) -> None:
        self.choices: tuple[Choice, ...] = (*choices(ctx.roster), *([None] if stop else []))
        if not self.choices:
            raise UsageError(f"{ctx.path}: the team has no agent to choose")
        self.names = ["stop" if c is None else choice_name(c) for c in self.choices]
        self.roster = ctx.roster
        ends = {member.name for member in ctx.roster if member.ends}
        self.ending = np.array([c is None or c.agent in ends for c in self.choices], np.bool_)
        self.model: ValueModel | None = None
        self.encoders, self._path = tuple(encoders), ctx.path
        self._joined = Joined(self.encoders, ctx.path)
        self._allowed = Allowing(self.choices, self.names)
        self._decisions = [STUCK if c is None else Decision((c,)) for c in self.choices]

    @property
    def own_encoders(self) -> bool:
        """Return whether its encoders are others than those of a policy that names none."""
        return encoder_settings(self.encoders) != encoder_settings(STANDARD)

    def encode(self, situations: Sequence[Situation]) -> Encoded:
        """Return situations as numbers."""
        return join([encoder.encode(situations, self.choices) for encoder in self.encoders])

    def encode_alike(self, situations: Sequence[Situation]) -> Encoded:
        """Return situations as numbers, of the widths that the first ones here had.

        For models of a fixed width: a task may have no hint for any situation of a batch.
        """
        return self._joined.encode(situations, self.choices)

    def allowed(self, situations: Sequence[Situation]) -> Mask:
        """Return which choices the task allows [n, k]; stopping always is."""
        rows = [self._allowed(situation.observation) for situation in situations]
        return np.array(rows, np.bool_).reshape(len(rows), len(self.choices))

    @serial()
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return the choice with the highest score in each; a random one before training."""
        if not situations:
            return []
        allowed = self.allowed(situations)
        if self.model is None:
            return [self._draw(row, key) for row, key in zip(allowed, keys, strict=True)]
        scores = np.where(allowed, self.model.scores(situations, allowed), -np.inf)
        best = scores.argmax(axis=1).tolist()
        return [
            self._decisions[place] if row.any() else STUCK
            for place, row in zip(best, allowed, strict=True)
        ]

    def _draw(self, allowed: Mask, key: Key) -> Decision:
        places = np.flatnonzero(allowed)
        return self._decisions[places[int(key.uniform() * len(places))]] if len(places) else STUCK

    def take(self, place: int, situation: Situation, allowed: Mask, propensity: float) -> Decision:
        """Return the decision for a choice, with its record for the trainer."""
        choice = self.choices[place]
        return Decision(
            () if choice is None else (choice,),
            stop=choice is None,
            logp=float(np.log(propensity)) if propensity > 0 else None,
            record=RecordedChoice(situation, place, allowed),
        )

    @serial()
    def probabilities(self, situations: Sequence[Situation]) -> Floats:
        """Return the probability of each choice [n, k]; zeros where nothing is allowed."""
        allowed = self.allowed(situations)
        weights: Floats = allowed.astype(np.float64)
        if self.model is not None:
            scores = np.where(allowed, self.model.scores(situations, allowed), -np.inf)
            weights *= np.eye(len(self.choices))[scores.argmax(axis=1)]
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1)
        return weights

    def save(self) -> Saved:
        if self.model is None:
            return Saved(data={"choices": self.names, "model": None, "data": None})
        saved = self.model.save()
        data: dict[str, Any] = {
            "choices": self.names,
            "encoders": encoder_settings(self.encoders),
            "shapes": self._joined.shapes,
            "model": self.model.name,
            "data": saved.data,
        }
        if learned := getattr(self.model, "learned", None):
            data["learned"] = learned
        return Saved(saved.arrays, data)

    def load(self, saved: Saved) -> None:
        """Install a saved model.

        Raises:
            CheckpointError: it was saved for another team, with other encoders, or by another
                version.
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
        # Older saved policies do not say what their encoders were.
        mine = encoder_settings(self.encoders)
        if data.get("encoders", mine) != mine:
            raise CheckpointError(
                f"{self._path}: the policy was saved with encoders = {data['encoders']}, here it "
                f"is {mine}; give it the settings it was trained with, or train anew"
            )
        self._joined.shapes = data.get("shapes")  # older saved policies have none
        models = {plugin.name: plugin.value for plugin in entry_points(group=MODEL_GROUP)} | MODELS
        where = models.get(data["model"])
        if where is None:
            raise CheckpointError(
                f"{self._path}: no installed package has the saved policy's model "
                f"{data['model']!r}; known models: {', '.join(sorted(models)) or 'none'}"
            )
        module, _, name = where.partition(":")
        kind: Any = getattr(import_module(module), name)
        self.model = kind.load(Saved(saved.arrays, data["data"]), self)


Choose = Callable[[Sequence[Situation], Mask, Sequence[Key]], Sequence[tuple[int, float]]]
"""Maps situations, allowed choices [n, k] and keys to choices and their probabilities."""


@frozen
class Exploring(Policy):
    """A policy for training episodes that records its decisions.

    Args:
        policy: the policy that is trained; its choices are used.
        choose: called with the situations in which something is allowed.
    """

    policy: ValuePolicy
    choose: Choose

    @property
    def prepares(self) -> bool:
        return self.policy.prepares

    async def prepare(self, situation: Situation, calls: Calls) -> None:
        await self.policy.prepare(situation, calls)

    @serial()
    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        if not situations:
            return []
        allowed = self.policy.allowed(situations)
        decisions = [STUCK] * len(situations)
        at = np.flatnonzero(allowed.any(axis=1)).tolist()
        if at:
            chosen = self.choose([situations[i] for i in at], allowed[at], [keys[i] for i in at])
            for i, (place, propensity) in zip(at, chosen, strict=True):
                decisions[i] = self.policy.take(place, situations[i], allowed[i], propensity)
        return decisions


def sampling(
    policy: ValuePolicy, chances: Callable[[Sequence[Situation], Mask], Floats]
) -> Exploring:
    """Return an explorer that draws each choice with a probability.

    Args:
        policy: the policy that is trained.
        chances: maps situations and allowed choices [n, k] to probabilities [n, k].
    """

    def choose(
        situations: Sequence[Situation], allowed: Mask, keys: Sequence[Key]
    ) -> list[tuple[int, float]]:
        result = []
        for row, key in zip(chances(situations, allowed), keys, strict=True):
            sums = row.cumsum()
            place = int(np.searchsorted(sums, key.uniform() * sums[-1], side="right"))
            place = min(place, int(np.flatnonzero(row)[-1]))
            result.append((place, float(row[place])))
        return result

    return Exploring(policy, choose)
