"""Who acted after whom: episodes folded into one graph of agents, its figures, its drawings."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_dag.drawing import followers, following, names

from orchestrion import fold
from orchestrion._activations import Waves
from orchestrion.cli import main


def path(text: str) -> Waves:
    """One agent a decision."""
    return tuple((name,) for name in text)


# ------------------------------------------------------------------------------ figures


@given(st.lists(st.text("abc", max_size=9), max_size=6))
def test_the_shares_after_an_agent_sum_to_one(acted: list[str]) -> None:
    found = fold(map(path, acted))
    steps = sum(len(list(pairwise(one))) for one in acted)
    assert sum(found.edges.values()) == steps
    drawn = followers(found)
    for name in names(found)[:-1]:
        assert sum(one.share for one in drawn if one.source == name) == pytest.approx(1)


# ------------------------------------------------------------------------------ drawings


FOUND = fold([path("aba")] * 18 + [path("ac"), path("aa")])


def test_rare_arrows_are_left_out_and_counted() -> None:
    kept = followers(FOUND, 0.1)
    assert [(pair.source, pair.target, round(pair.share, 2)) for pair in kept] == [
        ("start", "a", 1),
        ("a", "end", 0.49),
        ("a", "b", 0.46),
        ("b", "a", 1),
        ("c", "end", 1),
    ]
    assert "2 rarer arrows are left out" in following(FOUND, 0.1)
    assert "rarer" not in following(FOUND)


def test_mermaid_shows_shares_and_widths() -> None:
    lines = following(FOUND, 0.1).splitlines()
    assert lines[1] == "  %% 20 episodes with 2.90 turns on average"
    assert '  n1["a<br/>1.95 turns"]' in lines
    assert '  n1 -->|"46%"| n2' in lines
    assert lines[-1] == "  linkStyle 4 stroke-width:4.0px"


def test_dot_is_read_by_graphviz() -> None:
    text = following(FOUND, form="dot")
    assert 'n1 -> n1 [label="3%"' in text
    assert "different steps from agent to agent" in text
    if dot := shutil.which("dot"):
        subprocess.run([dot, "-Tsvg"], input=text, text=True, check=True, capture_output=True)


# ------------------------------------------------------------------------------ the command

CONFIG = """\
seed: 5
task: {use: relay, train: 16, test: 8}
agents: {planner: {use: bench-agent}, coder_l: {use: bench-agent}, stop: {use: terminator}}
policy: {use: neural, hidden: [8]}
reward: {use: outcome-minus-cost, cost_weight: 0.1}
trainer: {use: reinforce, iterations: 2, episodes: 8}
limits: {turns: 6}
"""


def call(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    printed = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, printed.out, printed.err


def test_a_run_whose_policy_has_no_graph_is_drawn_by_its_episodes(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("crew.yaml").write_text(CONFIG, encoding="utf-8")
    assert call(capsys, "train", "crew.yaml")[0] == 0
    Path("bare.yaml").write_text(CONFIG + "run: {retention: episodes}\n", encoding="utf-8")
    assert call(capsys, "train", "bare.yaml", "-o", "trainer.iterations=1")[0] == 0
    code, _, err = call(capsys, "graph", "runs/bare-1")
    assert code == 2
    assert "kept no turns (run.retention: episodes)" in err
    code, learned, _ = call(capsys, "graph", "runs/crew-1")
    assert code == 0
    assert "%% 8 episodes" in learned
    assert '"planner<br/>' in learned
    _, late, _ = call(capsys, "graph", "runs/crew-1", "--of", "train")
    assert "%% 8 episodes" in late, "the last of two iterations"
    code, out, err = call(
        capsys, "graph", "runs/crew-1", "--turns", "--format", "dot", "--output", "crew.dot"
    )
    assert (code, out) == (0, "")
    assert "dot of 8 episodes of learned" in err
    assert Path("crew.dot").read_text(encoding="utf-8").startswith("digraph {")
    code, _, err = call(capsys, "graph", "runs/crew-1", "--of", "nobody")
    assert code == 2
    assert "no episodes of 'nobody'" in err
    code, _, err = call(capsys, "graph", "runs/crew-1", "--policy", "agents.crew.policy")
    assert code == 2
    assert "no fixed graph to draw" in err
    code, _, err = call(capsys, "graph", "runs/crew-1", "--front")
    assert code == 2
    assert "evolution" in err
    code, _, err = call(capsys, "graph", "crew.yaml", "--turns")
    assert code == 2
    assert "name one" in err
