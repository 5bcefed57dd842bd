"""A graph made ready to run: places in a list instead of names, conditions as functions.

Every try of every node has an index of its own, fixed before the run: a node's turns stand in
the trajectory where the graph puts them, whenever they arrive. A node takes as many indices as it
has tries, a body as many as all its nodes have, times how often it may run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrion import Activation
from orchestrion_dag.conditions import compiled, parse
from orchestrion_dag.graph import START, Edge, Node, Wiring, wire
from orchestrion_dag.order import topological
from orchestrion_dag.ports import Type, output_type

if TYPE_CHECKING:
    from orchestrion_dag.scope import Scope

__all__ = ["Link", "Plan", "Step", "Test", "plan_of"]

Test = Callable[[tuple["Scope", int]], Any]
"""A condition, asked of a scope and the place of the edge's source in it (-1 for the start)."""


class Link:
    """An edge as its source sees it."""

    __slots__ = ("failure", "otherwise", "success", "target", "test")

    def __init__(self, edge: Edge, target: int, test: Test | None) -> None:
        self.target, self.test, self.otherwise = target, test, edge.otherwise
        self.success = edge.on in ("success", "done")
        self.failure = edge.on in ("failure", "done")


class Step:
    """A node."""

    __slots__ = (
        "body",
        "check",
        "handled",
        "is_output",
        "join",
        "links",
        "name",
        "need",
        "node",
        "offset",
        "place",
        "simple",
        "size",
        "times",
        "tries",
        "until",
    )

    def __init__(self, name: str, place: int, node: Node, offset: int) -> None:
        self.name, self.place, self.node, self.offset = name, place, node, offset
        self.links: list[Link] = []
        self.tries: tuple[tuple[str, str | None], ...] = ()
        self.body: Plan | None = None
        self.until: Test | None = None
        self.times = 1
        self.check: Type | None = None
        self.join = node.join
        # How many edges must be taken for it to run before all are decided.
        self.need = {"any": 1, "k_of_n": node.k}.get(node.join, 0)
        self.size = 0
        self.is_output = False
        self.handled = False
        """Whether an edge takes care of its failure."""
        self.simple = True
        """Whether nothing about its edges has to be asked when it succeeds."""


class Plan:
    """A graph. `waits` is how many edges lead to each step; `first` what the start leads to."""

    __slots__ = (
        "first",
        "observes",
        "outputs",
        "places",
        "races",
        "roots",
        "size",
        "steps",
        "waits",
    )

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.places: dict[str, int] = {}
        self.waits: list[int] = []
        self.first: list[Link] = []
        self.roots: list[int] = []
        self.outputs: list[int] = []
        self.size = 0
        self.races = False
        """Whether it matters which of several turns arrives first."""
        self.observes = False
        """Whether a condition looks at what is observed."""


def plan_of(wiring: Wiring, known: Mapping[str, Activation]) -> Plan:
    """Make a graph ready.

    Args:
        wiring: with nothing wrong in it.
        known: the team's choices by name.
    """
    plan = Plan()
    order = topological(wiring)
    plan.places = {name: place for place, name in enumerate(order)}
    plan.waits = [0] * len(order)
    for place, name in enumerate(order):
        step = _step(name, place, wiring.nodes[name], plan.size, known)
        plan.steps.append(step)
        plan.size += step.size
        if step.body is not None:
            plan.races = plan.races or step.body.races
            looks = "observation" in step.node.until
            plan.observes = plan.observes or step.body.observes or looks
    for edge in wiring.edges:
        _add(plan, edge)
    for step in plan.steps:
        plan.races = plan.races or (step.need > 0 and plan.waits[step.place] > 1)
        step.handled = any(link.failure for link in step.links)
        step.simple = all(
            link.success and link.test is None and not link.otherwise for link in step.links
        )
    plan.races = plan.races or plan.observes
    plan.roots = [place for place, count in enumerate(plan.waits) if not count]
    plan.outputs = [plan.places[name] for name in wiring.outputs]
    for place in plan.outputs:
        plan.steps[place].is_output = True
    return plan


def _step(name: str, place: int, node: Node, offset: int, known: Mapping[str, Activation]) -> Step:
    step = Step(name, place, node, offset)
    if node.body is not None:
        step.body = plan_of(wire(node.body), known)
        step.times = node.max or 1
        step.size = step.body.size * step.times
        if node.until:
            step.until = compiled(parse(node.until), _finder(step.body.places))
        return step
    names = [node.agent] * (node.retries + 1) + ([node.fallback] if node.fallback else [])
    step.tries = tuple((known[one].agent, known[one].option) for one in names)
    step.size = len(step.tries)
    if node.output and node.output != "text":
        step.check = output_type(node.output)
    return step


def _add(plan: Plan, edge: Edge) -> None:
    target = plan.places[edge.target]
    plan.waits[target] += 1
    test = compiled(parse(edge.when), _finder(plan.places)) if edge.when else None
    links = plan.first if edge.source == START else plan.steps[plan.places[edge.source]].links
    links.append(Link(edge, target, test))
    plan.observes = plan.observes or "observation" in edge.when


# ------------------------------------------------------------------------------------ names


def _finder(places: Mapping[str, int]) -> Callable[[str], Test]:
    """How conditions find names in a scope."""

    def find(root: str) -> Test:
        if root in _ROOTS:
            return _ROOTS[root]
        place = places[root]
        return lambda frame: frame[0].value(place)

    return find


def _problem(frame: tuple[Scope, int]) -> Any:
    problem = frame[0].machine.problem
    return {
        "id": problem.id,
        "text": problem.text,
        "category": problem.category,
        "data": problem.data,
    }


def _observation(frame: tuple[Scope, int]) -> Any:
    seen = frame[0].machine.observation
    if seen is None:
        return None
    return {"text": seen.text, "data": seen.data, "progress": seen.progress}


def _own(name: str) -> Test:
    return lambda frame: frame[0].value(frame[1])[name] if frame[1] >= 0 else None


_ROOTS: dict[str, Test] = {
    "problem": _problem,
    "observation": _observation,
    "iteration": lambda frame: frame[0].iteration + 1,
    **{name: _own(name) for name in ("data", "content", "status", "error")},
}
