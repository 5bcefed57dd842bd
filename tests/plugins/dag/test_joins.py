"""Joins, branches, failures: what fires, what is skipped, what is read. The three known traps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from orchestrion_dag import Graph, Node, node_states, policy_of
from orchestrion_dag.dag import Dag

from orchestrion import (
    Agent,
    Calls,
    Episode,
    Key,
    Member,
    Observation,
    Output,
    Problem,
    Situation,
    Status,
    Step,
    Trajectory,
    UsageError,
    View,
)
from orchestrion.testing import ListTask, ScriptedAgent, engine_for
from tests.plugins.dag.support import PROBLEM, Saying, Timed, Try, run, simulated

BROKEN = Saying(fails=True)


def said(episode: Episode) -> list[str]:
    return [turn.output.content for turn in episode.turns if turn.status == "completed"]


def status(graph: Graph, episode: Episode) -> dict[str, str]:
    states = node_states(graph, episode.trajectory, episode.problem)
    return {name: state.status for name, state in states.items()}


def timed(seconds: float, fails: bool = False) -> Timed:
    return Timed([Try(seconds, fails, 0.5)] * 4)


def play(graph: Graph, agents: dict[str, Agent]) -> tuple[Episode, float]:
    async def main() -> Episode:
        policy = policy_of(graph, [Member(name) for name in agents])
        engine = engine_for(agents, policy)
        return await engine.run("e", PROBLEM, Key(1))

    return simulated(main())


# ------------------------------------------------------------------------------ the three traps


def test_trap_late_sibling_a_join_that_fired_does_not_fire_again() -> None:
    graph = Graph(
        nodes={"join": Node(join="any")},
        edges=["start -> fast, slow", "fast, slow -> join", "join -> last"],
    )
    agents: dict[str, Agent] = {
        "fast": timed(1),
        "slow": timed(3),
        "join": timed(1),
        "last": timed(4),  # so that the slow sibling arrives while it runs
    }
    episode, seconds = play(graph, agents)
    assert [turn.agent for turn in episode.turns] == ["fast", "slow", "join", "last"]
    assert episode.turns[2].reads == (0,), "the winner alone is read"
    assert [turn.status for turn in episode.turns] == ["completed"] * 4
    assert seconds == 6


def test_trap_skipped_branch_a_join_behind_it_still_fires() -> None:
    graph = Graph(
        edges=[
            "ask -> easy when data.kind == 'easy'",
            "ask -> hard otherwise",
            "hard -> check",
            "easy, check -> answer",
        ]
    )
    episode = run(graph, {"ask": Saying({"kind": "easy"})})
    assert said(episode) == ["ask()", "easy(ask())", "answer(easy(ask()))"]
    assert status(graph, episode) == {
        "ask": "succeeded",
        "easy": "succeeded",
        "hard": "skipped",
        "check": "skipped",
        "answer": "succeeded",
    }


def test_trap_cycle_resume_a_loop_cut_in_the_middle_goes_on_where_it_was() -> None:
    graph = Graph(
        chain="draft -> polish -> publish",
        nodes={"polish": Node(body=Graph(chain="review -> revise"), max=3)},
    )
    whole = run(graph)
    arrived = list(reversed(list(whole.trajectory.backward())))
    assert len(arrived) == 8
    roster = [Member(name) for name in ("draft", "review", "revise", "publish")]
    for cut in range(1, len(arrived)):
        # A fresh policy, as after a restart, is asked about the first turns alone.
        policy = policy_of(graph, roster)
        [decision] = policy.decide([Situation(PROBLEM, Trajectory(arrived[:cut]))], [Key(0)])
        [one] = decision.start
        then = arrived[cut]
        assert (one.agent, one.index, one.reads) == (then.agent, then.index, then.reads)


# ------------------------------------------------------------------------------ branches


def test_the_beginning_can_branch_on_the_problem() -> None:
    graph = Graph(
        edges=["start -> a when problem.category == 'easy'", "start -> b otherwise", "a, b -> c"]
    )
    for category, after in (("easy", "ac"), ("hard", "bc")):
        episode = run(graph, problem=Problem("p", category=category))
        assert "".join(turn.agent for turn in episode.turns) == after


def test_conditions_may_look_at_every_node_before_them() -> None:
    graph = Graph(edges=["a -> b", "b -> c when a.data.ok and b.status == 'succeeded'"])
    assert len(run(graph, {"a": Saying({"ok": True})}).turns) == 3


def test_a_graph_whose_outputs_are_all_skipped_fails_with_an_error() -> None:
    episode = run(Graph(edges=["a -> b when data.ok"]), {"a": Saying({"ok": False})})
    assert episode.status is Status.FAILED
    assert episode.error == "no output was reached: b skipped (no edge to it was taken)"


# ------------------------------------------------------------------------------ failures


def test_an_unhandled_failure_ends_the_graph_and_cancels_the_others() -> None:
    graph = Graph(edges=["a, b -> c"])
    episode, seconds = play(graph, {"a": timed(1, fails=True), "b": timed(9), "c": timed(1)})
    assert seconds == 1
    assert episode.status is Status.FAILED
    assert episode.error.startswith("node 'a' failed: RuntimeError: it broke (support.py:")
    assert [turn.status for turn in episode.turns] == ["failed", "cancelled"]
    assert not episode.success


@pytest.mark.parametrize("on_error", ["fail", "skip", "continue"])
def test_a_failure_that_an_edge_handles_does_not_trigger_on_error(on_error: Any) -> None:
    graph = Graph(nodes={"a": Node(on_error=on_error)}, edges=["a, b -> j", "a -> h on failure"])
    assert status(graph, run(graph, {"a": BROKEN}))["j"] == "succeeded"


def test_the_target_of_an_edge_on_failure_reads_the_inputs_of_the_failed_node() -> None:
    graph = Graph(edges=["a -> b", "b -> c", "b -> rescue on failure", "c, rescue -> d"])
    episode = run(graph, {"b": BROKEN})
    assert said(episode) == ["a()", "rescue(a())", "d(rescue(a()))"]
    assert said(run(graph))[-1] == "d(c(b(a())))"


def test_a_failed_try_is_repeated_on_a_turn_of_its_own_then_the_fallback_runs() -> None:
    graph = Graph(nodes={"b": Node(retries=1, fallback="spare")}, edges=["a -> b -> c"])
    episode = run(graph, {"b": BROKEN})
    assert [(turn.agent, turn.status) for turn in episode.turns] == [
        ("a", "completed"),
        ("b", "failed"),
        ("b", "failed"),
        ("spare", "completed"),
        ("c", "completed"),
    ]
    assert said(episode)[-1] == "c(spare(a()))"


def test_retries_draw_anew() -> None:
    class Lucky(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            if key.uniform() < 0.9:
                raise RuntimeError("unlucky")
            return Output("lucky")

    episode = run(Graph(nodes={"a": Node(retries=40)}, chain="a"), {"a": Lucky()})
    assert episode.status is Status.COMPLETED
    assert len(episode.turns) > 1


def test_a_try_that_takes_too_long_is_a_failed_one() -> None:
    graph = Graph(nodes={"a": Node(timeout=2, fallback="spare")}, chain="a")
    episode, seconds = play(graph, {"a": timed(60), "spare": timed(1)})
    assert seconds == pytest.approx(3)
    assert episode.turns[0].error == "no result within 2 s"


def test_an_output_of_another_type_than_declared_is_a_failure() -> None:
    graph = Graph(nodes={"a": Node(output={"score": "number"})}, chain="a -> b")
    episode = run(graph, {"a": Saying({"score": "high"})})
    assert episode.error == "node 'a' failed: data.score: expected number, got text"
    assert run(graph, {"a": Saying({"score": 1})}).status is Status.COMPLETED


# ------------------------------------------------------------------------------ the rest


def test_a_node_is_one_agent_in_one_place_and_agents_may_have_many() -> None:
    graph = Graph(nodes={"first": "a", "second": "a"}, edges=["first -> second"])
    assert said(run(graph)) == ["a()", "a(a())"]
    assert said(run(Graph(chain="a -> b -> a"))) == ["a()", "b(a())", "a(b(a()))"]


def test_random_draws_belong_to_the_node_not_to_the_order_of_arrival() -> None:
    class Drawing(Agent):
        async def act(self, view: View, key: Key, calls: Calls) -> Output:
            return Output(str(key.uniform()))

    graph = Graph(nodes={"x": "d", "y": "d"}, edges=["a -> x", "b -> y", "x, y -> c"])
    one, _ = play(graph, {"a": timed(1), "b": timed(2), "c": timed(1), "d": Drawing()})
    two, _ = play(graph, {"a": timed(2), "b": timed(1), "c": timed(1), "d": Drawing()})
    draws = [[t.output.content for t in one.turns if t.agent == "d"] for one in (one, two)]
    assert draws[0] == draws[1]
    assert len(set(draws[0])) == 2


def test_a_node_that_reuses_takes_the_result_of_an_equal_one() -> None:
    agent = ScriptedAgent([Output("once")])
    graph = Graph(
        nodes={"x": Node("s", reuse=True), "y": Node("s", reuse=True), "z": Node("s")},
        edges=["a -> x, y, z", "x, y, z -> b"],
    )
    episode = run(graph, {"s": agent})
    assert len(agent.views) == 2
    assert said(episode)[-1] == "b(once,once,once)"


def test_a_blocked_node_is_skipped_also_by_a_rebuilt_machine() -> None:
    class Blocking(ListTask):
        def start(self, problem: Problem, key: Key) -> Step:
            return Step(None, Observation(blocked=frozenset({"b"})))

    async def main() -> Episode:
        graph = Graph(chain="a -> b -> c", edges=["a -> c"])
        agents = {name: Saying() for name in "abc"}
        policy = policy_of(graph, [Member(name) for name in agents])
        engine = engine_for(agents, policy, Blocking())
        episode = await engine.run("e", PROBLEM, Key(1))
        fresh = policy_of(graph, [Member(name) for name in agents])
        [decision] = fresh.decide([Situation(PROBLEM, episode.trajectory)], [Key(1)])
        assert decision.stop
        assert not decision.error
        return episode

    assert said(asyncio.run(main())) == ["a()", "c(a())"]


def test_episodes_of_one_policy_do_not_touch_each_other() -> None:
    graph = Graph(edges=["a -> b when problem.id == '1'", "a -> c otherwise"])
    agents = {name: Saying() for name in "abc"}

    async def main() -> list[Episode]:
        engine = engine_for(agents, policy_of(graph, [Member(name) for name in agents]))
        return await asyncio.gather(
            *(engine.run(str(i), Problem(str(i % 2)), Key(i)) for i in range(20))
        )

    for i, episode in enumerate(asyncio.run(main())):
        assert episode.turns[1].agent == ("b" if i % 2 else "c")


def test_agents_that_are_not_in_the_team_are_named_with_their_place() -> None:
    from orchestrion import OpenContext

    async def main() -> None:
        context = OpenContext("policy", Key(0), (Member("critic"), Member("coder", ("x", "y"))))
        graph = Dag(nodes={"loop": Node(body=Graph(chain="critc -> coder"))})
        async with graph.open(context):
            pass

    with pytest.raises(UsageError) as caught:
        asyncio.run(main())
    text = str(caught.value)
    assert (
        "policy: nodes.loop.body.nodes.critc.agent: no agent 'critc' in the team; did you" in text
    )
    assert "nodes.loop.body.nodes.coder.agent: 'coder' needs one of its options: x, y" in text
