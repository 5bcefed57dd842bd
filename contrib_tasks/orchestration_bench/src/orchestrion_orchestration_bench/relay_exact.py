"""Relay as a decision process: every state that can be reached, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from orchestrion import Observation
from orchestrion_orchestration_bench.process import Action, Layer, Process
from orchestrion_orchestration_bench.relay import Relay
from orchestrion_orchestration_bench.relay_rules import STOP, RelayRules, RelayState

__all__ = ["process_of"]

State = tuple[int, int]  # type, skills done


def process_of(task: Relay) -> Process:
    """The process that a relay's tables describe; it is fully observed."""
    rules, workers = task.rules, tuple(task.agents)
    states: list[State] = [(kind, 0) for kind in range(len(rules.types))]
    start = np.full(len(states), 1 / len(states))
    layers = []
    for step in range(task.horizon):
        after = sorted(
            {
                (kind, move.done)
                for kind, done in states
                for moves in rules.moves(kind, done).values()
                for move in moves
            }
        )
        layers.append(_layer(task, states, after, step))
        states = after
    actions = (*(Action(name) for name in workers), Action(STOP, final=True))
    return Process(actions, len(workers), rules.types, start, tuple(layers))


def _layer(task: Relay, states: Sequence[State], after: Sequence[State], step: int) -> Layer:
    rules, last = task.rules, step + 1 == task.horizon
    place = {state: i for i, state in enumerate(after)}
    n, a = len(states), len(task.agents) + 1
    to = np.zeros((n, a, 4), dtype=np.int64)
    chance, pay, cost = np.zeros((n, a, 4)), np.zeros((n, a)), np.zeros((n, a))
    for i, (kind, done) in enumerate(states):
        pay[i, a - 1] = rules.scores(RelayState(kind, done, step)).value
        for column, (name, moves) in enumerate(rules.moves(kind, done).items()):
            cost[i, column] = task.agents[name].cost
            for k, move in enumerate(moves):
                if last:
                    worth = rules.scores(RelayState(kind, move.done, step + 1)).value
                    pay[i, column] += move.probability * worth
                else:
                    to[i, column, k] = place[kind, move.done]
                    chance[i, column, k] = move.probability
    group = np.array([kind for kind, _ in states])
    allowed = np.ones((n, a), dtype=bool)
    return Layer(group, to, chance, pay, cost, allowed, _shower(rules, states, step))


def _shower(rules: RelayRules, states: Sequence[State], step: int) -> Callable[[int], Observation]:
    return lambda i: rules.observe(RelayState(*states[i], step))
