"""Who acts next on a branch: the team's policy says so, or a fixed rotation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrion import (
    Activation,
    Branch,
    Decision,
    Key,
    Policy,
    Problem,
    RunError,
    Situation,
    UsageError,
    is_blocked,
)

__all__ = ["Chooser", "Everybody", "PolicyChooser", "Rotation", "Start"]

Start = tuple[Activation, ...] | None
"""What to start on a branch; None means that it is finished."""


class Chooser(Protocol):
    """Decides for many branches at once; what else is in the batch changes nothing."""

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """One answer for each branch."""
        ...


class PolicyChooser(Chooser):
    """The team's policy.

    Args:
        policy: decides.
        turns: how many turns a trajectory may have.
        training: whether it should explore.
        at_once: how many agents it may start at once.
    """

    def __init__(self, policy: Policy, turns: int, training: bool, at_once: int) -> None:
        self.policy, self.turns, self.training = policy, turns, training
        self.at_once = at_once
        self._public: dict[int, tuple[Problem, Problem]] = {}

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """One batch of decisions."""
        situations = [
            Situation(
                self._shown(branch.problem),
                branch.trajectory,
                branch.step.observation,
                turns_left=max(0, self.turns - len(branch.trajectory)),
                training=self.training,
            )
            for branch in branches
        ]
        decisions = self.policy.decide(situations, keys)
        return [
            self._start(one, s.turns_left) for one, s in zip(decisions, situations, strict=True)
        ]

    def _shown(self, problem: Problem) -> Problem:
        # Policies may tell problems apart by identity, and a batch holds one many times.
        known = self._public.get(id(problem))
        if known is None:
            known = self._public[id(problem)] = (problem, problem.public())
        return known[1]

    def _start(self, decision: Decision, left: int | None) -> Start:
        if decision.stop:
            if decision.error:
                raise RunError(f"the policy cannot go on: {decision.error}")
            return None
        if not decision.start:
            raise RunError(
                f"policy {type(self.policy).__name__} neither started an agent nor stopped, with "
                "nothing running"
            )
        start = decision.start[:left]
        if len(start) > self.at_once:
            raise RunError(
                f"policy {type(self.policy).__name__} starts {len(start)} agents at once; allow "
                f"that with `at_once: {len(start)}`, which the dry run counts with"
            )
        return start


class Rotation(Chooser):
    """Choices one after the other, and from the start again; what the task blocks is passed over.

    Args:
        order: at least one choice.
    """

    def __init__(self, order: Sequence[Activation]) -> None:
        if not order:
            raise UsageError("a rotation needs at least one agent")
        self.order = tuple(order)

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """Whose turn it is, by the number of turns so far."""
        return [self._start(branch) for branch in branches]

    def _start(self, branch: Branch) -> Start:
        first, count = len(branch.trajectory), len(self.order)
        for n in range(count):
            choice = self.order[(first + n) % count]
            if not is_blocked(choice, branch.step.observation):
                return (choice,)
        return None


class Everybody(Chooser):
    """All at once, round after round: each reads what all said in the rounds before.

    Args:
        members: who speaks.
    """

    def __init__(self, members: Sequence[Activation]) -> None:
        self.members = tuple(members)

    def starts(self, branches: Sequence[Branch], keys: Sequence[Key]) -> list[Start]:
        """Everybody whom the task does not block."""
        free = [
            tuple(one for one in self.members if not is_blocked(one, branch.step.observation))
            for branch in branches
        ]
        return [members or None for members in free]
