"""Drawings as Mermaid and DOT, and the command that prints them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_dag import Graph, Node, to_dot, to_mermaid

from orchestrion.cli import main
from tests.plugins.dag.support import random_case

GRAPH = Graph(
    nodes={
        "review": Node(agent="critic", output={"ok": "boolean"}, retries=2, fallback="spare"),
        "polish": Node(body=Graph(chain="look -> mend"), until="look.data.ok", max=3),
        "end": Node(join="any"),
    },
    edges=[
        "start -> review",
        "review -> polish when data.ok and 1 < 2",
        "review -> end otherwise",
        "polish -> end",
    ],
)


def test_mermaid_shows_names_agents_conditions_and_bodies() -> None:
    assert to_mermaid(GRAPH) == (
        "flowchart LR\n"
        "  n1((start))\n"
        '  n2["review<br/>critic<br/>3 tries<br/>else spare"]\n'
        '  subgraph n3["polish<br/>until look.data.ok, at most 3"]\n'
        '    n4["look"]\n'
        '    n5(["mend"])\n'
        "  end\n"
        '  n6(["end<br/>any"])\n'
        "  n4 --> n5\n"
        "  n1 --> n2\n"
        '  n2 -.->|"data.ok and 1 #lt; 2"| n3\n'
        '  n2 -.->|"otherwise"| n6\n'
        "  n3 --> n6\n"
    )


def test_dot_has_a_cluster_for_each_body_and_cuts_edges_at_its_border() -> None:
    text = to_dot(GRAPH)
    assert 'subgraph cluster_n3 { label="polish\\nuntil look.data.ok, at most 3"' in text
    assert 'n2 -> n3 [label="data.ok and 1 < 2", style=dashed, lhead=cluster_n3];' in text
    assert text.count("{") == text.count("}")
    if dot := shutil.which("dot"):
        subprocess.run([dot, "-Tsvg"], input=text, text=True, check=True, capture_output=True)


# ------------------------------------------------------------------------------ the command

CONFIG = """\
task: {use: relay}
agents:
  planner: {use: bench-agent}
  coder_l: {use: bench-agent}
  tester: {use: bench-agent}
  critic: {use: bench-agent}
  team: {use: team, members: [tester, critic], policy: {use: dag, chain: tester -> critic}}
policy: {use: dag, edges: [planner -> coder_l -> team, planner -> team]}
"""


def graph(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["graph", *arguments])
    printed = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, printed.out, printed.err


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "team.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def test_the_command_draws_the_graph_that_it_is_asked_for(config: Path, capsys: Any) -> None:
    code, out, _ = graph(capsys, str(config))
    assert code == 0
    assert out.startswith("flowchart LR\n")
    assert 'subgraph n3["team"]\n    n4["tester"]\n    n5(["critic"])\n  end\n' in out
    _, out, _ = graph(capsys, str(config), "--policy", "agents.team.policy")
    assert 'n1["tester"]' in out
    _, out, _ = graph(capsys, str(config), "-o", "policy.edges=[planner -> team -> coder_l]")
    assert 'n5(["coder_l"])' in out
    target = config.with_suffix(".dot")
    code, out, _ = graph(capsys, str(config), "--format", "dot", "--output", str(target))
    assert (code, out) == (0, "")
    assert target.read_text(encoding="utf-8").startswith("digraph {")
    code, _, err = graph(capsys, str(config), "-o", "policy.edges=[planner -> team -> planner]")
    assert code == 2
    assert "planner -> team -> planner is a cycle" in err


@given(st.integers(0, 5000))
def test_every_node_and_edge_is_drawn(seed: int) -> None:
    case = random_case(seed)
    text = to_dot(case.graph)
    assert text.count("{") == text.count("}")
    assert text.count(" -> ") >= len(case.wiring.edges)
    assert all(f'label="{name}' in text for name in case.wiring.nodes)


def test_a_run_is_drawn_as_it_was_learned(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ", ".join(f"{one}: {{use: bench-agent}}" for one in ("planner", "searcher", "coder_l"))
    (tmp_path / "learn.yaml").write_text(
        f"task: {{use: relay, train: 8, test: 4}}\nagents: {{{names}}}\n"
        "policy: {use: sequence}\nreward: {use: outcome-minus-cost, cost_weight: 0.1}\n"
        "trainer: {use: best-sequence, problems: 8, beam: 2, length: 3}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["train", "learn.yaml"])
    assert ended.value.code == 0
    capsys.readouterr()
    code, out, _ = graph(capsys, "runs/learn-1")
    assert code == 0
    assert '"coder_l"' in out, "half of the problems need nothing but code"


def test_a_sequence_is_drawn_as_a_chain_and_a_policy_without_a_graph_is_refused(
    config: Path, capsys: Any
) -> None:
    dag = "{use: dag, edges: [planner -> coder_l -> team, planner -> team]}"
    config.write_text(CONFIG.replace(dag, "{use: sequence, steps: [planner, team]}"))
    _, out, _ = graph(capsys, str(config))
    assert 'n1["planner"]' in out
    config.write_text(CONFIG.replace(dag, "{use: random}"))
    code, _, err = graph(capsys, str(config), "--policy", "policy")
    assert code == 2
    assert "policy 'random' has no fixed graph to draw" in err
    assert "agents.team.policy" in err
