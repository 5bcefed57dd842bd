"""From logs to a plan over beliefs about a hidden state: point-based value iteration.

Source: Pineau et al. 2003. A belief is a distribution over the K states of `hidden`. What is
allowed is observed: it is the *mode*; it follows from the mode before, the choice and the decision
number.
For every decision number and mode, the value is the maximum of some linear functions of the belief,
one for each of the beliefs that occurred there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from orchestrion import Saved
from orchestrion_values.arrays import Floats, Ints, Mask, pack, unpack
from orchestrion_values.optimism.hidden import Hidden, Log, Sequences, Symbol, find_log, fit
from orchestrion_values.optimism.states import StateMoves

POINTS = 200
"""The maximum of beliefs at each decision number and mode."""

Node = tuple[int, int]
"""Decision number and mode."""


@frozen(eq=False)
class Game:
    """What is known for certain about the task.

    Args:
        modes: what is allowed [modes, k].
        then: the next mode, by decision number, mode and choice.
        ends: choices that end the episode [k].
        over: decision numbers at which another choice was seen to end the episode.
        cost: reward of each choice itself [k].
        amounts: rewards of ends.
    """

    modes: Mask
    then: Mapping[tuple[int, int, int], int]
    ends: Mask
    over: frozenset[int]
    cost: Floats
    amounts: Floats


@frozen(eq=False)
class BeliefPlan:
    """A plan: values of beliefs.

    Args:
        model: of what is hidden.
        game: of what is observed.
        lines: linear functions of the belief, by decision number and mode [n, K].
    """

    model: Hidden
    game: Game
    lines: Mapping[Node, Floats]

    def after(self, beliefs: Floats, choice: int, symbol: int) -> Floats:
        """Return beliefs [n, K] after a choice and its symbol; the symbol -1 is an unknown one."""
        now = beliefs @ self.model.move[choice]
        if symbol >= 0:
            now = now * self.model.say[choice][:, symbol]
        result: Floats = now / np.maximum(now.sum(axis=-1, keepdims=True), 1e-300)
        return result

    def values(self, beliefs: Floats, node: Node) -> Floats:
        """Return values of choices [n, k] at beliefs [n, K]; -inf where not known to be allowed."""
        return _backed(self, beliefs, node)[0]


def plan(model: Hidden, game: Game, met: Mapping[Node, Floats]) -> BeliefPlan:
    """Return the plan by backward induction over the beliefs that occurred."""
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
    """Return at most `POINTS` of the beliefs, no two of them nearly equal."""
    different = np.unique(points.round(2), axis=0, return_index=True)[1]
    return points[different[:: max(1, -(-len(different) // POINTS))]]


def _backed(plan: BeliefPlan, points: Floats, node: Node) -> tuple[Floats, Floats]:
    """Return values [n, k], and the linear functions [n, k, K] that give them."""
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
        for symbol in range(model.say.shape[2]):
            step = model.move[a] * model.say[a][:, symbol]
            back = ahead @ step.T
            total += back[(points @ back.T).argmax(axis=1)]
        parts[:, a] = total
    values = np.full((len(points), k), -np.inf)
    finite = np.isfinite(parts).all(axis=2)
    values[finite] = (np.where(finite[:, :, None], parts, 0.0) * points[:, None, :]).sum(axis=2)[
        finite
    ]
    return values, parts


AMOUNTS = 8
"""The maximum of different rewards of ends; more are grouped."""


@frozen(eq=False)
class Beliefs:
    """A plan, and how its beliefs are read from observations.

    Args:
        log: where symbols stand.
        symbols: their indices.
        categories: of problems, their indices.
        plan: over beliefs.
    """

    log: Log
    symbols: Mapping[Symbol, int]
    categories: Mapping[str, int]
    plan: BeliefPlan

    def belief(self, category: str, features: Sequence[float], made: Sequence[int]) -> Floats:
        """Return the belief about the hidden state after these choices [K]."""
        begin = self.plan.model.begin
        place = self.categories.get(category)
        result: Floats = begin.mean(axis=0) if place is None else begin[place]
        for choice, symbol in zip(made, self.log.read(features, len(made)), strict=True):
            result = self.plan.after(result, choice, self.symbols.get(symbol, -1))
        return result

    def save(self) -> Saved:
        game, lines = self.plan.game, self.plan.lines
        arrays = {
            **self.plan.model.arrays(),
            "blank": self.log.blank,
            "modes": game.modes,
            "then": np.array([(*key, mode) for key, mode in game.then.items()], np.int64),
            "ends": game.ends,
            "over": np.array(sorted(game.over), np.int64),
            "cost": game.cost,
            "amounts": game.amounts,
            "nodes": np.array([(*node, len(part)) for node, part in lines.items()], np.int64),
            "lines": np.concatenate(
                [np.zeros((0, len(self.plan.model.begin[0]))), *lines.values()]
            ),
        }
        data: Any = {
            "log": [self.log.first, self.log.width],
            "symbols": [[list(part) for part in symbol] for symbol in self.symbols],
            "categories": list(self.categories),
        }
        return Saved(pack(arrays), data)

    @classmethod
    def load(cls, saved: Saved) -> Beliefs:
        arrays = unpack(saved.arrays)
        data: Any = saved.data
        first, width = data["log"]
        then = {tuple(row[:3]): row[3] for row in arrays["then"].reshape(-1, 4).tolist()}
        game = Game(
            arrays["modes"],
            then,
            arrays["ends"],
            frozenset(arrays["over"].tolist()),
            arrays["cost"],
            arrays["amounts"],
        )
        lines: dict[Node, Floats] = {}
        begin = 0
        for decisions, mode, count in arrays["nodes"].reshape(-1, 3).tolist():
            lines[decisions, mode] = arrays["lines"][begin : begin + count]
            begin += count
        return cls(
            Log(first, width, arrays["blank"]),
            read_symbols(data["symbols"]),
            {name: i for i, name in enumerate(data["categories"])},
            BeliefPlan(Hidden.of(arrays), game, lines),
        )


def read_symbols(data: Any) -> dict[Symbol, int]:
    """Return saved symbols with their indices."""
    return {tuple((place, value) for place, value in symbol): i for i, symbol in enumerate(data)}


class Believer:
    """Learns a hidden-state model from logs, continuing from the model before.

    Args:
        states: K, how many hidden states.
        tries: random starts, each time the episodes have doubled.
    """

    def __init__(self, states: int, tries: int) -> None:
        self.states, self.tries = states, tries
        self._model: Hidden | None = None
        self._width = 0
        self._symbols: dict[Symbol, int] = {}
        self._begun = 0
        """The number of episodes at the last random starts."""

    def think(self, seen: StateMoves, seed: int) -> Beliefs | None:
        """Learn from everything and return a plan; None if there is no log to read."""
        log = find_log(seen) if self.states else None
        if log is None:
            return None
        if log.width != self._width:
            self._width, self._symbols, self._model = log.width, {}, None
        episodes = _Episodes(seen, log, self._symbols)
        start = self._model
        if start is not None and start.shape != episodes.shape:
            start = None
        fresh = start is None or seen.episodes >= 2 * self._begun
        if fresh:
            self._begun = seen.episodes
        tries = self.tries if fresh else 0
        model = fit(episodes.sequences, episodes.shape, self.states, start, tries, seed)
        self._model = model
        best = plan(model, episodes.game, episodes.met(model))
        return Beliefs(log, dict(self._symbols), episodes.categories, best)

    def save(self) -> Saved:
        """Return the model that the next fit continues from."""
        data: Any = {
            "width": self._width,
            "begun": self._begun,
            "symbols": [[list(part) for part in symbol] for symbol in self._symbols],
        }
        return Saved({} if self._model is None else pack(self._model.arrays()), data)

    def load(self, saved: Saved) -> None:
        data: Any = saved.data
        self._width, self._begun = data["width"], data["begun"]
        self._symbols = read_symbols(data["symbols"])
        self._model = Hidden.of(unpack(saved.arrays)) if saved.arrays else None


class _Episodes:
    """Episodes as sequences of choices and symbols; new symbols are added to `symbols`."""

    def __init__(self, seen: StateMoves, log: Log, symbols: dict[Symbol, int]) -> None:
        moves, k, shown = np.array(seen.moves, np.int64), seen.choices, seen.shown
        choice, ended = moves[:, 2], moves[:, 4] == 1
        used = np.bincount(choice, minlength=k)
        ends = (used > 0) & (np.bincount(choice, weights=~ended, minlength=k) == 0)
        # What an end pays is a difference of sums: equal amounts differ in their last digits.
        paid = np.array(seen.outcomes)[ended].round(9)
        amounts = np.unique(paid)
        if len(amounts) > AMOUNTS:
            amounts = np.unique(np.quantile(paid, np.linspace(0, 1, AMOUNTS)))
        which = np.abs(paid[:, None] - amounts).argmin(axis=1).tolist()
        masks = np.array([state.allowed for state in shown], np.bool_)
        modes, mode_of = np.unique(masks, axis=0, return_inverse=True)
        names = sorted({state.category for state in shown})
        self.categories = {name: i for i, name in enumerate(names)}
        rows: Counter[tuple[Any, ...]] = Counter()
        then: dict[tuple[int, int, int], Counter[int]] = {}
        over: set[int] = set()
        mode_at = mode_of.reshape(-1)[moves[:, 0]].tolist()
        begin = 0
        for amount, end in zip(which, (np.flatnonzero(ended) + 1).tolist(), strict=True):
            mine, mode = moves[begin:end].tolist(), tuple(mode_at[begin:end])
            place, _, last, after, _ = mine[-1]
            by_choice = bool(ends[last])
            calls = tuple(row[2] for row in (mine[:-1] if by_choice else mine))
            end_state = shown[place if by_choice else after]
            symbols_shown = tuple(
                symbols.setdefault(symbol, len(symbols))
                for symbol in log.read(end_state.features, len(calls))
            )
            for t in range(len(mode) - 1):
                then.setdefault((t, mode[t], calls[t]), Counter())[mode[t + 1]] += 1
            if not by_choice:
                over.add(len(mode) - 1)
            category = self.categories[end_state.category]
            rows[category, last if by_choice else k, amount, calls, symbols_shown, mode] += 1
            begin = end
        length = max(1, max(len(row[3]) for row in rows))
        self.modes = _padded([row[5] for row in rows], length + 1, -1)
        self.sequences = Sequences(
            np.array([row[0] for row in rows]),
            _padded([row[3] for row in rows], length, -1),
            _padded([row[4] for row in rows], length, 0),
            np.array([row[1] for row in rows]),
            np.array([row[2] for row in rows]),
            np.array(list(rows.values()), np.float64),
        )
        self.game = Game(
            modes,
            {key: counts.most_common(1)[0][0] for key, counts in then.items()},
            ends,
            frozenset(over),
            np.bincount(choice, weights=seen.rewards, minlength=k) / np.maximum(used, 1),
            amounts,
        )
        self.shape = (len(self.categories), k, len(symbols), len(amounts))

    def met(self, model: Hidden) -> dict[Node, Floats]:
        """Return the beliefs that occurred, by decision number and mode [n, K]."""
        data = self.sequences
        beliefs = model.begin[data.category]
        result: dict[Node, Floats] = {}
        for t in range(self.modes.shape[1]):
            for mode in np.unique(self.modes[:, t]).tolist():
                if mode >= 0:
                    result[t, mode] = beliefs[self.modes[:, t] == mode]
            if t < data.choice.shape[1]:
                going = np.flatnonzero(data.choice[:, t] >= 0)
                choice, symbol = data.choice[going, t], data.symbol[going, t]
                now = np.einsum("ni,nij->nj", beliefs[going], model.move[choice])
                now *= model.say.transpose(0, 2, 1)[choice, symbol]
                beliefs[going] = now / now.sum(axis=1, keepdims=True)
        return result


def _padded(rows: Sequence[Sequence[int]], length: int, blank: int) -> Ints:
    result = np.full((len(rows), length), blank, np.int64)
    for i, row in enumerate(rows):
        result[i, : len(row)] = row
    return result
