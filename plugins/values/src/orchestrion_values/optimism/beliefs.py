"""Plans over beliefs about a hidden state: point-based value iteration (Pineau et al. 2003).

A belief is a distribution over the K states of `hidden`. What is allowed is observed: it is the
*mode*, and follows from the mode before, the choice and the number of the decision. For every
number of decisions made and every mode, the value is the best of some linear functions of the
belief, one for each of the beliefs met there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import frozen

from orchestrion_values.optimism.hidden import Hidden
from orchestrion_values.optimism.seen import Floats, Mask

__all__ = ["BeliefPlan", "Game", "plan"]

POINTS = 200
"""Beliefs, at most, at each number of decisions and mode."""

Node = tuple[int, int]
"""Decisions made, and mode."""


@frozen(eq=False)
class Game:
    """What is certain about the task.

    Args:
        modes: what is allowed [modes, k].
        then: the next mode, by decisions made, mode and choice.
        ends: choices that end the episode [k].
        over: numbers of decisions made after which any other choice was seen to end it.
        cost: reward of each choice itself [k].
        amounts: what ends pay.
    """

    modes: Mask
    then: Mapping[tuple[int, int, int], int]
    ends: Mask
    over: frozenset[int]
    cost: Floats
    amounts: Floats


@frozen(eq=False)
class BeliefPlan:
    """Values of beliefs.

    Args:
        model: of what is hidden.
        game: of what is not.
        lines: linear functions of the belief, by decisions made and mode [n, K].
    """

    model: Hidden
    game: Game
    lines: Mapping[Node, Floats]

    def after(self, beliefs: Floats, choice: int, said: int) -> Floats:
        """The beliefs [n, K] after a choice and what it was heard to say; -1: not known."""
        now = beliefs @ self.model.move[choice]
        if said >= 0:
            now = now * self.model.say[choice][:, said]
        result: Floats = now / np.maximum(now.sum(axis=-1, keepdims=True), 1e-300)
        return result

    def values(self, beliefs: Floats, node: Node) -> Floats:
        """Of every choice at beliefs [n, K]: [n, k]; what is not known to be allowed is -inf."""
        return _backed(self, beliefs, node)[0]


def plan(model: Hidden, game: Game, met: Mapping[Node, Floats]) -> BeliefPlan:
    """Backward induction over the beliefs that were met."""
    lines: dict[Node, Floats] = {}
    result = BeliefPlan(model, game, lines)
    for node in sorted(met, reverse=True):
        points = _spread(met[node])
        values, parts = _backed(result, points, node)
        best = values.argmax(axis=1)
        mine = np.isfinite(values.max(axis=1))
        if mine.any():
            lines[node] = np.unique(parts[np.arange(len(points)), best][mine].round(9), axis=0)
    return result


def _spread(points: Floats) -> Floats:
    """Some of the beliefs, no two of them nearly the same."""
    different = np.unique(points.round(2), axis=0, return_index=True)[1]
    return points[different[:: max(1, -(-len(different) // POINTS))]]


def _backed(plan: BeliefPlan, points: Floats, node: Node) -> tuple[Floats, Floats]:
    """Values [n, k], and the linear functions [n, k, K] that they are values of."""
    model, game = plan.model, plan.game
    k, states = len(game.cost), points.shape[1]
    parts = np.full((len(points), k, states), -np.inf)
    for a in np.flatnonzero(game.modes[node[1]]).tolist():
        if game.ends[a]:
            parts[:, a] = model.pay[a] @ game.amounts + game.cost[a]
            continue
        after = game.then.get((*node, a), -1)
        ahead = plan.lines.get((node[0] + 1, after))
        if ahead is None:
            if node[0] in game.over:
                parts[:, a] = model.move[a] @ (model.pay[k] @ game.amounts) + game.cost[a]
            continue
        total = np.full((len(points), states), game.cost[a])
        for said in range(model.say.shape[2]):
            step = model.move[a] * model.say[a][:, said]
            back = ahead @ step.T
            total += back[(points @ back.T).argmax(axis=1)]
        parts[:, a] = total
    values = np.full((len(points), k), -np.inf)
    finite = np.isfinite(parts).all(axis=2)
    values[finite] = (np.where(finite[:, :, None], parts, 0.0) * points[:, None, :]).sum(axis=2)[
        finite
    ]
    return values, parts
