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
    """Return the worth of the best policy, and the policy, as one distribution a state.

    Ties go to the first action.
    """
    policy = [_greedy(q) for q in _best_q_values(process, weight)]
    return evaluate(process, policy, weight), policy


def _best_q_values(process: Process, weight: float) -> list[Floats]:
    """Return the values of the actions under the best policy, by backward induction [n, a]."""
    ahead: Floats | None = None
    values: list[Floats] = []
    for layer in reversed(process.layers):
        values.append(np.where(layer.allowed, q_values(layer, ahead, weight), -np.inf))
        ahead = values[-1].max(axis=1)
    return values[::-1]


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
    quality, cost, mean_calls = (float(process.start @ ahead[:, i]) for i in range(3))
    values = ahead[:, 0] - weight * ahead[:, 1]
    by_type = {}
    for i, name in enumerate(process.groups):
        share = process.start * (process.layers[0].group == i)
        by_type[name] = float(share @ values / share.sum())
    return Worth(quality - weight * cost, quality, cost, mean_calls, by_type)


def uniform(process: Process, columns: Floats | None = None) -> list[Floats]:
    """Return the policy that takes every allowed action equally often.

    `columns` says how many choices of a team are each action [a]; by default one each.
    """
    policy = []
    for layer in process.layers:
        acts = layer.allowed * (1.0 if columns is None else columns)
        policy.append(acts / acts.sum(axis=1, keepdims=True))
    return policy


def look_ahead(process: Process, weight: float) -> list[Floats]:
    """Return the policy that knows the tables, and looks one call ahead."""
    ends = [scores.max(axis=1) for scores in _now_scores(process, weight)]
    final = np.array([action.final for action in process.actions])
    policy = []
    for layer, ahead in zip(process.layers, [*ends[1:], None], strict=True):
        q = np.where(layer.allowed, q_values(layer, ahead, weight), -np.inf)
        # A call must be worth more than ending now.
        policy.append(_greedy(q + TIE * final))
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
        width: partial sequences kept after each call.
        rank: what they are ranked by: the value of ending `now`, or an upper `bound`, the value
            if from then on the state were seen. Neither finds the better chain every time.
    """
    if rank == "now":
        scores = _now_scores(process, weight)
    else:
        scores = [q.max(axis=1, keepdims=True) for q in _best_q_values(process, weight)]
    best, chains = Chain((), -np.inf), [()]  # type: tuple[Chain, list[tuple[int, ...]]]
    spread, gained = process.start[None, :], np.zeros(1)
    for t, layer in enumerate(process.layers):
        last = t + 1 == len(process.layers)
        gains = gained[:, None] + spread @ (layer.pay - weight * layer.cost)
        gains[~((spread[:, :, None] > 0) <= layer.allowed).all(axis=1)] = -np.inf
        for column, action in enumerate(process.actions):
            place = int(gains[:, column].argmax())
            if (action.final or last) and gains[place, column] > best.value + TIE:
                columns = (*chains[place], column)
                actions = tuple(process.actions[c] for c in columns)
                best = Chain(actions, float(gains[place, column]))
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
    return best


def _move(spread: Floats, layer: Layer, column: int, width: int) -> Floats:
    """Return where distributions over a layer's states [b, n] go with one action [b, width]."""
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


def _greedy(q: Floats) -> Floats:
    """Return the policy that takes the first action as good as the best, but for rounding."""
    close = q >= q.max(axis=1, keepdims=True) - TIE
    acts = np.zeros_like(q)
    acts[np.arange(len(q)), close.argmax(axis=1)] = 1.0
    return acts
