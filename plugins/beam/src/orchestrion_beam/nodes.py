"""Trajectories of a search as a tree, and what stands for their content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal

from attrs import define, field

from orchestrion import JSON, Activation, Branch, Trajectory, Turn
from orchestrion_beam.interfaces import Valued

__all__ = ["Fate", "Node", "calls_of", "new_turns"]

Fate = Literal["", "failed", "duplicate", "pruned", "cut", "final"]
"""What became of a trajectory: `cut` by early stop; nothing if it went on."""


@define(eq=False)
class Node:
    """A trajectory of the search.

    Args:
        branch: what is extended.
        path: which sample of which sample ... it is: names its randomness.
        parent: what it grew from; None at the beginning.
        start: what was activated for that.
        turns: of its last extension.
        digest: stands for the content; equal for equal trajectories on equal observations.
        calls: of its last extension; a turn without calls counts as one.
        finished: whether it grows no more.
        valued: what the estimator says.
        fate: what became of it.
        score: the verifier's final score, if it was asked early.
    """

    branch: Branch
    path: tuple[int, ...] = ()
    parent: Node | None = field(default=None, repr=False)
    start: tuple[Activation, ...] = ()
    turns: tuple[Turn, ...] = ()
    digest: bytes = b""
    calls: int = 0
    finished: bool = False
    valued: Valued | None = None
    fate: Fate = ""
    score: float | None = field(default=None)

    @property
    def value(self) -> float | None:
        """The estimate, if there is one."""
        return None if self.valued is None else self.valued.value

    @property
    def root(self) -> int | None:
        """Which sample of the first turn it goes back to."""
        return self.path[0] if self.path else None

    @property
    def name(self) -> str:
        """The path as text, e.g. "3.0.1"."""
        return ".".join(map(str, self.path))

    def lineage(self) -> list[Node]:
        """From the first extension to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def child(self, sample: int, start: tuple[Activation, ...], branch: Branch) -> Node:
        """A trajectory that grew from this one."""
        turns = new_turns(branch.trajectory, len(self.branch.trajectory))
        return Node(
            branch,
            (*self.path, sample),
            self,
            start,
            turns,
            _digest(self.digest, turns, branch),
            calls_of(turns),
            branch.step.done or any(turn.output.final for turn in turns),
        )


def new_turns(trajectory: Trajectory, before: int) -> tuple[Turn, ...]:
    """What was appended to the first `before` turns."""
    return tuple(islice(trajectory.backward(), len(trajectory) - before))[::-1]


def calls_of(turns: tuple[Turn, ...]) -> int:
    """Calls that these turns made; one that made none counts as one."""
    return sum(max(turn.usage.calls, 1) for turn in turns)


def _digest(before: bytes, turns: tuple[Turn, ...], branch: Branch) -> bytes:
    observation = branch.step.observation
    content: JSON = [
        [
            [turn.agent, turn.option, turn.status, turn.output.content, turn.output.data]
            for turn in turns
        ],
        None
        if observation is None
        else [observation.text, observation.data, list(observation.features)],
        branch.step.done,
    ]
    text = json.dumps(content, sort_keys=True, default=_plain)
    return blake2b(before + text.encode(), digest_size=16).digest()


def _plain(value: Any) -> JSON:
    """What tasks and agents may take for JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    return repr(value)
