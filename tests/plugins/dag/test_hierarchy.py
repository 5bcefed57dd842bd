"""Bodies, loops, maps and nested teams: graphs inside graphs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import define, frozen
from orchestrion_basics.team import NestedTeam
from orchestrion_dag import Graph, Node, node_states, policy_of
from orchestrion_dag.each import Map

from orchestrion import (
    Agent,
    Calls,
    Episode,
    Key,
    Member,
    OpenContext,
    Output,
    Policy,
    Status,
    Usage,
    View,
)
from orchestrion.config import from_data
from orchestrion.testing import ScriptedAgent
from tests.plugins.dag.support import Saying, run

# ------------------------------------------------------------------------------ bodies and loops


def contents(episode: Episode) -> list[str]:
    return [turn.output.content for turn in episode.turns]


def scripted(*values: bool) -> ScriptedAgent:
    return ScriptedAgent([Output(f"ok={value}", {"ok": value}) for value in values])


def loop(**settings: Any) -> Graph:
    body = Graph(edges=["review -> revise"])
    return Graph(nodes={"polish": Node(body=body, **settings)}, chain="draft -> polish -> publish")


def test_a_body_is_a_graph_in_the_place_of_an_agent() -> None:
    assert contents(run(loop())) == [
        "draft()",
        "review(draft())",
        "revise(review(draft()))",
        "publish(revise(review(draft())))",
    ]


def test_a_loop_repeats_until_its_condition_holds_and_reads_its_earlier_results() -> None:
    graph = loop(until="review.data.ok", max=5)
    episode = run(graph, {"review": scripted(False, False, True)})
    assert [turn.agent for turn in episode.turns] == [
        "draft",
        *("review", "revise") * 3,
        "publish",
    ]
    draft, _, revised = episode.turns[:3]
    assert episode.turns[3].reads == (draft.index, revised.index)
    state = node_states(graph, episode.trajectory)["polish"]
    assert (state.status, state.iterations, state.capped) == ("succeeded", 3, False)


def test_reaching_the_maximum_is_a_status_that_conditions_see_and_no_failure() -> None:
    graph = Graph(
        nodes={"polish": Node(body=Graph(chain="review"), until="review.data.ok", max=2)},
        edges=["polish -> escalate when polish.capped", "polish -> publish otherwise"],
    )
    episode = run(graph, {"review": scripted(False)})
    assert [turn.agent for turn in episode.turns] == ["review", "review", "escalate"]
    assert episode.status is Status.COMPLETED
    assert node_states(graph, episode.trajectory)["polish"].capped
    episode = run(graph, {"review": scripted(False, True)})
    assert [turn.agent for turn in episode.turns] == ["review", "review", "publish"]


def test_a_loop_with_several_outputs_shows_the_data_of_the_last_in_the_graph() -> None:
    body = Graph(edges=["start -> b", "start -> c"], nodes={"c": Node(), "b": Node()})
    agents = {"b": Saying(data={"by": "b"}), "c": Saying(data={"by": "c"})}
    edges = ["loop -> good when data.by == 'b'", "loop -> bad otherwise"]
    graph = Graph(nodes={"loop": Node(body=body)}, edges=edges)
    episode = run(graph, {**agents, "good": Saying(), "bad": Saying()})
    assert [turn.agent for turn in episode.turns] == ["c", "b", "good"]
    assert len(episode.turns[-1].reads or ()) == 2


def test_loops_stand_in_loops() -> None:
    inner = Node(body=Graph(chain="b"), max=2)
    body = Graph(nodes={"inner": inner}, chain="a -> inner")
    graph = Graph(nodes={"outer": Node(body=body, max=2)}, chain="outer -> c")
    episode = run(graph)
    assert [turn.agent for turn in episode.turns] == ["a", "b", "b", "a", "b", "b", "c"]
    names = list(node_states(graph, episode.trajectory))
    assert "outer[2]/inner[1]/b" in names


def test_a_failure_in_a_body_is_the_failure_of_its_node() -> None:
    graph = loop(on_error="continue", max=2)
    graph = Graph(nodes=graph.nodes, edges=["draft -> polish -> publish", "draft -> publish"])
    episode = run(graph, {"review": Saying(fails=True)})
    assert [turn.agent for turn in episode.turns] == ["draft", "review", "publish"]
    states = node_states(graph, episode.trajectory)
    reason = "node 'polish/review' failed: RuntimeError: it broke (support.py:"
    assert states["polish"].reason.startswith(reason)
    assert states["polish[1]/revise"].status == "cancelled"


def test_a_loop_that_fails_in_its_last_run_has_no_result() -> None:
    graph = Graph(
        nodes={"loop": Node(body=Graph(chain="try"), max=2)},
        edges=["loop -> use on done when data.ok", "loop -> mourn on failure"],
    )
    episode = run(graph, {"try": Once({"ok": True}), "use": Saying(), "mourn": Saying()})
    assert [turn.agent for turn in episode.turns] == ["try", "try", "mourn"]
    assert node_states(graph, episode.trajectory)["loop"].turns == ()


def test_a_body_without_a_result_is_skipped() -> None:
    body = Graph(edges=["start -> a when problem.category == 'other'"])
    graph = Graph(nodes={"maybe": Node(body=body)}, edges=["x -> maybe -> y", "x -> y"])
    assert [turn.agent for turn in run(graph).turns] == ["x", "y"]


def test_a_run_of_a_body_with_nothing_to_do_ends_the_loop_with_the_results_so_far() -> None:
    body = Graph(edges=["start -> a when iteration == 1"])
    graph = Graph(nodes={"loop": Node(body=body, max=5)}, chain="loop -> b")
    assert contents(run(graph)) == ["a()", "b(a())"]


@define
class Once(Agent):
    """Works once, and then fails."""

    data: Any
    left: int = 1

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("not again")
        return Output("done", self.data)


@frozen
class Slow(Agent):
    """Lets others go first."""

    data: Any = None

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        for _ in range(20):
            await asyncio.sleep(0)
        return Output(f"{view.agent}()", self.data)


def test_nothing_starts_in_a_body_whose_outputs_are_decided() -> None:
    # When `slow` ends, `late` could start, and its reader has fired long before.
    body = Graph(
        nodes={"first": Node(join="any")},
        edges=[
            *("quick -> first", "slow -> late when data.go", "slow -> never when data.stop"),
            "late -> first",
        ],
    )
    graph = Graph(nodes={"body": Node(body=body), "end": Node()}, chain="body -> end")
    agents = {"slow": Slow({"go": True})}
    assert contents(run(graph, agents))[-1] == "end(first(quick()))"
    assert "late" not in {turn.agent for turn in run(graph, agents).turns}


def test_a_loop_in_a_body_that_has_ended_does_not_go_on() -> None:
    long = Node(body=Graph(chain="again"), max=50)
    body = Graph(
        nodes={"long": long, "first": Node(join="any")}, edges=["quick -> first", "long -> first"]
    )
    graph = Graph(nodes={"body": Node(body=body)}, chain="body -> end")
    episode = run(graph, {"again": Slow(), "end": Slow()})
    assert sum(turn.agent == "again" for turn in episode.turns) <= 3


def test_the_start_of_a_body_stands_for_what_its_node_reads() -> None:
    body = Graph(edges=["start -> b", "a -> b"])
    episode = run(Graph(nodes={"sub": Node(body=body)}, chain="x -> sub"))
    assert contents(episode)[-1] == "b(x(),a(x()))"


# ------------------------------------------------------------------------------ nested teams


def opened(component: Any, names: dict[str, tuple[str, ...]]) -> Agent:
    async def enter() -> Agent:
        context = OpenContext("agents.it", Key(1), names=names)
        manager = component.open(context)
        agent: Agent = await manager.__aenter__()
        return agent

    return asyncio.run(enter())


def policy(graph: Graph, *names: str) -> Policy:
    return policy_of(graph, [Member(name) for name in names])


def test_a_nested_team_reads_what_its_node_reads_and_its_turns_stand_inside() -> None:
    inner = policy(Graph(chain="b -> c"), "b", "c")
    team = opened(NestedTeam([Saying(), Saying()], inner), {"members": ("b", "c")})
    episode = run(Graph(chain="a -> team -> d"), {"team": team})
    assert contents(episode)[-1] == "d(c(a(),b(a())))"
    nested = episode.turns[1].output.inner
    assert nested is not None
    assert [turn.agent for turn in nested.turns] == ["b", "c"]


def test_a_nested_graph_that_fails_is_a_failed_turn_without_its_last_output() -> None:
    inner = policy(Graph(chain="b -> c"), "b", "c")
    team = opened(NestedTeam([Saying(), Saying(fails=True)], inner), {"members": ("b", "c")})
    graph = Graph(nodes={"team": Node(fallback="d")}, chain="a -> team")
    episode = run(graph, {"team": team})
    assert episode.turns[1].status == "failed"
    assert "node 'c' failed: RuntimeError: it broke" in episode.turns[1].error
    assert contents(episode)[-1] == "d(a())"


# ------------------------------------------------------------------------------ maps


class Upper(Agent):
    """Shouts its problem; fails at "bad", and takes longest for the first."""

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        if view.problem.text == "bad":
            raise RuntimeError("it is bad")
        for _ in range(20 - 5 * len(view.problem.text)):
            await asyncio.sleep(0)
        return Output(view.problem.text.upper(), usage=Usage(cost=1.0))


def mapped(**settings: Any) -> Agent:
    inner = policy(Graph(chain="up"), "up")
    return opened(Map([Upper()], inner, **settings), {"members": ("up",)})


def listing(*elements: Any) -> Saying:
    return Saying(list(elements))


def test_a_map_runs_a_team_on_each_element_and_keeps_their_order() -> None:
    episode = run(
        Graph(chain="list -> each -> end"), {"list": listing("a", "bb", "c"), "each": mapped()}
    )
    each = episode.turns[1].output
    assert each.data == ["A", "BB", "C"]
    assert each.content == "A\nBB\nC"
    assert each.usage.cost == 3
    assert each.inner is not None
    assert [turn.agent for turn in each.inner.turns] == ["each[0]", "each[1]", "each[2]"]
    deepest = each.inner.turns[1].output.inner
    assert deepest is not None
    assert [turn.agent for turn in deepest.turns] == ["up"]


def test_an_element_that_fails_fails_the_map_or_gives_null() -> None:
    agents = {"list": listing("a", "bad")}
    episode = run(Graph(chain="list -> each"), {**agents, "each": mapped()})
    assert "each[1]" in episode.turns[1].error
    assert episode.turns[1].usage.cost == 1, "what the others cost is charged"
    episode = run(Graph(chain="list -> each"), {**agents, "each": mapped(on_error="skip")})
    assert episode.turns[1].output.data == ["A", None]


def test_a_map_finds_its_list_by_an_expression_and_is_bounded() -> None:
    data = {"parts": ["x", "y"]}
    episode = run(
        Graph(chain="list -> each"), {"list": Saying(data), "each": mapped(over="data.parts")}
    )
    assert episode.turns[1].output.data == ["X", "Y"]
    for settings, says in (
        ({"over": "data.part"}, "'data.part' is null, not a list"),
        ({"over": "data.parts", "most": 1}, "has 2 elements, and `most` is 1"),
    ):
        episode = run(
            Graph(chain="list -> each"), {"list": Saying(data), "each": mapped(**settings)}
        )
        assert says in episode.turns[1].error
    with pytest.raises(ValueError, match="column 1: 'date' is unknown here"):
        Map([], None, over="date.x")  # type: ignore[arg-type]


def test_a_map_runs_no_more_at_once_than_it_may() -> None:
    class Counting(Agent):
        now = most = 0

        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            type(self).now += 1
            type(self).most = max(self.most, self.now)
            await asyncio.sleep(0)
            type(self).now -= 1
            return Output("x")

    inner = policy(Graph(chain="n"), "n")
    each = opened(Map([Counting()], inner, parallel=2), {"members": ("n",)})
    run(Graph(chain="list -> each"), {"list": listing(*range(7)), "each": each})
    assert Counting.most == 2


# ------------------------------------------------------------------------------ from a config


def test_graphs_teams_and_maps_are_put_together_by_a_config() -> None:
    from contextlib import AsyncExitStack

    from orchestrion._engine.calls import CallPath
    from orchestrion._engine.opening import open_components

    config = from_data(
        {
            "task": {"use": "relay"},
            "agents": {
                "split": {"use": "scripted", "lines": [{"data": ["one", "two"]}]},
                "solve": {"use": "echo", "prefix": "solved "},
                "check": {"use": "echo", "prefix": "checked "},
                "each": {
                    "use": "map",
                    "members": ["solve", "check"],
                    "policy": {"use": "dag", "chain": "solve -> check"},
                },
                "last": {"use": "echo"},
            },
            "policy": {"use": "dag", "chain": "split -> each -> last"},
        }
    )
    assert config.roster == ("agents.split", "agents.each", "agents.last")

    async def main() -> Episode:
        async with AsyncExitStack() as stack:
            opened = await open_components(config, stack, Key(1))
            engine = opened.engine(CallPath())
            return await engine.run("e", opened.runtimes["task"].problems("train")[0], Key(1))

    episode = asyncio.run(main())
    assert episode.turns[1].output.data == ["checked solved one", "checked solved two"]
    assert episode.turns[2].output.content == "checked solved one\nchecked solved two"
    assert episode.turns[1].usage.cost == 4
