"""The runtime of `neural`: decides in batches, offers its gradient, saves and loads itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrion import (
    Activation,
    CheckpointError,
    Decision,
    Key,
    Observation,
    OpenContext,
    Policy,
    Saved,
    Situation,
    UsageError,
)
from orchestrion.choices import choice_name, choices
from orchestrion_reinforce.arrays import pack, unpack
from orchestrion_reinforce.distribution import Distribution, Recorded
from orchestrion_reinforce.encoder import (
    REMEMBERED,
    STOP,
    Encoder,
    Floats,
    Mask,
    hashed_words,
)
from orchestrion_reinforce.gradient import Batch, Evaluation
from orchestrion_reinforce.network import Network

if TYPE_CHECKING:
    from orchestrion_reinforce.neural import Neural

__all__ = ["NetworkPolicy", "Recorded"]

GRID = 2.0**14
"""Logits are rounded to 1/GRID.

A matrix product may differ in its last bits (1e-15) with the number of rows. Rounded this
coarsely, a logit changes with a chance of 1e-11; a choice, only if the draw also falls into the
sliver that this moves.
"""
HINT = 16.0
"""What hints are multiplied by, so that their weights need not grow as far."""
START = 0.01
"""Scale of the last layer's first weights: all choices are almost equally likely at first."""


class NetworkPolicy(Policy):
    """A network over encoded situations; `choices` gives the order of its outputs."""

    def __init__(self, settings: Neural, ctx: OpenContext) -> None:
        if not ctx.roster and not settings.stop:
            raise UsageError(f"{ctx.path}: the team has no agent to choose")
        self.settings, self._path, self._key = settings, ctx.path, ctx.key
        self._roles = {member.name: member.role for member in ctx.roster}
        self.choices: tuple[Activation | None, ...] = choices(ctx.roster)
        if settings.stop:
            self.choices = (*self.choices, None)
        self._set_choices(self.choices)

    def _set_choices(self, ordered: tuple[Activation | None, ...]) -> None:
        self.choices = ordered
        self._starts = [() if one is None else (one,) for one in ordered]
        self._known: dict[int, tuple[Observation | None, Distribution]] = {}
        self._known_at: Floats = np.zeros(0)
        # Both are built once it is known how many features the task shows.
        self._encoder: Encoder | None = None
        self._network: Network | None = None

    # ------------------------------------------------------------------ deciding

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """One decision each; what is not known yet comes from one forward pass.

        A choice is drawn by comparing one uniform number of the situation's key with the
        cumulated probabilities.
        """
        if not situations:
            return []
        greedy = self.settings.greedy
        return [
            found.best() if greedy and not one.training else found.draw(key.uniform())
            for found, one, key in zip(self._look(situations), situations, keys, strict=True)
        ]

    def _look(self, situations: Sequence[Situation]) -> list[Distribution]:
        """The distribution in each situation.

        Where nothing but the observation counts, each observation is looked at once under the
        same weights: tasks with few states show the same ones over and over.
        """
        network, _ = self._ready(situations[0])
        if self.settings.history or self.settings.text:
            return self._distributions(situations)
        known = self._known
        if len(known) > REMEMBERED or not np.array_equal(self._known_at, network.parameters):
            known.clear()
            self._known_at = network.parameters.copy()
        new = {id(one.observation): one for one in situations if id(one.observation) not in known}
        if new:
            for one, found in zip(new.values(), self._distributions([*new.values()]), strict=True):
                # With the observation itself, so that no other gets its id.
                known[id(one.observation)] = one.observation, found
        return [known[id(one.observation)][1] for one in situations]

    def _distributions(self, situations: Sequence[Situation]) -> list[Distribution]:
        rows, masks, hints, weights = self._weigh(situations)
        below = weights.cumsum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # choices that are not allowed
            logp = np.log(weights / below[:, -1:])
        return [
            Distribution(self._starts, row, mask, hint, sums, logs)
            for row, mask, hint, sums, logs in zip(
                rows,
                masks,
                [None] * len(rows) if hints is None else hints,
                below.tolist(),
                logp.tolist(),
                strict=True,
            )
        ]

    def probabilities(self, situations: Sequence[Situation]) -> Floats:
        """The distribution it samples from in each situation [n, choices].

        All zeros where the task blocks everything; `decide` stops there.
        """
        if not situations:
            return np.zeros((0, len(self.choices)))
        weights = self._weigh(situations)[3]
        total = weights.sum(axis=1, keepdims=True)
        result: Floats = weights / np.where(total == 0, 1.0, total)
        return result

    def _weigh(
        self, situations: Sequence[Situation]
    ) -> tuple[Floats, list[Mask | None], Floats | None, Floats]:
        """Rows, masks, hints, and weights proportional to the probabilities."""
        network, encoder = self._ready(situations[0])
        rows, masks = encoder.encode(situations), encoder.masks(situations)
        hints, allowed = encoder.hinted(situations), encoder.stacked(masks)
        logits = self._logits(network.forward(rows), hints)
        logits *= GRID
        np.rint(logits, out=logits)
        if allowed is not None:
            # Finite, so that a row in which nothing is allowed gives no NaN.
            logits[~allowed] = -1e300
        logits -= logits.max(axis=1, keepdims=True)
        logits /= GRID
        weights = np.exp(logits, out=logits)
        if allowed is not None:
            weights *= allowed
        return rows, masks, hints, weights

    def _logits(self, outputs: Floats, hints: Floats | None) -> Floats:
        """Each choice's own output, its hints by the weights that the other outputs are, and the
        opinion that training begins with."""
        if hints is None:
            return outputs
        count = len(self.choices)
        result: Floats = outputs[:, :count] + HINT * np.einsum(
            "nck,nk->nc", hints[:, :, :-1], outputs[:, count:]
        )
        result += self.settings.outlook * hints[:, :, -1]
        return result

    def _ready(self, first: Situation) -> tuple[Network, Encoder]:
        if self._network is None or self._encoder is None:
            seen = first.observation
            hints = seen.hints if seen is not None and self.settings.hints else {}
            width = len(next(iter(hints.values()), ()))
            return self._build(0 if seen is None else len(seen.features), width)
        return self._network, self._encoder

    def _build(self, features: int, hints: int) -> tuple[Network, Encoder]:
        self._encoder = Encoder(self.settings, self.choices, features, hints)
        widths = (self._encoder.width, *self.settings.hidden, len(self.choices) + hints)
        generator = np.random.Generator(np.random.PCG64(self._key.child("weights").integer()))
        self._network = Network(
            widths, self.settings.activation, generator, START, self._embedding(hints)
        )
        return self._network, self._encoder

    def _embedding(self, hints: int) -> Floats | None:
        width = self.settings.roles
        if not width:
            return None
        texts = [
            STOP if one is None else f"{one.agent} {one.option or ''} {self._roles[one.agent]}"
            for one in self.choices
        ]
        words = np.array([hashed_words(text, width) for text in texts])
        # The weights of hints are outputs of their own.
        return np.block(
            [
                [words, np.zeros((len(texts), hints))],
                [np.zeros((hints, width)), np.eye(hints)],
            ]
        )

    # ------------------------------------------------------------------ learning

    @property
    def parameters(self) -> Floats:
        """All weights, flat; changing this array changes the policy. Empty until first used."""
        return np.zeros(0) if self._network is None else self._network.parameters

    def collect(self, records: Sequence[Recorded]) -> Batch:
        """The records of decisions as arrays, in their order."""
        assert self._encoder is not None
        by_content: dict[tuple[bytes | None, ...], int] = {}
        by_identity: dict[int, int] = {}  # shared records need not be compared
        firsts: list[Recorded] = []
        rows: list[int] = []
        for one in records:
            row = by_identity.get(id(one))
            if row is None:
                row = by_identity[id(one)] = by_content.setdefault(one.content, len(firsts))
                if row == len(firsts):
                    firsts.append(one)
            rows.append(row)
        return Batch(
            np.array([one.inputs for one in firsts]),
            self._encoder.stacked([one.mask for one in firsts]),
            None if firsts[0].hints is None else np.array([one.hints for one in firsts]),
            np.array(rows, np.int64),
            np.array([one.action for one in records], np.int64),
        )

    def evaluate(self, batch: Batch, dtype: Any = np.float32) -> Evaluation:
        """Log-probabilities and normalised entropies under the present weights."""
        assert self._network is not None
        tape = self._network.record(batch.inputs, dtype)
        logits = self._logits(tape.out, batch.hints)
        if batch.masks is not None:
            logits[~batch.masks] = -1e300
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        logp = np.subtract(logits, np.log(total), out=logits)
        if batch.masks is not None:
            logp *= batch.masks
        entropy = -np.einsum("ij,ij->i", p, logp)
        scale = _scale(batch.masks, entropy, len(self.choices))
        return Evaluation(
            logp[batch.rows, batch.actions],
            (entropy * scale)[batch.rows],
            (tape, p, logp, entropy, scale, batch),
        )

    def gradient(self, evaluation: Evaluation, by_logp: Floats, by_entropy: Floats) -> Floats:
        """The flat gradient of a loss, given its gradients by `logp` and `entropy`.

        By the logits: d logp = onehot - p, d H = -p (log p + H); summed over the decisions that
        were taken in a situation.
        """
        assert self._network is not None
        tape, p, logp, entropy, scale, batch = evaluation.tape
        rows, (m, choices) = batch.rows, p.shape
        by_logits = logp + entropy[:, None]
        by_logits *= (np.bincount(rows, by_entropy, m) * scale)[:, None]
        by_logits += np.bincount(rows, by_logp, m)[:, None]
        by_logits *= -p
        chosen = np.bincount(rows * choices + batch.actions, by_logp, m * choices)
        by_logits += chosen.reshape(m, choices)
        if batch.hints is not None:
            by_hints = HINT * np.einsum("nc,nck->nk", by_logits, batch.hints[:, :, :-1])
            by_logits = np.concatenate([by_logits, by_hints], axis=1)
        return self._network.gradient(tape, by_logits)

    def logp(
        self,
        inputs: Floats,
        masks: Mask | None,
        actions: NDArray[np.int64],
        hints: Floats | None = None,
    ) -> Floats:
        """Log-probabilities of choices [n], in double precision."""
        each = np.arange(len(actions))
        return self.evaluate(Batch(inputs, masks, hints, each, actions), np.float64).logp

    # ------------------------------------------------------------------ saving

    def save(self) -> Saved:
        """Weights, and all that must agree for them to mean the same."""
        data: dict[str, Any] = {"choices": self._names(), **self._shape()}
        data["hash"] = _digest(data)
        if self._network is None:
            return Saved(data=data)
        layers = self._network.views(self._network.parameters)
        arrays = {}
        for i, (weight, bias) in enumerate(layers):
            arrays[f"layer{i}.weight"], arrays[f"layer{i}.bias"] = pack(weight), pack(bias)
        return Saved(arrays, data)

    def load(self, saved: Saved) -> None:
        """Take over saved weights.

        The saved order of choices becomes this policy's, so that weights keep their meaning
        whatever the order of agents in the config is.

        Raises:
            CheckpointError: it was saved with other choices or other settings, or is damaged.
        """
        data = dict(saved.data or {})
        claimed = data.pop("hash", None)
        if claimed != _digest(data):
            raise CheckpointError(f"{self._path}: the saved policy is damaged (its hash differs)")
        self._refuse_other_choices(list(data["choices"]))
        self._refuse_other_settings(data)
        known = dict(zip(self._names(), self.choices, strict=True))
        self._set_choices(tuple(known[name] for name in data["choices"]))
        if data["features"] is None:
            return
        network = self._build(int(data["features"]), int(data["hints"] or 0))[0]
        layers = network.views(network.parameters)
        for i, (weight, bias) in enumerate(layers):
            weight[:] = unpack(saved, f"layer{i}.weight", weight.shape, self._path)
            bias[:] = unpack(saved, f"layer{i}.bias", bias.shape, self._path)

    def _refuse_other_choices(self, theirs: list[str]) -> None:
        mine = self._names()
        if sorted(mine) != sorted(theirs):
            gone = [name for name in theirs if name not in mine]
            new = [name for name in mine if name not in theirs]
            raise CheckpointError(
                f"{self._path}: the policy was saved for another team; "
                + "; ".join(
                    f"{what}: {', '.join(names)}"
                    for what, names in (("not in this team", gone), ("new in this team", new))
                    if names
                )
                + ". Use the team it was trained with, or train anew"
            )

    def _refuse_other_settings(self, data: dict[str, Any]) -> None:
        for name, value in self._shape().items():
            # How much the task shows is the task's; a policy that has seen nothing takes any.
            if name in ("features", "hints") and (value is None or data.get(name) is None):
                continue
            if name == "outlook" and not data.get("hints"):  # it weighed nothing
                continue
            if data.get(name) != value:
                raise CheckpointError(
                    f"{self._path}: the policy was saved with {name} = {data.get(name)}, here it "
                    f"is {value}; give it the settings it was trained with, or train anew"
                )

    def _names(self) -> list[str]:
        return [STOP_CHOICE if one is None else choice_name(one) for one in self.choices]

    def _shape(self) -> dict[str, Any]:
        s = self.settings
        return {
            "features": None if self._encoder is None else self._encoder.features,
            "hints": None if self._encoder is None else self._encoder.hints,
            "outlook": s.outlook,
            "hidden": list(s.hidden),
            "activation": s.activation,
            "observation": s.observation,
            "history": s.history,
            "cost_unit": s.cost_unit,
            "text": s.text,
            "roles": s.roles,
        }


STOP_CHOICE = "(stop)"
"""Stopping among the names in a checkpoint; no agent is called this."""


def _scale(masks: Mask | None, entropy: Floats, count: int) -> Floats:
    """1 / ln(allowed choices) for each decision; 0 where there was no choice."""
    if masks is None:
        return np.full_like(entropy, 1 / np.log(count) if count > 1 else 0.0)
    allowed = masks.sum(axis=1)
    return np.where(allowed > 1, 1 / np.log(np.maximum(allowed, 2)), 0.0)


def _digest(data: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()
