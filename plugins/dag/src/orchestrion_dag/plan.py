"""A graph made ready to run: positions in a list in place of names, conditions as functions.

Every try of every node has an index of its own, fixed before the run: a node's turns stand in the
trajectory where the graph puts them, whenever they arrive. A node takes as many indices as it has
tries; a body takes the indices of all its nodes, times the number of times it may run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Factory, define

from orchestrion import Activation
from orchestrion_dag.conditions import Value, compiled, parse
from orchestrion_dag.graph import START, Edge, Node, Wiring, wire
from orchestrion_dag.order import topological
from orchestrion_dag.ports import Type, output_type

# A condition is a function of a frame: the scope it is asked in, and the place of the edge's source
# there (-1 for the start). A scope gives `value(place)`, `iteration`, and its `machine`.


@define(eq=False)
class PlanLink:
    """An edge, seen from its source.

    Args:
        target: the place of its target.
        test: its condition, None without one.
        otherwise: whether it is taken if no condition of its source holds.
        success: whether it can be taken if its source succeeds.
        failure: whether it can be taken if its source fails.
    """

    target: int
    test: Value | None
    otherwise: bool
    success: bool
    failure: bool


@define(eq=False)
class PlanStep:
    """A node.

    Args:
        name: of the node.
        place: its position among the steps of its graph.
        node: its settings.
        offset: its first index, counted from that of its graph.
        links: the edges that leave it.
        tries: agent and option of each try.
        body: the graph that runs in the place of an agent.
        until: the condition that ends repeating the body.
        times: maximum number of runs of the body.
        check: the type that its data must have.
        need: number of edges that start it before all are decided; 0 if it waits for all.
        size: number of indices it takes.
        is_output: whether its result is one of the graph's.
        handled: whether an edge takes care of its failure.
        simple: whether all its edges are taken if it succeeds, and only then.
    """

    name: str
    place: int
    node: Node
    offset: int
    links: list[PlanLink] = Factory(list)
    tries: tuple[tuple[str, str | None], ...] = ()
    body: GraphPlan | None = None
    until: Value | None = None
    times: int = 1
    check: Type | None = None
    need: int = 0
    size: int = 0
    is_output: bool = False
    handled: bool = False
    simple: bool = True


@define(eq=False)
class GraphPlan:
    """A graph.

    Args:
        steps: every source before its targets.
        places: of the steps, by name.
        waits: number of edges that lead to each step.
        first: the edges that leave the start.
        roots: places of steps without incoming edges.
        outputs: places of the steps whose results are the graph's.
        size: number of indices it takes.
        races: whether the result depends on which of several turns arrives first.
        observes: whether a condition looks at what is observed.
    """

    steps: list[PlanStep] = Factory(list)
    places: dict[str, int] = Factory(dict)
    waits: list[int] = Factory(list)
    first: list[PlanLink] = Factory(list)
    roots: list[int] = Factory(list)
    outputs: list[int] = Factory(list)
    size: int = 0
    races: bool = False
    observes: bool = False


def comes_before(steps: Sequence[PlanStep], source: PlanStep, target: PlanStep) -> bool:
    """Return whether one step comes before another one."""
    seen, waiting = {source.place}, [source.place]
    while waiting:
        for link in steps[waiting.pop()].links:
            if link.target not in seen:
                seen.add(link.target)
                waiting.append(link.target)
    return target.place in seen and target is not source


def plan_of(wiring: Wiring, choices: Mapping[str, Activation]) -> GraphPlan:
    """Return a valid graph made ready to run; `choices` are those of the team, by name."""
    order = topological(wiring)
    plan = GraphPlan(
        places={name: place for place, name in enumerate(order)}, waits=[0] * len(order)
    )
    for name in order:
        step = _step(name, plan, wiring.nodes[name], choices)
        plan.steps.append(step)
        plan.size += step.size
        if step.body is not None:
            plan.races |= step.body.races
            plan.observes |= step.body.observes or "observation" in step.node.until
    for edge in wiring.edges:
        _add(plan, edge)
    for step in plan.steps:
        plan.races |= step.need > 0 and plan.waits[step.place] > 1
        step.handled = any(link.failure for link in step.links)
        step.simple = all(
            link.success and link.test is None and not link.otherwise for link in step.links
        )
    plan.races |= plan.observes
    plan.roots = [place for place, count in enumerate(plan.waits) if not count]
    plan.outputs = [plan.places[name] for name in wiring.outputs]
    for place in plan.outputs:
        plan.steps[place].is_output = True
    return plan


def _step(name: str, plan: GraphPlan, node: Node, choices: Mapping[str, Activation]) -> PlanStep:
    # `any` and `k_of_n` run before all edges are decided.
    need = {"any": 1, "k_of_n": node.k}.get(node.join, 0)
    step = PlanStep(name, plan.places[name], node, plan.size, need=need)
    if node.body is not None:
        step.body = plan_of(wire(node.body), choices)
        step.times = node.max or 1
        step.size = step.body.size * step.times
        if node.until:
            step.until = compiled(parse(node.until), _names_in(step.body.places))
        return step
    agents = [node.agent] * (node.retries + 1) + ([node.fallback] if node.fallback else [])
    step.tries = tuple((choices[agent].agent, choices[agent].option) for agent in agents)
    step.size = len(step.tries)
    if node.output and node.output != "text":
        step.check = output_type(node.output)
    return step


def _add(plan: GraphPlan, edge: Edge) -> None:
    target = plan.places[edge.target]
    plan.waits[target] += 1
    test = compiled(parse(edge.when), _names_in(plan.places)) if edge.when else None
    success, failure = edge.on in ("success", "done"), edge.on in ("failure", "done")
    links = plan.first if edge.source == START else plan.steps[plan.places[edge.source]].links
    links.append(PlanLink(target, test, edge.otherwise, success, failure))
    plan.observes |= "observation" in edge.when


def _names_in(places: Mapping[str, int]) -> Callable[[str], Value]:
    """Return how conditions find names: it gives the function of a frame for each name."""

    def find(root: str) -> Value:
        if root in _ROOTS:
            return _ROOTS[root]
        place = places[root]
        return lambda frame: frame[0].value(place)

    return find


def _observation(frame: Any) -> Any:
    seen = frame[0].machine.observation
    if seen is None:
        return None
    return {"text": seen.text, "data": seen.data, "progress": seen.progress}


def _own(name: str) -> Value:
    return lambda frame: frame[0].value(frame[1])[name] if frame[1] >= 0 else None


_ROOTS: dict[str, Value] = {
    "problem": lambda frame: problem_value(frame[0].machine.problem),
    "observation": _observation,
    "iteration": lambda frame: frame[0].iteration + 1,
    **{name: _own(name) for name in ("data", "content", "status", "error")},
}


def problem_value(problem: Any) -> dict[str, Any]:
    """Return a problem as conditions see it."""
    return {name: getattr(problem, name) for name in ("id", "text", "category", "data")}
