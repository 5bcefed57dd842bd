"""Finite decision processes in layers, and what can be computed about them exactly.

A process has one layer of states for each number of calls made. A state stands for what an
orchestrator has observed. An action ends the episode (it pays), or leads to states of the next
layer (it costs); the last layer's calls pay at once. Value = E[pay - weight x cost].

Arrays have one row a state [n] and one column an action [n, a]; `to` and `chance` have one more
axis for outcomes [n, a, k], where an outcome of chance 0 is padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from orchestrion import Observation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TIE = 1e-12
FORBIDDEN = -1e9  # finite, because it is multiplied by chances of 0


@frozen
class Action:
    """A row of the table, its option if it has options, and whether it ends the episode."""

    row: str
    option: str | None = None
    final: bool = False


@frozen(eq=False)
class Layer:
    """States after equally many calls.

    Args:
        group: each state's type of problem [n].
        to: states of the next layer [n, a, k].
        chance: of each outcome [n, a, k]; its sum over k is 1 for calls, 0 where `pay` is all.
        pay: expected pay if the episode ends with the action [n, a].
        cost: of the action [n, a].
        allowed: whether the task lets the action be taken [n, a].
        show: what is observed in the i-th state, for asking policies.
    """

    group: Ints
    to: Ints
    chance: Floats
    pay: Floats
    cost: Floats
    allowed: Bools
    show: Callable[[int], Observation] = field(repr=False)

    def __len__(self) -> int:
        return len(self.group)


@frozen(eq=False)
class Process:
    """Layers of states, and what can be done in them.

    Args:
        actions: what the columns stand for.
        stop: the column of ending the episode without a word.
        groups: names of the types of problems.
        start: how likely an episode starts in each state of the first layer.
        layers: at least one.
    """

    actions: tuple[Action, ...]
    stop: int
    groups: tuple[str, ...]
    start: Floats
    layers: tuple[Layer, ...]

    @property
    def calls(self) -> Floats:
        """1 for actions that are calls, 0 for those that end the episode [a]."""
        return np.array([float(not action.final) for action in self.actions])

    def only(self, columns: Sequence[int]) -> Process:
        """Return the same process where no other actions are allowed."""
        kept = np.zeros(len(self.actions), dtype=bool)
        kept[list(columns)] = True
        layers = tuple(evolve(layer, allowed=layer.allowed & kept) for layer in self.layers)
        return evolve(self, layers=layers)

    def of(self, group: int) -> Process:
        """Return the same process where every problem is of one type."""
        share = self.start * (self.layers[0].group == group)
        return evolve(self, start=share / share.sum())


@frozen
class Worth:
    """Expected pay, cost and number of calls of a policy; by type of problem as well.

    `value` is pay minus weighted cost.
    """

    value: float
    quality: float
    cost: float
    calls: float
    by_type: dict[str, float]


def q_values(layer: Layer, ahead: Floats | None, weight: float) -> Floats:
    """Return value of every action [n, a], given the values of the next layer's states [m]."""
    q: Floats = layer.pay - weight * layer.cost
    if ahead is not None:
        q = q + (layer.chance * ahead[layer.to]).sum(axis=2)
    return q


def optimum(process: Process, weight: float) -> tuple[Worth, list[Floats]]:
    """Return the best policy by backward induction, as one distribution a state, and its worth.

    Ties go to the first action.
    """
    ahead: Floats | None = None
    policy: list[Floats] = []
    for layer in reversed(process.layers):
        q = np.where(layer.allowed, q_values(layer, ahead, weight), -np.inf)
        policy.append(_one_hot(_first_best(q), q.shape[1]))
        ahead = q.max(axis=1)
    policy.reverse()
    return evaluate(process, policy, weight), policy


def evaluate(process: Process, policy: Sequence[Floats], weight: float) -> Worth:
    """Return the exact worth of a policy: `policy[t][i, a]` is the chance of a in state i."""
    ahead: Floats | None = None  # [m, 3]: pay, cost, calls
    calls = process.calls
    for layer, acts in zip(reversed(process.layers), reversed(policy), strict=True):
        now = np.stack([layer.pay, layer.cost, np.broadcast_to(calls, layer.pay.shape)], axis=2)
        if ahead is not None:
            now = now + np.einsum("nak,nakc->nac", layer.chance, ahead[layer.to])
        ahead = np.einsum("na,nac->nc", acts, now)
    assert ahead is not None
    return _worth(process, ahead, weight)


def uniform(process: Process, columns: Floats | None = None) -> list[Floats]:
    """Return the policy that takes every allowed action equally often.

    Args:
        process: what is played.
        columns: how many choices of a team are each action [a]; by default one each.
    """
    policy = []
    for layer in process.layers:
        acts = layer.allowed * (1.0 if columns is None else columns)
        policy.append(acts / acts.sum(axis=1, keepdims=True))
    return policy


def look_ahead(process: Process, weight: float) -> list[Floats]:
    """Return the policy that knows the tables, and looks one call ahead."""
    ends = [_ends(process, layer, weight) for layer in process.layers]
    policy = []
    for t, layer in enumerate(process.layers):
        ahead = ends[t + 1] if t + 1 < len(ends) else None
        q = np.where(layer.allowed, q_values(layer, ahead, weight), -np.inf)
        final = np.array([action.final for action in process.actions])
        # A call must be worth more than ending now.
        policy.append(_one_hot(_first_best(q + TIE * final), q.shape[1]))
    return policy


@frozen
class Chain:
    """A fixed sequence of actions, and its value."""

    actions: tuple[Action, ...]
    value: float


def best_chain(
    process: Process, weight: float, width: int = 400, rank: Literal["now", "bound"] = "now"
) -> Chain:
    """Return the best sequence of actions fixed in advance that a beam finds.

    Args:
        process: what is played.
        weight: of cost.
        width: partial sequences kept after each call.
        rank: what they are ranked by: the value of ending `now`, or an upper `bound`, the value
            if from then on the state were seen. Neither finds the better chain every time.
    """
    scores = _now_scores(process, weight) if rank == "now" else _bound_scores(process, weight)
    best, chains = Chain((), -np.inf), [()]  # type: tuple[Chain, list[tuple[int, ...]]]
    spread, gained = process.start[None, :], np.zeros(1)
    for t, layer in enumerate(process.layers):
        last = t + 1 == len(process.layers)
        gains = gained[:, None] + spread @ (layer.pay - weight * layer.cost)
        gains[~((spread[:, :, None] > 0) <= layer.allowed).all(axis=1)] = -np.inf
        for column, action in enumerate(process.actions):
            place = int(gains[:, column].argmax())
            if (action.final or last) and gains[place, column] > best.value + TIE:
                best = Chain(_named(process, (*chains[place], column)), gains[place, column])
        if last:
            break
        calls = [c for c, action in enumerate(process.actions) if not action.final]
        after = np.stack([_move(spread, layer, c, len(process.layers[t + 1])) for c in calls])
        ranks = gains[:, calls].T + (after @ scores[t + 1]).max(axis=2)
        kept = np.argsort(-np.round(ranks.ravel(), 12), kind="stable")[:width]
        kept = kept[np.isfinite(ranks.ravel()[kept])]
        if not len(kept):
            break
        which, place_of = np.divmod(kept, len(chains))
        chains = [(*chains[p], calls[w]) for w, p in zip(which, place_of, strict=True)]
        spread, gained = after[which, place_of], gains[:, calls].T[which, place_of]
    return evolve(best, value=float(best.value))


def _named(process: Process, columns: Sequence[int]) -> tuple[Action, ...]:
    return tuple(process.actions[column] for column in columns)


def _move(spread: Floats, layer: Layer, column: int, width: int) -> Floats:
    """Where distributions over a layer's states [b, n] go with one action [b, width]."""
    n, _, outcomes = layer.to.shape
    move = np.zeros((n, width))
    for k in range(outcomes):
        np.add.at(move, (np.arange(n), layer.to[:, column, k]), layer.chance[:, column, k])
    result: Floats = spread @ move
    return result


def _now_scores(process: Process, weight: float) -> list[Floats]:
    """Return what each final action pays in each state, layer by layer [n, finals]."""
    final = [c for c, action in enumerate(process.actions) if action.final]
    return [
        np.where(layer.allowed, layer.pay - weight * layer.cost, FORBIDDEN)[:, final]
        for layer in process.layers
    ]


def _bound_scores(process: Process, weight: float) -> list[Floats]:
    """Return the best value of each state, layer by layer [n, 1]."""
    scores: list[Floats] = []
    ahead: Floats | None = None
    for layer in reversed(process.layers):
        ahead = np.where(layer.allowed, q_values(layer, ahead, weight), -np.inf).max(axis=1)
        scores.append(ahead[:, None])
    scores.reverse()
    return scores


def _ends(process: Process, layer: Layer, weight: float) -> Floats:
    """Return the value of ending now, in the best way that is allowed [n]."""
    final = np.array([action.final for action in process.actions])
    now = np.where(layer.allowed & final, layer.pay - weight * layer.cost, -np.inf)
    best: Floats = now.max(axis=1)
    return best


def _first_best(q: Floats) -> Ints:
    """Return the first action that is as good as the best, but for rounding."""
    close = q >= q.max(axis=1, keepdims=True) - TIE
    first: Ints = close.argmax(axis=1)
    return first


def _one_hot(chosen: Ints, width: int) -> Floats:
    acts = np.zeros((len(chosen), width))
    acts[np.arange(len(chosen)), chosen] = 1.0
    return acts


def _worth(process: Process, first: Floats, weight: float) -> Worth:
    quality, cost, calls = (float(process.start @ first[:, i]) for i in range(3))
    values = first[:, 0] - weight * first[:, 1]
    by_type = {}
    for i, name in enumerate(process.groups):
        share = process.start * (process.layers[0].group == i)
        by_type[name] = float(share @ values / share.sum())
    return Worth(quality - weight * cost, quality, cost, calls, by_type)
