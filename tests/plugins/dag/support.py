"""A clock that does not wait, agents with a table of what they do, and random graphs of them."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from attrs import Factory, define, frozen
from orchestrion_dag import Edge, Graph, Node, Wiring, policy_of, validate

from orchestrion import Agent, Calls, Episode, Key, Member, Output, Problem, View
from orchestrion._engine.calls import CallPath, Recorded
from orchestrion.testing import engine_for

PROBLEM = Problem("p", "a problem", category="q")
T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Never waits: time jumps to when the next thing is due."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is not None and timeout > 0:
            self.now += timeout
        return super().select(0 if timeout is not None else None)


def simulated(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """What a coroutine gives, and how long it took by the simulated clock."""
    selector = _Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(work), selector.now
    finally:
        loop.close()


@frozen
class Saying(Agent):
    """Says its name and what it read; `data` beside it."""

    data: Any = None
    fails: bool = False

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        if self.fails:
            raise RuntimeError("it broke")
        read = ",".join(turn.output.content for turn in view.turns)
        return Output(f"{view.agent}({read})", self.data)


def run(
    graph: Graph, agents: Mapping[str, Agent] | None = None, problem: Problem = PROBLEM
) -> Episode:
    """An episode of a graph; agents that are not given say their name."""
    team: dict[str, Agent] = dict(agents or {})
    for name in _agents_of(validate(graph)):
        team.setdefault(name, Saying())

    async def episode() -> Episode:
        engine = engine_for(team, policy_of(graph, [Member(name) for name in team]))
        return await engine.run("e", problem, Key(1))

    return asyncio.run(episode())


def _agents_of(wiring: Wiring) -> list[str]:
    names: dict[str, None] = {}
    for node in wiring.nodes.values():
        if node.body is not None:
            names.update(dict.fromkeys(_agents_of(validate(node.body))))
        else:
            names.update({one: None for one in (node.agent, node.fallback) if one})
    return list(names)


class MemoryJournal:
    """Calls and arrivals, kept in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Recorded] = {}

    def get(self, key: str) -> Recorded | None:
        return self.rows.get(key)

    def put_many(self, rows: Sequence[Recorded]) -> None:
        self.rows |= {row.key: row for row in rows}


# ------------------------------------------------------------------------------------ random


@frozen
class Try:
    """What one try of a node does."""

    seconds: float
    fails: bool
    x: float


@define
class Timed(Agent):
    """Takes its time, then succeeds or fails as the table says; notes when it began."""

    tries: Sequence[Try]
    began: list[float] = Factory(list)

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        one = self.tries[len(self.began)]
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(one.seconds)
        if one.fails:
            raise RuntimeError("it broke")
        read = ",".join(turn.output.content for turn in view.turns)
        return Output(f"{view.agent}({read})", {"x": one.x})


@frozen
class Case:
    """A random graph, and what every try of every node will do."""

    graph: Graph
    wiring: Wiring
    tries: Mapping[str, Sequence[Try]]

    @property
    def races(self) -> bool:
        """Whether arrival may decide something."""
        return any(node.join in ("any", "k_of_n") for node in self.wiring.nodes.values())

    @property
    def may_stop_early(self) -> bool:
        return any(node.on_error == "fail" for node in self.wiring.nodes.values())

    def agents(self) -> dict[str, Timed]:
        """Agents for one episode; the fallback of n3 is s3."""
        found: dict[str, Timed] = {}
        for name, tries in self.tries.items():
            count = self.wiring.nodes[name].retries + 1
            found[name] = Timed(tries[:count])
            found[f"s{name[1:]}"] = Timed(tries[count:])
        return found

    def play(
        self, calls: CallPath | None = None, agents: Mapping[str, Agent] | None = None
    ) -> tuple[Episode, float, Mapping[str, Agent]]:
        """An episode, how long it took by the simulated clock, and the agents."""
        team = agents or self.agents()

        async def main() -> Episode:
            policy = policy_of(self.graph, [Member(name) for name in team])
            engine = engine_for(team, policy, calls=calls)
            try:
                return await engine.run("e", PROBLEM, Key(1))
            finally:
                if calls is not None:
                    await calls.settle()  # a run does so before it commits

        episode, seconds = simulated(main())
        return episode, seconds, team

    def slower(self, seed: int) -> Case:
        """The same case, where everything takes another time."""
        random = Random(seed)
        tries = {
            name: [Try(random.uniform(0.1, 5), one.fails, one.x) for one in several]
            for name, several in self.tries.items()
        }
        return Case(self.graph, self.wiring, tries)


def random_case(seed: int, races: bool = True) -> Case:
    """A graph of up to 12 nodes with conditions, joins, failures and retries; always valid."""
    for attempt in range(1000):
        random = Random(seed * 1000 + attempt)
        graph = _random_graph(random, races)
        try:
            wiring = validate(graph)
        except ValueError:
            continue  # a join that can never fire, for instance
        tries = {
            name: [
                Try(random.uniform(0.1, 5), random.random() < 0.25, random.random())
                for _ in range(node.retries + 2)
            ]
            for name, node in wiring.nodes.items()
        }
        return Case(graph, wiring, tries)
    raise AssertionError("no valid graph in a thousand tries")


def _random_graph(random: Random, races: bool) -> Graph:
    count = random.randint(1, 12)
    arrows = [
        (f"n{source}", f"n{target}")
        for target in range(1, count)
        for source in sorted(random.sample(range(target), min(target, random.randint(0, 3))))
    ]
    into = Counter(target for _, target in arrows)
    edges: list[Edge] = []
    for name in [f"n{i}" for i in range(count)]:
        edges += _random_edges(random, name, [t for s, t in arrows if s == name])
    joins = ["all", "all", "all_done", *(["any", "k_of_n"] if races else [])]
    nodes = {}
    for i in range(count):
        name = f"n{i}"
        join: Any = random.choice(joins) if into[name] > 1 else "all"
        nodes[name] = Node(
            join=join,
            k=random.randint(1, into[name]) if join == "k_of_n" else 0,
            retries=random.choice([0, 0, 0, 1, 2]),
            fallback=f"s{i}" if random.random() < 0.1 else "",
            on_error=random.choice(["skip", "skip", "continue", "continue", "fail"]),
        )
    return Graph(nodes=nodes, edges=edges)


def _random_edges(random: Random, source: str, targets: list[str]) -> list[Edge]:
    kind = random.random()
    if len(targets) > 1 and kind < 0.4:
        first, *rest, last = targets
        return [
            Edge(source, first, when="data.x > 0.5"),
            *(Edge(source, one, when=f"data.x > 0.{random.randint(1, 9)}") for one in rest),
            Edge(source, last, otherwise=True),
        ]
    if targets and kind < 0.6:
        *rest, last = targets
        on: Any = random.choice(["failure", "done"])
        return [*(Edge(source, one) for one in rest), Edge(source, last, on=on)]
    return [Edge(source, one) for one in targets]
