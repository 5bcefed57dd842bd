"""What a learned team did on the problems that it was judged on."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrion import Episode, Output, Trajectory, Turn, Usage, replace
from orchestrion._cli.display import conduct_lines, training_lines
from orchestrion._cli.run import _conclude
from orchestrion.runs import RunStore
from tests.core.store_support import episode


def judged(number: int, category: str, *calls: str) -> Episode:
    """An episode in which these agents were called, as "agent" or "agent:option"."""
    turns = []
    for i, name in enumerate(calls):
        agent, _, option = name.partition(":")
        turns.append(Turn(i, agent, option or None, Output("x", usage=Usage(1))))
    one = episode(f"learned/{number}")
    problem = replace(one.problem, id=str(number), category=category)
    return replace(one, problem=problem, trajectory=Trajectory(turns))


def test_a_report_says_whom_the_team_called_by_category(tmp_path: Path) -> None:
    episodes = [
        *(judged(n, "refunds", "clerk", "clerk", "boss:brief") for n in range(3)),
        judged(3, "refunds"),
        *(judged(n, "orders", "clerk") for n in range(4, 8)),
    ]
    with RunStore.create(tmp_path / "run", "", {"seed": 1}) as store:
        store.save_evaluation("learned", {}, episodes)
        assert conduct_lines(store) == [
            "",
            "what learned did, by category:",
            "  orders   100% clerk",
            "  refunds  75% clerk x 2 > boss:brief; 25% nobody",
        ]


def test_nothing_is_said_without_episodes_and_long_orders_are_cut(
    tmp_path: Path,
) -> None:
    with RunStore.create(tmp_path / "run", "", {"seed": 1}) as store:
        assert conduct_lines(store) == []
        store.save_evaluation("learned", {}, [judged(0, "", *"abcabcabc")])
        assert conduct_lines(store)[1:] == [
            "what learned did:",
            "  100% a > b > c > a > b > c > ... (9 calls)",
        ]


def test_every_frequent_order_has_its_share_and_the_others_are_summed(tmp_path: Path) -> None:
    calls = ["a"] * 8 + ["b"] * 5 + ["c"] * 3 + ["d"] * 2 + ["e", "f"]
    episodes = [judged(n, "", name) for n, name in enumerate(calls)]
    with RunStore.create(tmp_path / "run", "", {"seed": 1}) as store:
        store.save_evaluation("learned", {}, episodes)
        told = conduct_lines(store)[-1]
    assert told == "  40% a; 25% b; 15% c; 10% d; 10% in other ways"


def test_metrics_are_shown_in_words(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", "", {"seed": 1}) as store:
        metrics = {"excluded": 2.0, "tree_weight": 0.5, "kl": 0.1}
        store.commit_iteration(0, 0, [episode("0/0")], metrics, None)
        told = " ".join(" ".join(training_lines(store)).split())
    assert "episodes without a reward 2 kl 0.1 weight of the trees (0 to 1) 0.5" in told


@pytest.mark.parametrize(("turns", "why"), [(0, "no agent was asked"), (1, "no turn has a text")])
def test_an_empty_answer_says_whether_an_agent_was_asked(
    turns: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trajectory = Trajectory([Turn(0, "a", None, Output(""))][:turns])
    _conclude(replace(judged(0, ""), trajectory=trajectory, observation=None), None, False)
    assert capsys.readouterr().err.startswith(f"answer: none, as {why}\n")
