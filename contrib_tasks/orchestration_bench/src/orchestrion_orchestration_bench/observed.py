"""Exact evaluation of a policy that goes by the observation alone.

Every state the policy can reach is shown to it once, with a trajectory that leads there; its
answer is a distribution over the team's choices. Whether the policy goes by the observation is
tried out: where two ways lead to one state, both are shown, and the answers must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from orchestrion import (
    Activation,
    Observation,
    Situation,
    Trajectory,
    Turn,
    UsageError,
    choice_name,
)
from orchestrion_orchestration_bench.agents import play
from orchestrion_orchestration_bench.process import Floats, Layer, Process
from orchestrion_orchestration_bench.solved import Solved, Team

Ask = Callable[[Sequence[Situation]], Floats]
"""Situations to a distribution over the team's choices, and stopping as the last [n, c + 1]."""

BATCH = 8192
PROBES = 256
AGREE = 1e-5  # policies may compute in single precision


class NotExactError(Exception):
    """The policy cannot be evaluated exactly; says why."""


def asker(policy: Any, team: Team) -> Ask | None:
    """Return how to ask a policy for its distribution; None if it does not say.

    A policy says it with `probabilities(situations)` [n, m] over its `choices`, m
    activations, with None for stopping; or it is a function of an observation
    that gives a mapping from choices ("agent", "agent:option", "stop") to probabilities.
    """
    if callable(getattr(policy, "probabilities", None)):
        return _from_runtime(policy, team)
    if callable(policy) and not hasattr(policy, "decide"):
        return _from_function(policy, team)
    return None


def _from_runtime(policy: Any, team: Team) -> Ask:
    places = {(choice.agent, choice.option): i for i, choice in enumerate(team.choices)}
    columns = [choice and places.get((choice.agent, choice.option)) for choice in policy.choices]
    for choice, column in zip(policy.choices, columns, strict=True):
        if column is None and choice is not None:
            raise UsageError(f"the policy chooses {choice!r}, which is not a choice of the team")

    def ask(situations: Sequence[Situation]) -> Floats:
        given = np.asarray(policy.probabilities(situations), dtype=float)
        if given.shape != (len(situations), len(columns)):
            raise UsageError(
                f"the policy's probabilities have shape {given.shape}, expected "
                f"{(len(situations), len(columns))}"
            )
        result = np.zeros((len(situations), len(team.choices) + 1))
        for i, column in enumerate(columns):
            result[:, -1 if column is None else column] += given[:, i]
        return _distribution(result)

    return ask


def _from_function(policy: Callable[[Observation], Mapping[str, float]], team: Team) -> Ask:
    places = {choice_name(activation): i for i, activation in enumerate(team.choices)}
    places.setdefault("stop", len(team.choices))

    def ask(situations: Sequence[Situation]) -> Floats:
        result = np.zeros((len(situations), len(team.choices) + 1))
        for i, situation in enumerate(situations):
            assert situation.observation is not None
            for name, probability in policy(situation.observation).items():
                if name not in places:
                    known = ", ".join(places)
                    raise UsageError(f"{name!r} is not a choice of the team ({known})")
                result[i, places[name]] += probability
        return _distribution(result)

    return ask


def _distribution(rows: Floats) -> Floats:
    sums = rows.sum(axis=1)
    if (rows < -AGREE).any() or not np.allclose(sums, 1.0, atol=1e-3):
        raise UsageError("the policy's probabilities are negative, or do not sum to 1")
    result: Floats = rows.clip(0) / rows.clip(0).sum(axis=1, keepdims=True)
    return result


def observe(
    solved: Solved, team: Team, ask: Ask, turns: int | None = None
) -> tuple[list[Floats], list[Floats]]:
    """Ask a policy about every state that it can reach.

    Return it as tables, one distribution a state, layer by layer [n, a]: as it samples, and when
    it takes its likeliest choice, the first of equal ones.

    Raises:
        NotExactError: the states are too many, the policy goes by more than the observation, it
            takes what the task blocks, or the limit of turns is too low.
    """
    process = solved.shown
    if process is None:
        raise NotExactError(solved.note)
    if turns is not None and turns < len(process.layers):
        raise NotExactError("limits.turns may end an episode before the task does")
    walk = _Walk(solved, process, team, turns)
    sampled, greedy = [], []
    for t, layer in enumerate(process.layers):
        situations = walk.situations(walk.ways)
        given = np.zeros((len(situations), len(team.choices) + 1))
        for i in range(0, len(situations), BATCH):
            given[i : i + BATCH] = ask(situations[i : i + BATCH])
        walk.compare(ask, given)
        best = np.zeros_like(given)
        best[np.arange(len(given)), given.argmax(axis=1)] = 1.0
        sampled.append(walk.columns(given))
        greedy.append(walk.columns(best))
        if ((sampled[-1] > AGREE) & ~layer.allowed).any():
            raise NotExactError("the policy takes choices that the task blocks")
        if t + 1 < len(process.layers):
            walk.go_on(sampled[-1], len(process.layers[t + 1]))
    return sampled, greedy


class _Walk:
    """Go through a process layer by layer, with a way that leads to each state."""

    def __init__(self, solved: Solved, process: Process, team: Team, turns: int | None) -> None:
        self.solved, self.process, self.team, self.turns = solved, process, team, turns
        self.t = 0
        self.ways = {i: Trajectory() for i in np.flatnonzero(process.start).tolist()}
        """A way to each state of the layer that the policy can reach, in order."""
        self.others: dict[int, Trajectory] = {}
        """A second way, for states that have one."""
        # The first choice that is an action stands for all of them.
        self.choice: dict[int, Activation] = {}
        for choice, column in zip(team.choices, team.columns, strict=True):
            self.choice.setdefault(column, choice)

    @property
    def layer(self) -> Layer:
        return self.process.layers[self.t]

    def situations(self, ways: Mapping[int, Trajectory]) -> list[Situation]:
        left = None if self.turns is None else self.turns - self.t
        problems, layer = self.solved.problems, self.layer
        return [
            Situation(problems[layer.group[i]], way, layer.show(i), (), left, False)
            for i, way in ways.items()
        ]

    def compare(self, ask: Ask, given: Floats) -> None:
        """Show some states by their second way as well."""
        twice = list(self.others)
        probes = twice[:: max(1, len(twice) // PROBES)][:PROBES]
        if not probes:
            return
        again = ask(self.situations({i: self.others[i] for i in probes}))
        row = {place: i for i, place in enumerate(self.ways)}
        first = given[[row[i] for i in probes]]
        if np.abs(first - again).max() > AGREE:
            raise NotExactError("the policy goes by more than the observation")

    def columns(self, given: Floats) -> Floats:
        """Return distributions over choices as distributions over actions; 0 in other states."""
        acts = np.zeros((len(self.layer), len(self.process.actions)))
        chosen = np.zeros((len(self.ways), acts.shape[1]))
        for i, column in enumerate((*self.team.columns, self.team.stop)):
            chosen[:, column] += given[:, i]
        acts[list(self.ways)] = chosen
        return acts

    def go_on(self, acts: Floats, width: int) -> None:
        """Go on to the next layer, by everything the policy may do."""
        layer = self.layer
        first = np.full((width, 2), -1)
        last = np.full((width, 2), -1)
        for column in sorted(self.choice):
            taken = (acts[:, column] > 0) & layer.allowed[:, column]
            for k in range(layer.to.shape[2]):
                here = np.flatnonzero(taken & (layer.chance[:, column, k] > 0))
                targets = layer.to[here, column, k]
                pairs = np.column_stack([here, np.full(len(here), column)])
                new = first[targets, 0] < 0
                first[targets[new]] = pairs[new]
                last[targets] = pairs
        ways: dict[int, Trajectory] = {}
        others: dict[int, Trajectory] = {}
        for i in np.flatnonzero(first[:, 0] >= 0).tolist():
            ways[i] = self._way(*first[i].tolist())
            if (first[i] != last[i]).any():
                others[i] = self._way(*last[i].tolist())
        self.ways, self.others = ways, others
        self.t += 1

    def _way(self, place: int, column: int) -> Trajectory:
        choice, action = self.choice[column], self.process.actions[column]
        output = play(action.row, action.option, self.layer.show(place))
        turn = Turn(self.t, choice.agent, choice.option, output, decision=self.t)
        return self.ways[place].append(turn)
