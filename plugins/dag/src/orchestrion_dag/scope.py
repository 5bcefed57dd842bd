"""One run of a graph or of a body: what is known of each of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import frozen

from orchestrion import Turn
from orchestrion_dag.plan import Plan, Step

if TYPE_CHECKING:
    from orchestrion_dag.machine import Machine

__all__ = [
    "CANCELLED",
    "FAILED",
    "PENDING",
    "RUNNING",
    "SKIPPED",
    "SUCCEEDED",
    "NodeState",
    "Scope",
    "ends",
    "states",
    "why",
]

PENDING, RUNNING, SUCCEEDED = "pending", "running", "succeeded"
FAILED, SKIPPED, CANCELLED = "failed", "skipped", "cancelled"


@frozen
class NodeState:
    """How it went with a node.

    Args:
        status: pending, running, succeeded, failed, skipped or cancelled.
        reason: why it failed or was skipped.
        turns: the indices of the turns that stand for it: what those after it may read.
        iterations: how often a body ran.
        capped: whether a body ran as often as it may without `until` coming true.
    """

    status: str
    reason: str = ""
    turns: tuple[int, ...] = ()
    iterations: int = 0
    capped: bool = False


class Scope:
    """One run of a graph or of a body: the state of each of its steps, by place."""

    __slots__ = (
        "base",
        "broken",
        "children",
        "closed",
        "entry",
        "iteration",
        "left",
        "machine",
        "open_outputs",
        "outer",
        "plan",
        "reads",
        "reasons",
        "results",
        "status",
        "step",
        "taken",
        "turns",
    )

    def __init__(
        self,
        machine: Machine,
        plan: Plan,
        base: int,
        entry: tuple[int, ...],
        outer: Scope | None = None,
        step: Step | None = None,
        iteration: int = 0,
    ) -> None:
        count = len(plan.steps)
        self.machine, self.plan, self.base, self.entry = machine, plan, base, entry
        self.outer, self.step = outer, step
        self.iteration: int = iteration
        self.status = [PENDING] * count
        self.left = plan.waits.copy()
        self.taken, self.broken = [0] * count, [0] * count
        self.reads: list[tuple[int, ...]] = [()] * count
        # What a step gave: the indices of its turns that others read, and the last of these turns.
        self.results: list[tuple[int, ...]] = [()] * count
        self.turns: list[Turn | None] = [None] * count
        self.reasons: dict[int, str] = {}
        self.children: dict[int, list[Scope]] = {}
        self.open_outputs = len(plan.outputs)
        self.closed = False

    @property
    def over(self) -> bool:
        """Whether nothing that happens in it counts any more."""
        return self.closed or (self.outer is not None and self.outer.over)

    def value(self, place: int) -> dict[str, Any]:
        """A step as conditions see it."""
        turn = self.turns[place]
        bodies = self.children.get(place, [])
        step = self.plan.steps[place]
        return {
            "data": turn.output.data if turn is not None else None,
            "content": turn.output.content if turn is not None else None,
            "status": self.status[place],
            "error": self.reasons.get(place, ""),
            "iterations": len(bodies),
            "capped": bool(bodies) and is_capped(step, bodies[-1]),
        }

    def path(self, step: Step) -> str:
        """The step's name from the outermost graph on."""
        if self.outer is None or self.step is None:
            return step.name
        return f"{self.outer.path(self.step)}/{step.name}"


def is_capped(step: Step, last: Scope) -> bool:
    """Whether a body ran as often as it may and `until` does not hold."""
    full = last.iteration + 1 >= step.times
    return full and step.until is not None and not step.until((last, -1))


def states(scope: Scope, prefix: str, over: bool) -> Iterator[tuple[str, NodeState]]:
    """Every step of a scope and of those in it, by path."""
    for step in scope.plan.steps:
        status = scope.status[step.place]
        if (over or scope.closed) and status in (PENDING, RUNNING):
            status = CANCELLED
        bodies = scope.children.get(step.place, [])
        yield (
            prefix + step.name,
            NodeState(
                status,
                scope.reasons.get(step.place, ""),
                scope.results[step.place],
                len(bodies),
                bool(bodies) and status == SUCCEEDED and is_capped(step, bodies[-1]),
            ),
        )
        for body in bodies:
            many = f"[{body.iteration + 1}]" if step.times > 1 else ""
            yield from states(body, f"{prefix}{step.name}{many}/", over or scope.closed)


def why(step: Step, taken: int, broken: int) -> str:
    """Why a step is skipped."""
    if broken:
        return "what it needs failed"
    if step.need > 1:
        return f"{taken} of the {step.need} edges it needs were taken"
    return "no edge to it was taken"


def ends(scope: Scope) -> str:
    """What became of the outputs."""
    return ", ".join(
        f"{scope.path(scope.plan.steps[place])} {scope.status[place]}"
        + (f" ({scope.reasons[place]})" if place in scope.reasons else "")
        for place in scope.plan.outputs[:5]
    )
