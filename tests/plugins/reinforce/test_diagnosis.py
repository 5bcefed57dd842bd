"""What a run is told at its end."""

from __future__ import annotations

from orchestrion_reinforce.diagnosis import Diagnosis

from orchestrion import Decision, Episode, Problem, Reward, Trajectory
from tests.plugins.reinforce.support import ROSTER, episode


def ended(kind: str) -> Episode:
    """An episode that was ended at once."""
    stop = (Decision(stop=True),)
    return Episode("e", Problem("p", category=kind), Trajectory(), stop, reward=Reward(0))


def after(*iterations: list[Episode], entropy: float = 0.5) -> dict[str, str]:
    diagnosis = Diagnosis()
    for episodes in iterations:
        diagnosis.add(episodes, entropy)
    return Diagnosis.load(diagnosis.save()).warnings(ROSTER)


def test_a_kind_that_is_ended_at_once_and_an_agent_that_never_acted_are_named() -> None:
    solved = [episode(["a", "b"], 1.0, problem="easy") for _ in range(10)]
    told = after([*solved, *[ended("hard")] * 10])
    assert set(told) == {"given up", "never tried"}
    assert "hard" in told["given up"]
    assert "easy" not in told["given up"]
    assert told["never tried"].endswith(": c")


def test_a_good_run_has_no_warning() -> None:
    good = [episode(["a", "b", "c"], 1.0, problem="easy") for _ in range(10)]
    assert after(*[good] * 20) == {}


def test_entropy_that_was_gone_early_is_told() -> None:
    good = [episode(["a", "b", "c"], 1.0)]
    assert "settled early" in after(*[good] * 20, entropy=0.01)


def test_rewards_that_still_rise_are_told() -> None:
    rising = [[episode(["a", "b", "c"], i / 40 + 0.001 * (i % 2))] for i in range(40)]
    assert "still improving" in after(*rising)
