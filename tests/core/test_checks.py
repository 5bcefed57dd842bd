"""What the run makes of what plugins return."""

from __future__ import annotations

from fractions import Fraction

import pytest

from orchestrion import Episode, Problem, Reward, RunError, Scores, Trajectory
from orchestrion._engine.checks import judged, merged_metrics


def test_metrics_are_python_numbers_whatever_a_trainer_reports() -> None:
    reported = {"flag": True, "loss": Fraction(1, 2), "count": 3, "large": 1 << 60}
    metrics = merged_metrics({"reward": 1.0}, reported, "trainer")
    assert metrics == {"flag": 1.0, "loss": 0.5, "count": 3, "large": 2.0**60, "reward": 1.0}
    assert {name: type(value) for name, value in metrics.items()} == {
        "flag": float,
        "loss": float,
        "count": int,
        "large": float,
        "reward": float,
    }


def test_a_trainer_does_not_replace_a_metric_of_core() -> None:
    assert merged_metrics({"reward": 1.0}, {"reward": 2.0}, "trainer") == {"reward": 1.0}


@pytest.mark.parametrize("value", ["1", b"1", None, float("nan"), 1e999])
def test_a_metric_that_is_not_a_finite_number_is_refused(value: object) -> None:
    with pytest.raises(RunError, match="trainer: metric 'x' must be a finite number"):
        merged_metrics({}, {"x": value}, "trainer")


def test_a_part_whose_name_no_file_can_hold_is_refused() -> None:
    episode, parts = Episode("0", Problem("p"), Trajectory()), {"\ud800": 1.0}
    with pytest.raises(TypeError, match=r"Scores\.parts must have texts for names, in UTF-8"):
        judged(episode, Scores(1.0, parts=parts), None, ())
    with pytest.raises(TypeError, match=r"Reward\.parts must have texts for names, in UTF-8"):
        judged(episode, Scores(1.0), Reward(1.0, parts=parts), ())
