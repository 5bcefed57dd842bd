"""From a genome to a graph of agents that policy `dag` runs, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from orchestrion_dag import Edge, Graph, Node
from orchestrion_dag.plan import Plan

from orchestrion import Member, choice_name, choices
from orchestrion_evolution.genome import Genome, Slot, places

__all__ = ["OnError", "as_text", "genome_of", "graph_of", "names_of"]

OnError = Literal["fail", "skip", "continue"]


def names_of(roster: Sequence[Member]) -> tuple[str, ...]:
    """Everything a node may run, "agent" or "agent:option", in roster order."""
    return tuple(choice_name(one) for one in choices(roster))


def graph_of(genome: Genome, names: Sequence[str], on_error: OnError = "continue") -> Graph:
    """The graph of a canonical genome; nodes are called after what they run.

    Args:
        genome: canonical.
        names: what a node may run, by its number.
        on_error: of every node, see `Node`.
    """
    nodes = _node_names(genome, names)
    return Graph(
        nodes={
            node: Node(agent=names[slot.choice], on_error=on_error)
            for node, slot in zip(nodes, genome.slots, strict=True)
        },
        edges=[
            Edge(nodes[i], nodes[j])
            for j, slot in enumerate(genome.slots)
            for i in places(slot.reads)
        ],
        outputs=[nodes[-1]],
    )


def as_text(genome: Genome, names: Sequence[str]) -> str:
    """A genome in one line, e.g. "coder(planner, searcher)"; a shared node is named once more."""
    nodes = _node_names(genome, names)
    told: set[int] = set()

    def say(j: int) -> str:
        if j in told or not genome.slots[j].reads:
            return nodes[j]
        told.add(j)
        return f"{nodes[j]}({', '.join(say(i) for i in places(genome.slots[j].reads))})"

    return say(len(genome.slots) - 1)


def _node_names(genome: Genome, names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    result = []
    for slot in genome.slots:
        # A dot would read as a port of a node.
        name = names[slot.choice].replace(".", "_")
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return result


def genome_of(plan: Plan, names: Sequence[str]) -> Genome | None:
    """The genome of a graph that is made of nothing but agents and plain edges, with one output.

    None if there is more to it (conditions, loops, other joins), or it runs what is not searched.
    """
    if len(plan.outputs) != 1 or not plan.steps or plan.first:
        return None
    reads = [0] * len(plan.steps)
    known = {name: number for number, name in enumerate(names)}
    slots = []
    for step in plan.steps:
        plain = step.body is None and len(step.tries) == 1 and step.join == "all"
        if not plain or not step.simple or (step.links and step.is_output):
            return None
        agent, option = step.tries[0]
        choice = known.get(agent if option is None else f"{agent}:{option}")
        if choice is None:
            return None
        slots.append(Slot(choice, reads[step.place]))
        for link in step.links:
            reads[link.target] |= 1 << step.place
    # What follows the output, or leads nowhere, is dead.
    return Genome(tuple(slots[: plan.outputs[0] + 1]))
