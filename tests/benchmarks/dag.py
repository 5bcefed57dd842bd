"""What running a graph costs, beside floors measured in the same run.

    python dev.py python -m tests.benchmarks.dag            # all
    python dev.py python -m tests.benchmarks.dag nodes      # one of: nodes make

`nodes`  CPU for each node of graphs of 1,000 no-op agents, everything included: engine, policy,
         turn; floor: an awaited task. The target is 40 us.
`make`   from nodes and edges to a policy that runs, for searches that make thousands.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import pairwise
from random import Random

from orchestrion_dag import Edge, Graph, Node, policy_of

from orchestrion import Agent, Key, Member
from orchestrion.testing import engine_for
from tests.benchmarks.support import (
    PROBLEM,
    REPEATS,
    Noop,
    Waiting,
    cpu_microseconds,
    noop,
)


def chain(count: int) -> Graph:
    names = [f"n{i}" for i in range(count)]
    return Graph(
        nodes={name: Node("a") for name in names},
        edges=[Edge(a, b) for a, b in pairwise(names)],
    )


def layers(count: int, width: int) -> Graph:
    """Layers of equal width; each node reads three of the layer before."""
    random = Random(width)
    edges = [
        Edge(f"n{source}", f"n{i}")
        for i in range(width, count)
        for source in sorted(random.sample(range((i // width - 1) * width, i // width * width), 3))
    ]
    return Graph(nodes={f"n{i}": Node("a") for i in range(count)}, edges=edges)


def star(count: int) -> Graph:
    """One, then all others at once, then one that joins them."""
    middle = [f"n{i}" for i in range(1, count - 1)]
    return Graph(
        nodes={f"n{i}": Node("a") for i in range(count)},
        edges=[Edge("n0", name) for name in middle]
        + [Edge(name, f"n{count - 1}") for name in middle],
    )


def nodes() -> None:
    count = 1000

    async def tasks() -> None:
        for _ in range(count):
            await asyncio.create_task(noop())

    floor = cpu_microseconds(tasks, count)
    print(f"nodes   an awaited task {floor:7.2f} us")
    graphs = {
        "chain": chain(count),
        "layers of 10": layers(count, 10),
        "layers of 50": layers(count, 50),
        "layers of 250": layers(count, 250),
        "star": star(count),
    }
    for name, graph in graphs.items():
        for agent, kind in ((Noop(), "no-op"), (Waiting(0), "yielding")):
            each = min(asyncio.run(episode(graph, agent)) for _ in range(REPEATS)) / count * 1e6
            print(
                f"        {name:14} {kind:9}{each:7.2f} us a node = {each / 40:.2f} x 40 us "
                f"= {each / floor:.2f} x an awaited task"
            )


async def episode(graph: Graph, agent: Agent) -> float:
    engine = engine_for({"a": agent}, policy_of(graph, [Member("a")]))
    start = time.process_time()
    done = await engine.run("e", PROBLEM, Key(1))
    spent = time.process_time() - start
    assert len(done.turns) == len(graph.nodes)
    return spent


def make() -> None:
    roster = [Member("a"), Member("b"), Member("c")]
    small = Graph(
        nodes={name: Node(agent) for name, agent in zip("vwxyz", "abcab", strict=True)},
        edges=[Edge(a, b) for a, b in ("vw", "vx", "wy", "xy", "yz")],
    )
    for graph, times in ((small, 500), (layers(1000, 50), 1)):
        start = time.process_time()
        for _ in range(times):
            policy_of(graph, roster)
        spent = (time.process_time() - start) / times
        print(f"make    {len(graph.nodes):5} nodes {spent * 1e6:9.0f} us")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["nodes", "make"]
    for name in wanted:
        {"nodes": nodes, "make": make}[name]()
