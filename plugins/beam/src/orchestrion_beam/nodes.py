"""The trajectories of a search, and which of them a beam keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal

from attrs import define, field

from orchestrion import JSON, Activation, Branch, Episode, Trajectory, Turn
from orchestrion_beam.interfaces import Valued

Fate = Literal["", "failed", "duplicate", "pruned", "cut", "final"]
"""What became of a trajectory: `cut` by early stop; empty if it was extended."""


@define(eq=False)
class SearchNode:
    """Hold one trajectory of the search, and what became of it."""

    branch: Branch
    path: tuple[int, ...] = ()  # number of the sample at each level; names the keys
    parent: SearchNode | None = field(default=None, repr=False)
    start: tuple[Activation, ...] = ()  # activations of the last extension
    turns: tuple[Turn, ...] = ()  # turns of the last extension
    digest: bytes = b""  # equal for equal content: turns, observation, end
    calls: int = 0  # of the last extension; a turn without calls counts as one
    finished: bool = False  # is not extended any more
    valued: Valued | None = None
    tie: bytes = b""  # decides between equal values and equal rewards
    fate: Fate = ""
    score: float | None = None  # final score, if early stop asked for it
    episode: Episode | None = None  # once it is verified and rewarded

    @property
    def value(self) -> float | None:
        """Return the estimated value; None without estimate."""
        return None if self.valued is None else self.valued.value

    @property
    def root(self) -> int | None:
        """Return the number of its first turn's sample; None for the empty trajectory."""
        return self.path[0] if self.path else None

    @property
    def rank(self) -> tuple[bool, float, bytes]:
        """Return a key that sorts the highest value first, and nodes without value last."""
        return (self.value is None, -(self.value or 0.0), self.tie)

    @property
    def name(self) -> str:
        """Return the path as text, e.g. "3.0.1"."""
        return ".".join(map(str, self.path))

    def lineage(self) -> list[SearchNode]:
        """Return the nodes from the first extension to this one."""
        nodes: list[SearchNode] = []
        node: SearchNode | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def child(self, sample: int, start: tuple[Activation, ...], branch: Branch) -> SearchNode:
        """Return the node of a branch that extends this one."""
        turns = new_turns(branch.trajectory, len(self.branch.trajectory))
        return SearchNode(
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
    """Return the turns after the first `before` ones."""
    return tuple(islice(trajectory.backward(), len(trajectory) - before))[::-1]


def calls_of(turns: Iterable[Turn]) -> int:
    """Return how many calls these turns made; a turn without calls counts as one."""
    return sum(max(turn.usage.calls, 1) for turn in turns)


def _digest(before: bytes, turns: Sequence[Turn], branch: Branch) -> bytes:
    seen = branch.step.observation
    content: JSON = [
        [[t.agent, t.option, t.status, t.output.content, t.output.data] for t in turns],
        None if seen is None else [seen.text, seen.data, list(seen.features)],
        branch.step.done,
    ]
    text = json.dumps(content, sort_keys=True, default=_as_json)
    return blake2b(before + text.encode(), digest_size=16).digest()


def _as_json(value: Any) -> JSON:
    return sorted(value) if isinstance(value, AbstractSet) else repr(value)


def choose(
    nodes: Sequence[SearchNode], width: int, min_parents: int = 1, min_roots: int = 1
) -> list[SearchNode]:
    """Return the `width` nodes to keep, the best first.

    They have at least `min_roots` different first turns and `min_parents` different parents, or as
    many as there are: the best node of each of the best families comes before all others.
    """
    ranked = sorted(nodes, key=lambda node: node.rank)
    kept: list[SearchNode] = []
    for node in ranked:
        if len(kept) < min(width, min_roots) and node.root not in {k.root for k in kept}:
            kept.append(node)
    for node in ranked:
        parents = {k.path[:-1] for k in kept}
        if len(kept) < width and len(parents) < min_parents and node.path[:-1] not in parents:
            kept.append(node)
    others = [node for node in ranked if node not in kept]
    kept += others[: width - len(kept)]
    return sorted(kept, key=lambda node: node.rank)
