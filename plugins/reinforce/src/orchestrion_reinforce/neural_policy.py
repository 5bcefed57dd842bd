"""The runtime of `neural`: decides in batches, evaluates what it recorded, saves and loads."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import exp
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import field, frozen
from orchestrion_encoders import Allowing, Joined, Reading, refuse_other_team
from orchestrion_encoders.interfaces import Choice, Encoded, Encoder, Row

from orchestrion import (
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
    replace,
)

if TYPE_CHECKING:  # numpy, too, is imported when it is first used: `validate` needs none
    import numpy as np
    from numpy.typing import NDArray
    from orchestrion_encoders.tensors import Inputs
    from torch import Tensor

    from orchestrion_reinforce.networks import Scorer
    from orchestrion_reinforce.neural import Neural

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

GRID = 2.0**14
"""Logits are rounded to 1/GRID.

The last bits of a matrix product (1e-15) may depend on the number of rows. With this rounding a
logit changes with probability 1e-11, and a choice only if the draw also falls into the moved
interval.
"""
START = 0.01
"""Scale of the network's last weights: all choices are almost equally likely at first."""
REMEMBERED = 4096
"""The maximum of observations whose distributions are kept."""
STOP_CHOICE = "(stop)"
"""The name of stopping in a checkpoint; no agent can have it."""
OTHER_TEAMS = (
    "; a policy with the encoder members, and no other that counts choices, applies to other teams"
)
STUCK = Decision(stop=True, logp=0.0)
"""The decision where the task blocks every choice; nothing is learned from it."""


class RecordedDecision(NamedTuple):
    """The situation of a decision as numbers, and the choice."""

    shown: Row
    allowed: Mask
    familiar: Floats
    """The repeating part of the context; see `Joined.familiar`."""
    action: int


class Batch(NamedTuple):
    """Recorded decisions as tensors: m different situations, and the choices made in them.

    Equal situations are stored and computed once, which saves most of the work in tasks with few
    states.
    """

    inputs: Inputs  # of the network [m, ...]
    allowed: Tensor  # which choices were allowed [m, k]
    rows: Tensor  # the situation of each decision [n]
    actions: Tensor  # the choice of each decision [n]

    def take(self, decisions: Tensor) -> Batch:
        """Return these decisions and their situations."""
        kept, rows = self.rows[decisions].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        return Batch(self.inputs.take(kept), self.allowed[kept], rows, self.actions[decisions])


@frozen(eq=False)
class _Distribution:
    """The probabilities of choices in a situation; equal decisions are shared."""

    below: list[float]  # cumulative weights of the choices; all 0 if nothing is allowed
    logp: list[float]  # logarithms of their probabilities
    shown: tuple[Row, Mask, Floats]  # see `RecordedDecision`
    decisions: dict[int, Decision] = field(init=False, factory=dict)
    chances: dict[str, float] = field(init=False, factory=dict)  # of the choices, for people


class NeuralPolicy(Reading):
    """A network over encoded situations; its outputs are in the order of `choices`."""

    def __init__(self, settings: Neural, encoders: Sequence[Encoder], ctx: OpenContext) -> None:
        if not ctx.roster and not settings.stop:
            raise UsageError(f"{ctx.path}: the team has no agent to choose")
        self.settings, self._path, self._key = settings, ctx.path, ctx.key
        self.encoders, self.joined = encoders, Joined(encoders, f"{ctx.path}: neural")
        self._set_choices((*choices(ctx.roster), *([None] if settings.stop else [])))

    def _set_choices(self, ordered: tuple[Choice, ...]) -> None:
        self.choices = ordered
        self._names = [STOP_CHOICE if c is None else choice_name(c) for c in ordered]
        self._allowed = Allowing(ordered, self._names)
        # Built when the task has shown how many numbers it has.
        self.network: Scorer | None = None
        self.changed()

    def changed(self) -> None:
        """Drop cached distributions; call it after weights or encoders changed."""
        self._known: dict[int, tuple[Observation | None, _Distribution]] = {}
        self._exact: Callable[[Encoded], Floats] | None = None

    # ------------------------------------------------------------------ deciding

    def decide(self, situations: Sequence[Situation], keys: Sequence[Key]) -> Sequence[Decision]:
        """Return a decision for each; new distributions come from one forward pass.

        A choice is drawn by comparing a uniform number of the situation's key with the cumulative
        probabilities.
        """
        decisions, greedy = [], self.settings.greedy
        for look, situation, key in zip(self._look(situations), situations, keys, strict=True):
            total, draws = look.below[-1], not greedy or situation.training
            # Strictly below the last sum, so that a choice of weight 0 is never hit.
            place = (
                bisect_right(look.below, key.uniform() * total)
                if draws
                else look.logp.index(max(look.logp))
            )
            known = look.decisions.get(place)
            decision = known or (self._decision(look, place) if total else STUCK)
            decisions.append(decision if draws else replace(decision, logp=0.0))
        return decisions

    def _decision(self, look: _Distribution, place: int) -> Decision:
        choice, record = self.choices[place], RecordedDecision._make((*look.shown, place))
        start = () if choice is None else (choice,)
        if not look.chances:
            pairs = zip(self._names, look.logp, strict=True)
            look.chances.update((name, round(exp(logp), 6)) for name, logp in pairs)
        decision = Decision(
            start, choice is None, "all", look.logp[place], record, chances=look.chances
        )
        look.decisions[place] = decision
        return decision

    def _look(self, situations: Sequence[Situation]) -> list[_Distribution]:
        """Return the distribution in each situation.

        If only the observation counts, each observation is computed once for the same weights:
        tasks with few states repeat them.
        """
        if not self.joined.observes:
            return self._distributions(situations)
        if len(self._known) > REMEMBERED:
            self._known.clear()
        known = self._known
        new = {id(s.observation): s for s in situations if id(s.observation) not in known}
        distributions = self._distributions([*new.values()])
        for (name, situation), look in zip(new.items(), distributions, strict=True):
            known[name] = situation.observation, look  # kept, so that no other gets its id
        return [known[id(situation.observation)][1] for situation in situations]

    def _distributions(self, situations: Sequence[Situation]) -> list[_Distribution]:
        if not situations:
            return []
        import numpy as np

        encoded = self.joined.encode(situations, self.choices)
        masks = [self._allowed(situation.observation) for situation in situations]
        allowed = np.array(masks)
        if self._exact is None:
            self._exact = (self.network or self._build()).exactly()
        logits = np.rint(self._exact(encoded) * GRID)
        # Finite, so that a row in which nothing is allowed gives no NaN.
        logits[~allowed] = -1e300
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits / GRID) * allowed
        below = weights.cumsum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):  # choices that are not allowed
            logp = np.log(weights / below[:, -1:])
        shown = zip(encoded.rows, masks, self.joined.familiar(encoded.context), strict=True)
        return [*map(_Distribution, below.tolist(), logp.tolist(), shown)]

    def probabilities(self, situations: Sequence[Situation]) -> Floats:
        """Return the probabilities of choices in each situation [n, choices].

        They are 0 if the task blocks every choice; `decide` stops then.
        """
        import numpy as np

        logp = np.array([look.logp for look in self._distributions(situations)])
        return np.asarray(np.exp(np.nan_to_num(logp, nan=-np.inf))).reshape(-1, len(self.choices))

    def _build(self) -> Scorer:
        from orchestrion_encoders.tensors import generator_of

        from orchestrion_reinforce.networks import Scorer, dense

        assert self.joined.shapes is not None
        s, generator = self.settings, generator_of(self._key.child("weights"))
        context, choice, _ = map(sum, zip(*self.joined.shapes, strict=True))
        own = 0 if self.joined.shared else len(self.choices)
        reader, reads = self.joined.reader(generator)
        weights = dense((context + reads, *s.hidden, own + choice), START, generator)
        self.network = Scorer(weights, s.activation == "tanh", s.outlook, reader)
        return self.network

    # ------------------------------------------------------------------ learning

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Pass finished training episodes to the encoders, after an update."""
        super().learn(episodes)
        self.changed()

    def collect(self, records: Sequence[RecordedDecision]) -> Batch:
        """Return records of decisions as tensors, in order."""
        import numpy as np
        import torch
        from orchestrion_encoders.tensors import tensors

        places: dict[Any, int] = {}
        firsts: list[RecordedDecision] = []
        known: dict[int, int] = {}  # shared situations need not be compared
        for record in records:
            if id(record.shown) not in known:
                content = record.shown.content, record.allowed.tobytes()
                row = known[id(record.shown)] = places.setdefault(content, len(firsts))
                if row == len(firsts):
                    firsts.append(record)
        return Batch(
            tensors(Encoded.of([record.shown for record in firsts]), torch.float32),
            torch.from_numpy(np.array([record.allowed for record in firsts])),
            torch.tensor([known[id(record.shown)] for record in records]),
            torch.tensor([record.action for record in records]),
        )

    def log_probabilities(self, batch: Batch) -> Tensor:
        """Return log-probabilities of choices in situations [m, k]; 0 if not allowed."""
        assert self.network is not None
        logits = self.network(batch.inputs).masked_fill(~batch.allowed, -1e30)
        logp: Tensor = logits.log_softmax(1).masked_fill(~batch.allowed, 0.0)
        return logp

    # ------------------------------------------------------------------ saving

    def save(self) -> Saved:
        """Return the weights, and the settings that they depend on."""
        data = {"choices": self._names, **self._settings()}
        return Saved(self.network.save() if self.network is not None else {}, data)

    def _settings(self) -> dict[str, Any]:
        names = ("outlook", "hidden", "activation")
        settings = {name: getattr(self.settings, name) for name in names}
        return {"encoders": self.joined.settings, "shapes": self.joined.shapes, **settings}

    def load(self, saved: Saved) -> None:
        """Restore saved weights.

        Raises:
            CheckpointError: they were saved with other choices or settings, or are damaged.
        """
        data: Any = saved.data or {}
        for name, value in self._settings().items():
            # Shapes depend on the task; a policy that has seen nothing accepts any.
            unknown = name == "shapes" and None in (value, data.get(name))
            if data.get(name) != value and not unknown:
                raise CheckpointError(
                    f"{self._path}: the policy was saved with {name} = {data.get(name)}, here it "
                    f"is {value}; give it the settings it was trained with, or train anew"
                )
        if not self.joined.free:
            refuse_other_team(self._path, data["choices"], self._names, OTHER_TEAMS)
            mine = dict(zip(self._names, self.choices, strict=True))
            # In the saved order, which the weights have.
            self._set_choices(tuple(mine[name] for name in data["choices"]))
        if data["shapes"] is not None:
            self.joined.shapes = [list(shape) for shape in data["shapes"]]
            self._build().load(saved, self._path)
            self.changed()
