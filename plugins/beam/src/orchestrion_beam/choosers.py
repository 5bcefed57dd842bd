"""Decide who acts next on a branch: by the team's policy or in rotation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import define, field, frozen

from orchestrion import (
    Activation,
    Branch,
    Decision,
    Key,
    Member,
    Policy,
    Problem,
    RunError,
    Situation,
    choices,
    is_blocked,
    parse_choice,
)

Start = tuple[Activation, ...] | None
"""The activations to start together on a branch; None ends the branch."""


class Chooser(Protocol):
    """Decides for many branches at once; each decision is independent of the rest of the batch."""

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """Return one decision for each branch."""
        ...


@define(eq=False)
class PolicyChooser(Chooser):
    """Asks the team's policy."""

    policy: Policy
    turns: int  # most turns of a trajectory
    training: bool  # whether the policy should explore
    at_once: int  # most agents that the policy may start at once
    _public: dict[int, tuple[Problem, Problem]] = field(init=False, factory=dict)

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """Return the policy's decisions, from one batch.

        Raises:
            RunError: the policy has an error, decides nothing, or starts too many agents.
        """
        situations = [
            Situation(
                self._public_part(branch.problem),
                branch.trajectory,
                branch.step.observation,
                turns_left=max(0, self.turns - len(branch.trajectory)),
                training=self.training,
            )
            for branch in branches
        ]
        decisions = self.policy.decide(situations, keys)
        return [
            self._start(decision, self.turns - len(branch.trajectory))
            for decision, branch in zip(decisions, branches, strict=True)
        ]

    def _public_part(self, problem: Problem) -> Problem:
        # The same object for the same problem: policies may tell problems apart by identity.
        if id(problem) not in self._public:
            self._public[id(problem)] = (problem, problem.public())
        return self._public[id(problem)][1]

    def _start(self, decision: Decision, turns_left: int) -> Start:
        name = type(self.policy).__name__
        if decision.stop:
            if decision.error:
                raise RunError(f"the policy cannot go on: {decision.error}")
            return None
        if not decision.start:
            raise RunError(
                f"policy {name} neither started an agent nor stopped although no agent is running"
            )
        start = decision.start[:turns_left]
        if len(start) > self.at_once:
            raise RunError(
                f"policy {name} starts {len(start)} agents at once, but `at_once` is "
                f"{self.at_once}; set `at_once: {len(start)}` (the dry run multiplies by it)"
            )
        return start


@frozen
class Rotation(Chooser):
    """Lets choices act one after the other, again and again, without those that the task blocks."""

    order: Sequence[Activation]

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """Return the choice whose turn it is, by the number of turns so far."""
        return [self._start(branch) for branch in branches]

    def _start(self, branch: Branch) -> Start:
        first = len(branch.trajectory) % len(self.order)
        for choice in (*self.order[first:], *self.order[:first]):
            if not is_blocked(choice, branch.step.observation):
                return (choice,)
        return None


def rotation_of(names: Sequence[str], roster: Sequence[Member]) -> Rotation:
    """Return the rotation of the choices with these names, or of the whole team without names.

    Raises:
        UsageError: a name is no choice of the team.
    """
    return Rotation([parse_choice(name, roster) for name in names] or choices(roster))
