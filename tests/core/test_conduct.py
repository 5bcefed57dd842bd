"""What a learned team did on the problems that it was judged on."""

from __future__ import annotations

from pathlib import Path

from orchestrion import Episode, Output, Trajectory, Turn, Usage, replace
from orchestrion._cli.display import conduct_lines
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
            "  orders   100%  clerk",
            "  refunds  75%   clerk x 2 > boss:brief; 25% nobody",
        ]


def test_nothing_is_said_without_episodes_and_long_orders_are_cut(
    tmp_path: Path,
) -> None:
    with RunStore.create(tmp_path / "run", "", {"seed": 1}) as store:
        assert conduct_lines(store) == []
        store.save_evaluation("learned", {}, [judged(0, "", *"abcabcabc")])
        assert conduct_lines(store)[1:] == [
            "what learned did:",
            "  100%  a > b > c > a > b > c > ... (9 calls)",
        ]
