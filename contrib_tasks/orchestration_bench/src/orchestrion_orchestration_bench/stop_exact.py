"""Stop as a decision process, in three ways.

* `process_of`: over histories, which is what a policy observes; evaluates any policy.
* `beliefs_of`: over (difficulty, answer) beliefs, equal ones merged; enough for the best value.
* `blind_of`: over the hidden state; enough for sequences fixed in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from orchestrion import Observation, UsageError
from orchestrion_orchestration_bench.process import Action, Floats, Ints, Layer, Process
from orchestrion_orchestration_bench.stop import (
    ABSTAIN,
    NONE,
    RIGHT,
    SUBMIT,
    WRONG,
    Stop,
    StopRules,
)

MOST_HISTORIES = 100_000
"""Histories of equal length that are still enumerated; each has an observation of some 3 kB."""

MOST_BELIEFS = 1_000_000
"""The same for beliefs."""

DIGITS = 10  # beliefs that agree so far are one

Histories = list[tuple[int, ...]]


def process_of(task: Stop) -> Process:
    """Return the process of a stop task over everything that can have been heard.

    Raises:
        UsageError: there are too many histories.
    """
    return _forward(task, merge=False)


def beliefs_of(task: Stop) -> Process:
    """Return the process of a stop task over beliefs; it has no observations to ask a policy about.

    Raises:
        UsageError: there are too many beliefs.
    """
    return _forward(task, merge=True)


def _actions(task: Stop) -> tuple[Action, ...]:
    return (
        *(Action(name) for name in task.solvers),
        *(Action(name) for name in task.checkers),
        Action(SUBMIT, final=True),
        Action(ABSTAIN, final=True),
    )


def _forward(task: Stop, *, merge: bool) -> Process:
    """Return all states from the first on; beliefs are [n, difficulty, answer] and sum to 1."""
    actions = _actions(task)
    kinds = len(task.types)
    group: Ints = np.arange(kinds)
    belief = np.zeros((kinds, 2, 3))
    belief[:, 1, NONE] = list(task.types.values())
    belief[:, 0, NONE] = 1 - belief[:, 1, NONE]
    histories: Histories = [] if merge else [()] * kinds
    layers = []
    if not merge:
        _check_size(_histories(task), MOST_HISTORIES, "histories")
    for step in range(task.horizon + 1):
        last = step == task.horizon
        layer = _layer(task, group, belief, last, _shower(task.rules, group, histories))
        if not last:
            heard = list(_heard(task, layer, belief))
            parents = np.concatenate([part.parents for part in heard])
            beliefs = np.concatenate([part.beliefs for part in heard])
            first = places = np.arange(len(parents))
            if merge:
                first, places = _merged(group[parents], beliefs)
                _check_size(len(first), MOST_BELIEFS, "beliefs")
            _link(task, layer, heard, places)
            group, belief = group[parents][first], beliefs[first]
            if not merge:
                histories = [
                    (*histories[i], part.saying) for part in heard for i in part.parents.tolist()
                ]
        layers.append(layer)
    start = np.full(kinds, 1 / kinds)
    return Process(
        actions, actions.index(Action(SUBMIT, final=True)), tuple(task.types), start, tuple(layers)
    )


def _histories(task: Stop) -> int:
    """Return an upper bound of the number of histories with all calls."""
    answered, sayings = 0, len(task.solvers) + 2 * len(task.checkers)
    for call in range(task.horizon):
        answered = answered * sayings + (len(task.solvers) if call == 0 else 0)
    return answered * len(task.types)


def _merged(group: Ints, beliefs: Floats) -> tuple[Ints, Ints]:
    """Return the first place of every distinct belief, and each belief's place among them."""
    content = np.column_stack([group, np.round(beliefs, DIGITS).reshape(len(group), 6)])
    _, first, places = np.unique(content, axis=0, return_index=True, return_inverse=True)
    return first, places.reshape(-1)


def _check_size(count: int, limit: int, noun: str) -> None:
    if count > limit:
        raise UsageError(
            f"stop: {count} {noun} of equal length are too many to enumerate (at most "
            f"{limit}); lower `horizon`, or use fewer solvers and checkers"
        )


def _layer(
    task: Stop, group: Ints, belief: Floats, last: bool, show: Callable[[int], Observation]
) -> Layer:
    """Return a layer whose calls lead nowhere yet."""
    n, calls = len(group), len(task.solvers) + len(task.checkers)
    answered = belief[:, :, NONE].sum(axis=1) < 0.5
    pay, cost = np.zeros((n, calls + 2)), np.zeros((n, calls + 2))
    pay[:, calls] = belief[:, :, RIGHT].sum(axis=1)
    pay[:, calls + 1] = task.abstain
    cost[:, :calls] = [
        *(solver.cost for solver in task.solvers.values()),
        *(checker.cost for checker in task.checkers.values()),
    ]
    allowed = np.ones((n, calls + 2), dtype=bool)
    allowed[:, len(task.solvers) : calls + 1] = answered[:, None]
    if last:
        allowed[:, :calls] = False
    shape = (n, calls + 2, 2)
    return Layer(group, np.zeros(shape, np.int64), np.zeros(shape), pay, cost, allowed, show)


class _Heard(NamedTuple):
    """One saying: after which states it can be heard [m], how likely, and the beliefs then."""

    saying: int
    parents: Ints
    chance: Floats
    beliefs: Floats


def _heard(task: Stop, layer: Layer, belief: Floats) -> Iterator[_Heard]:
    """Yield everything that can be heard after the states of a layer."""
    first = task.rules.first
    for name, solver in task.solvers.items():
        right = np.array([solver.easy, solver.hard])
        then = np.zeros_like(belief)
        then[:, :, RIGHT] = belief.sum(axis=2) * right
        then[:, :, WRONG] = belief.sum(axis=2) * (1 - right)
        yield _Heard(first[name], np.arange(len(layer)), np.ones(len(layer)), then)
    for column, name in enumerate(task.checkers, len(task.solvers)):
        answered = np.flatnonzero(layer.allowed[:, column])
        ok = np.array([task.rules.chance_of_ok(name, answer) for answer in range(3)])
        for outcome, likely in enumerate((ok, 1 - ok)):
            joint = belief[answered] * likely
            chance = joint.sum(axis=(1, 2))
            possible = chance > 0
            then = joint[possible] / chance[possible, None, None]
            yield _Heard(first[name] + outcome, answered[possible], chance[possible], then)


def _link(task: Stop, layer: Layer, heard: Sequence[_Heard], places: Ints) -> None:
    """Fill in where the calls of a layer lead, and how likely."""
    rows = [action.row for action in _actions(task)]
    for part in heard:
        row = task.rules.sayings[part.saying].row
        column, outcome = rows.index(row), part.saying - task.rules.first[row]
        here, places = np.split(places, [len(part.parents)])
        layer.to[part.parents, column, outcome] = here
        layer.chance[part.parents, column, outcome] = part.chance


def _shower(rules: StopRules, group: Ints, histories: Histories) -> Callable[[int], Observation]:
    return lambda i: rules.observe(int(group[i]), histories[i])


def blind_of(task: Stop) -> Process:
    """Return the process of a stop task over (type, difficulty, answer), as nobody sees it."""
    actions, kinds = _actions(task), len(task.types)
    states = [
        (kind, hard, answer) for kind in range(kinds) for hard in (0, 1) for answer in range(3)
    ]
    group = np.array([kind for kind, _, _ in states])
    belief = np.zeros((len(states), 2, 3))
    start = np.zeros(len(states))
    for i, (kind, hard, answer) in enumerate(states):
        belief[i, hard, answer] = 1.0
        likely = list(task.types.values())[kind]
        start[i] = (answer == NONE) * (likely if hard else 1 - likely) / kinds
    layers = []
    for step in range(task.horizon + 1):
        layer = _layer(task, group, belief, step == task.horizon, _shower(task.rules, group, []))
        for i, (_, hard, answer) in enumerate(states):
            for column, solver in enumerate(task.solvers.values()):
                right = solver.hard if hard else solver.easy
                layer.to[i, column] = (i - answer + WRONG, i - answer + RIGHT)
                layer.chance[i, column] = (1 - right, right)
            for column in range(len(task.solvers), len(actions) - 2):
                layer.to[i, column, 0], layer.chance[i, column, 0] = i, 1.0
        layers.append(layer)
    return Process(actions, len(actions) - 2, tuple(task.types), start, tuple(layers))
