"""Relay's best chains as graphs: the benchmark's exact value of each is that of the chain."""

from __future__ import annotations

from itertools import pairwise

import pytest
from orchestrion_dag import Graph, Node, policy_of
from orchestrion_dag.dag import SequentialPolicy
from orchestrion_orchestration_bench.process import Chain, best_chain
from orchestrion_orchestration_bench.regret import RegretReport, regret
from orchestrion_orchestration_bench.relay import Relay
from orchestrion_orchestration_bench.solved import relay_process

from orchestrion import Activation, Member

TASK = Relay()
PROCESS = relay_process(TASK)
ROSTER = [Member(name) for name in (*TASK.agents, "stop")]


def calls(chain: Chain) -> list[str]:
    return [action.row for action in chain.actions if not action.final]


def judged(graph: Graph) -> RegretReport:
    report = regret(TASK, policy_of(graph, ROSTER), ROSTER)
    assert report.sampled.method == "exact", report.note
    return report


def test_the_best_fixed_chain_in_one_line_has_the_reward_of_the_benchmark() -> None:
    chain = best_chain(PROCESS, 1.0)
    report = judged(Graph(chain=" -> ".join(calls(chain))))
    assert report.sampled.worth.value == pytest.approx(chain.value, abs=1e-12)
    assert report.sampled.worth.value == pytest.approx(0.5592, abs=5e-5)


def test_a_chain_states_its_choices_as_activations() -> None:
    policy = policy_of(Graph(chain="planner -> stop"), ROSTER)
    assert isinstance(policy, SequentialPolicy)
    assert policy.choices == (Activation("planner"), Activation("stop"), None)


def by_type(chains: dict[str, Chain]) -> Graph:
    """One branch for each type of problem."""
    nodes: dict[str, Node | str] = {}
    edges = []
    for kind, chain in chains.items():
        names = [f"{kind}-{i}" for i in range(len(calls(chain)))]
        nodes |= dict(zip(names, calls(chain), strict=True))
        edges.append(f"start -> {names[0]} when problem.category == '{kind}'")
        edges += [f"{a} -> {b}" for a, b in pairwise(names)]
    return Graph(nodes=nodes, edges=edges)


def test_a_branch_for_each_type_has_the_reward_of_the_benchmark() -> None:
    chains = {kind: best_chain(PROCESS.of(i), 1.0) for i, kind in enumerate(PROCESS.groups)}
    worth = judged(by_type(chains)).sampled.worth
    assert worth.value == pytest.approx(0.6820, abs=5e-5)
    for kind, chain in chains.items():
        assert worth.by_type[kind] == pytest.approx(chain.value, abs=1e-12)


def test_a_loop_that_looks_at_what_is_missing_beats_every_fixed_chain() -> None:
    works = {"plan": "planner", "search": "searcher", "code": "coder_l", "test": "tester"}
    body = Graph(
        nodes={**works, "review": "critic"},
        edges=[
            f"start -> {skill} when '{skill}' in observation.data.ready"
            for skill in (*works, "review")
        ],
    )
    done = "observation.progress == 1"
    graph = Graph(nodes={"work": Node(body=body, until=done, max=9)})
    report = regret(TASK, policy_of(graph, ROSTER), ROSTER, episodes=400)
    assert report.sampled.worth.value > report.chain_by_type_value + 0.1
