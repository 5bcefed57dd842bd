"""The runtime of `neural`: decides in batches, evaluates what it recorded, saves and loads."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder
from orchestrion_encoders.joined import Allowing, Joined, Reading

from orchestrion import (
    Activation,
    CheckpointError,
    Decision,
    Episode,
    Key,
    Observation,
    OpenContext,
    Saved,
    Situation,
    UsageError,
    choice_name,
    choices,
)

if TYPE_CHECKING:
    from orchestrion_encoders.tensors import Inputs
    from torch import Tensor

    from orchestrion_reinforce.networks import Scorer
    from orchestrion_reinforce.neural import Neural

__all__ = ["Batch", "NeuralPolicy", "Recorded"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

GRID = 2.0**14
"""Logits are rounded to 1/GRID.

A matrix product may differ in its last bits (1e-15) with the number of rows. Rounded this
coarsely, a logit changes with a chance of 1e-11; a choice, only if the draw also falls into the
sliver that this moves.
"""
REMEMBERED = 4096
"""How many observations are kept looked at."""
STOP_CHOICE = "(stop)"
"""Stopping among the names in a checkpoint; no agent is called this."""
STUCK = Decision(stop=True, logp=0.0)
"""Where the task blocks everything there is nothing to learn."""


class Recorded(NamedTuple):
    """What a decision was taken on, and the choice: numbers of one situation, as in `Encoded`."""

    context: Floats
    numbers: Floats
    prior: Floats | None
    turns: Floats | None
    allowed: Mask
    familiar: Floats
    """What of the context may come again, see `Joined.familiar`."""
    action: int

    @property
    def content(self) -> tuple[bytes | None, ...]:
        """All but the choice, so that equal situations can be told."""
        return tuple(None if part is None else part.tobytes() for part in self[:-2])


@frozen(eq=False)
class Batch:
    """Recorded decisions as tensors: m situations, and what was chosen in which of them.

    Situations that are equal are kept once: whatever is computed of them is equal as well, and
    where a task has few states, that saves most of the work.

    Args:
        inputs: what the network is fed [m, ...].
        allowed: what could be chosen [m, k].
        rows: the situation each decision was taken in [n].
        actions: what was chosen [n].
    """

    inputs: Inputs
    allowed: Tensor
    rows: Tensor
    actions: Tensor

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, decisions: Tensor) -> Batch:
        """These decisions, with no other situations than theirs."""
        kept, rows = self.rows[decisions].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        parts = (None if part is None else part[kept] for part in self.inputs)
        return Batch(type(self.inputs)(*parts), self.allowed[kept], rows, self.actions[decisions])


@define(eq=False)
class _Distribution:
    """How likely each choice is in one situation; equal decisions are made once and shared."""

    starts: Sequence[tuple[Activation, ...]]
    """What each choice starts; nothing is stopping."""
    shown: tuple[Any, ...]
    """The situation, as `Recorded` has it, without an action."""
    below: list[float]
    """Cumulated weights of the choices; all 0 where nothing is allowed."""
    logp: list[float]
    """Logarithms of their probabilities."""
    _decisions: dict[int, Decision] = field(factory=dict)

    def draw(self, uniform: float) -> Decision:
        """The decision that a number in [0, 1) stands for."""
        total = self.below[-1]
        # Strictly below the last sum, so that a choice of weight 0 is never hit.
        return self._decision(bisect_right(self.below, uniform * total)) if total else STUCK

    def best(self) -> Decision:
        """The likeliest choice; of equals the first."""
        return self._decision(self.logp.index(max(self.logp))) if self.below[-1] else STUCK

    def _decision(self, place: int) -> Decision:
        decision = self._decisions.get(place)
        if decision is None:
            start, record = self.starts[place], Recorded._make((*self.shown, place))
            decision = Decision(start, not start, "all", self.logp[place], record)
            self._decisions[place] = decision
        return decision


class NeuralPolicy(Reading):
    """A network over encoded situations; `choices` gives the order of its outputs."""

    def __init__(self, settings: Neural, encoders: Sequence[Encoder], ctx: OpenContext) -> None:
        if not ctx.roster and not settings.stop:
            raise UsageError(f"{ctx.path}: the team has no agent to choose")
        self.settings, self._path, self._key = settings, ctx.path, ctx.key
        self.encoders, self.joined = encoders, Joined(encoders, f"{ctx.path}: neural")
        self._set_choices((*choices(ctx.roster), *([None] if settings.stop else [])))

    def _set_choices(self, ordered: tuple[Choice, ...]) -> None:
        self.choices = ordered
        self._names = [STOP_CHOICE if c is None else choice_name(c) for c in ordered]
        self._starts = [() if c is None else (c,) for c in ordered]
        self._allowed = Allowing(ordered, self._names)
        # Built once the task has shown how many numbers it gives.
        self.network: Scorer | None = None
        self.changed()

    def changed(self) -> None:
        """To be called when weights or encoders have changed: forget what followed from them."""
        self._known: dict[int, tuple[Observation | None, _Distribution]] = {}
        self._exact: Callable[[Encoded], Floats] | None = None

    # ------------------------------------------------------------------ deciding

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """One decision each; what is not known yet comes from one forward pass.

        A choice is drawn by comparing one uniform number of the situation's key with the
        cumulated probabilities.
        """
        greedy = self.settings.greedy
        return [
            look.best() if greedy and not situation.training else look.draw(key.uniform())
            for look, situation, key in zip(self._look(situations), situations, keys, strict=True)
        ]

    def _look(self, situations: Sequence[Situation]) -> list[_Distribution]:
        """The distribution in each situation.

        Where nothing but the observation counts, each observation is looked at once under the
        same weights: tasks with few states show the same ones over and over.
        """
        if not self.joined.observes:
            return self._distributions(situations)
        if len(self._known) > REMEMBERED:
            self._known.clear()
        known = self._known
        new = {id(s.observation): s for s in situations if id(s.observation) not in known}
        found = self._distributions([*new.values()])
        for (name, situation), look in zip(new.items(), found, strict=True):
            known[name] = situation.observation, look  # kept, so that no other gets its id
        return [known[id(situation.observation)][1] for situation in situations]

    def _distributions(self, situations: Sequence[Situation]) -> list[_Distribution]:
        if not situations:
            return []
        encoded, allowed, weights = self._weigh(situations)
        below = weights.cumsum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # choices that are not allowed
            logp = np.log(weights / below[:, -1:])
        nothing = [None] * len(situations)
        shown = zip(
            encoded.context,
            encoded.choices,
            nothing if encoded.prior is None else encoded.prior,
            encoded.turns or nothing,
            allowed,
            self.joined.familiar(encoded.context),
            strict=True,
        )
        rows = zip(shown, below.tolist(), logp.tolist(), strict=True)
        return [_Distribution(self._starts, *row) for row in rows]

    def probabilities(self, situations: Sequence[Situation]) -> Floats:
        """The distribution it samples from in each situation [n, choices].

        All zeros where the task blocks everything; `decide` stops there.
        """
        if not situations:
            return np.zeros((0, len(self.choices)))
        weights = self._weigh(situations)[2]
        total = weights.sum(axis=1, keepdims=True)
        result: Floats = weights / np.where(total == 0, 1.0, total)
        return result

    def _weigh(self, situations: Sequence[Situation]) -> tuple[Encoded, list[Mask], Floats]:
        """The situations as numbers, what is allowed, and weights as the probabilities are."""
        encoded = self.joined.encode(situations, self.choices)
        masks = [self._allowed(situation.observation) for situation in situations]
        allowed = np.array(masks)
        if self._exact is None:
            self._exact = (self.network or self._build()).exactly()
        logits = np.rint(self._exact(encoded) * GRID)
        # Finite, so that a row in which nothing is allowed gives no NaN.
        logits[~allowed] = -1e300
        logits -= logits.max(axis=1, keepdims=True)
        logits /= GRID
        return encoded, masks, np.exp(logits) * allowed

    def _build(self) -> Scorer:
        from orchestrion_encoders.tensors import generator_of

        from orchestrion_reinforce.networks import Scorer

        shapes = self.joined.shapes
        assert shapes is not None
        generator, reader, reads = generator_of(self._key.child("weights")), None, 0
        for encoder, (_, _, turn) in zip(self.encoders, shapes, strict=True):
            if turn:
                reader, reads = encoder.network(turn, generator)  # type: ignore[attr-defined]
        context, choice, _ = map(sum, zip(*shapes, strict=True))
        own = 0 if self.joined.shared else len(self.choices)
        self.network = Scorer(self.settings, context, choice, own, reader, reads, generator)
        return self.network

    # ------------------------------------------------------------------ learning

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Let encoders take note of finished training episodes."""
        for encoder in self.encoders:
            if hasattr(encoder, "learn"):
                encoder.learn(episodes)
        self.changed()

    def collect(self, records: Sequence[Recorded]) -> Batch:
        """The records of decisions as tensors, in their order."""
        import torch
        from orchestrion_encoders.tensors import tensors

        places: dict[tuple[bytes | None, ...], int] = {}
        firsts: list[Recorded] = []
        known: dict[int, int] = {}  # shared records need not be compared
        for record in records:
            if id(record) not in known:
                row = known[id(record)] = places.setdefault(record.content, len(firsts))
                if row == len(firsts):
                    firsts.append(record)
        context, numbers, priors, turns, allowed, _, _ = zip(*firsts, strict=True)
        encoded = Encoded(
            np.array(context),
            np.array(numbers),
            None if priors[0] is None else np.array(priors),
            None if turns[0] is None else turns,
        )
        return Batch(
            tensors(encoded, torch.float32),
            torch.from_numpy(np.array(allowed)),
            torch.tensor([known[id(record)] for record in records]),
            torch.tensor([record.action for record in records]),
        )

    def log_probabilities(self, batch: Batch) -> Tensor:
        """Of all choices in every situation [m, k]; 0 where a choice is not allowed."""
        assert self.network is not None
        logits = self.network(batch.inputs).masked_fill(~batch.allowed, -1e30)
        logp: Tensor = logits.log_softmax(1).masked_fill(~batch.allowed, 0.0)
        return logp

    # ------------------------------------------------------------------ saving

    def save(self) -> Saved:
        """Weights, and all that must agree for them to mean the same."""
        data: dict[str, Any] = {"choices": self._names, **self._settings()}
        data["hash"] = _digest(data)
        if self.network is None:
            return Saved(data=data)
        from orchestrion_encoders.tensors import pack

        return Saved({n: pack(p) for n, p in self.network.named_parameters()}, data)

    def _settings(self) -> dict[str, Any]:
        s = self.settings
        return {
            "encoders": self.joined.settings,
            "shapes": self.joined.shapes,
            "outlook": s.outlook,
            "hidden": list(s.hidden),
            "activation": s.activation,
        }

    def load(self, saved: Saved) -> None:
        """Take over saved weights.

        Raises:
            CheckpointError: it was saved with other choices or other settings, or is damaged.
        """
        data = dict(saved.data or {})
        if data.pop("hash", None) != _digest(data):
            raise CheckpointError(f"{self._path}: the saved policy is damaged (its hash differs)")
        for name, value in self._settings().items():
            # How much the task shows is the task's; a policy that has seen nothing takes any.
            if data.get(name) != value and not (
                name == "shapes" and None in (value, data.get(name))
            ):
                raise CheckpointError(
                    f"{self._path}: the policy was saved with {name} = {data.get(name)}, here it "
                    f"is {value}; give it the settings it was trained with, or train anew"
                )
        if not self.joined.free:
            self._reorder(list(data["choices"]))
        if data["shapes"] is not None:
            from orchestrion_encoders.tensors import unpack

            self.joined.shapes = [list(shape) for shape in data["shapes"]]
            for name, parameter in self._build().named_parameters():
                parameter.data = unpack(saved, name, parameter, self._path)
            self.changed()

    def _reorder(self, names: list[str]) -> None:
        """Put the choices in a saved order, so that weights keep their meaning."""
        mine = dict(zip(self._names, self.choices, strict=True))
        gone = [name for name in names if name not in mine]
        new = [name for name in mine if name not in names]
        differences = [f"not in this team: {', '.join(gone)}"] if gone else []
        differences += [f"new in this team: {', '.join(new)}"] if new else []
        if differences:
            raise CheckpointError(
                f"{self._path}: the policy was saved for another team; {'; '.join(differences)}. "
                "Use the team it was trained with, or train anew; a policy that goes by the "
                "encoder members, and by no other that counts choices, applies to other teams"
            )
        self._set_choices(tuple(mine[name] for name in names))


def _digest(data: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()
