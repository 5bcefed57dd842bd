"""What the run makes of what plugins return."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from orchestrion import BudgetError, Episode, Problem, Reward, RunError, Scores, Trajectory
from orchestrion._engine.checks import judged, merged_metrics
from orchestrion._guards import calling
from orchestrion._manifest import changed_data, data_of, has_other_problems


def test_metrics_are_python_numbers_whatever_a_trainer_reports() -> None:
    reported = {"flag": True, "loss": Fraction(1, 2), "count": 3, "large": 1 << 60}
    metrics = merged_metrics({"reward": 1.0}, {**reported, "reward": 2.0}, "trainer")
    numbers = {"flag": 1.0, "loss": 0.5, "count": 3, "large": 2.0**60, "reward": 1.0}
    assert metrics == numbers, "and a trainer replaces no metric of core"
    assert {name: type(value) for name, value in metrics.items()} == {
        name: type(value) for name, value in numbers.items()
    }


def test_a_name_that_cannot_be_printed_is_no_name_of_a_metric() -> None:
    for name in ("a\nb", "\ud800", 3):
        with pytest.raises(RunError, match="trainer: a metric's name must be printable text"):
            merged_metrics({}, {name: 1.0}, "trainer")


def test_of_a_group_of_errors_the_first_of_ours_is_raised_or_else_the_first_is_named() -> None:
    mine, others = BudgetError("used up"), [ValueError("bug"), KeyError("x")]
    with pytest.raises(BudgetError, match="used up"), calling("trainer", "iterate(0)"):
        raise BaseExceptionGroup("some", [others[0], ExceptionGroup("inner", [others[1], mine])])
    text = r"trainer: iterate\(0\) raised ValueError: bug"
    with pytest.raises(RunError, match=text), calling("trainer", "iterate(0)"):
        raise ExceptionGroup("some", others)


def test_which_problems_are_others_than_before_is_said_split_by_split() -> None:
    def data(train: int, test: str) -> dict[str, Any]:
        files = {"train": (train, train), "test": (2, test)}
        return {
            split: {"problems": n, "digest": str(data), "content": "".join(sorted(str(data)))}
            for split, (n, data) in files.items()
        }

    before, now = data(3, "ab"), data(4, "cd")
    assert changed_data(before, before) == changed_data({}, now) == ""
    assert changed_data(before, now) == (
        "'train' had 3 problems and has 4, some of the 2 of 'test' are others"
    )
    assert has_other_problems(before, now)
    assert changed_data(before, data(3, "ba")) == (
        "'test' has the same problems in another order or with other ids"
    )
    assert not has_other_problems(before, data(3, "ba"))


def test_what_data_a_run_has_is_computed_with_one_digest_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Two:
        def problems(self, split: str) -> list[Problem]:
            return [Problem(f"{split}/{i}", "same") for i in range(2)]

    seen: list[Problem] = []

    def digest(problem: Problem) -> str:
        seen.append(problem)
        return problem.text

    monkeypatch.setattr("orchestrion._report.problem_digest", digest)
    data = data_of(Two(), "task")
    assert len(seen) == 6
    assert data["test"]["content"] == data["train"]["content"]
    assert data["test"]["digest"] != data["train"]["digest"]


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
    with pytest.raises(TypeError, match=r"Scores\.checks has something that is not text"):
        judged(episode, Scores(1.0, checks={"first": 1}), None, ())  # type: ignore[dict-item]
