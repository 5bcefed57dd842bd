"""What an agent can do, told by its role: the one thing teams and task agree on.

The task reads the roles of the team when it is opened. So it can show policies how much each
agent could still do in each region, and block those that have nothing left, before the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrion import Member
from orchestrion_repair.operators import FAMILIES

__all__ = ["RUNS_TESTS", "Skills", "role_of", "skills_of", "testers_of"]

Skills = tuple[tuple[str, tuple[str, ...]], ...]
"""Agents with their families, in the order of the team."""

RUNS_TESTS = "runs the visible tests"
"""The role of an agent that reports test results begins so."""
_START = "tries edits: "


def role_of(families: Sequence[str]) -> str:
    """The role of an agent that tries edits of these families."""
    return _START + ", ".join(families)


def skills_of(roster: Iterable[Member]) -> Skills:
    """The members of a team that try edits."""
    found = []
    for member in roster:
        if member.role.startswith(_START):
            names = member.role.removeprefix(_START).split(", ")
            families = tuple(name for name in names if name in FAMILIES)
            if families:
                found.append((member.name, families))
    return tuple(found)


def testers_of(roster: Iterable[Member]) -> tuple[str, ...]:
    """The members of a team that run the visible tests."""
    return tuple(member.name for member in roster if member.role.startswith(RUNS_TESTS))
