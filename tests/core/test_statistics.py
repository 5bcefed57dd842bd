"""Intervals: what a report may claim."""

from __future__ import annotations

import random
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import (
    Episode,
    Key,
    Output,
    Problem,
    Reward,
    Scores,
    Status,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion.cli.display import report_lines
from orchestrion.report import compare, outcomes
from orchestrion.statistics import difference, estimate

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(numbers)
def test_the_interval_holds_the_mean_and_lies_within_the_values(values: list[float]) -> None:
    found = estimate(values, Key(1))
    assert min(values) <= found.low <= found.high <= max(values)
    assert found.count == len(values)


@given(numbers, st.randoms())
def test_the_mean_does_not_depend_on_order(values: list[float], draw: random.Random) -> None:
    shuffled = draw.sample(values, len(values))
    assert estimate(values, Key(1)).mean == estimate(shuffled, Key(1)).mean


def test_about_95_of_100_intervals_cover_the_truth() -> None:
    covered = 0
    for seed in range(200):
        draw = random.Random(seed)
        found = estimate([draw.gauss(3.0, 1.0) for _ in range(60)], Key(seed))
        covered += found.low <= 3.0 <= found.high
    assert 180 <= covered <= 199


def test_pairing_takes_the_problems_difficulty_out() -> None:
    draw = random.Random(0)
    hard = [draw.gauss(0, 10) for _ in range(50)]
    better = [value + 0.5 + draw.gauss(0, 0.1) for value in hard]
    assert difference(better, hard, Key(1)).excludes_zero
    assert not estimate(better, Key(1)).excludes_zero


def test_an_estimate_over_nothing_is_unknown_and_never_zero() -> None:
    nothing = estimate([], Key(1))
    assert nothing.count == 0
    assert isnan(nothing.mean)
    rows = outcomes([episode("p", None)])
    report = compare("test", 1, {"learned": rows, "base": rows}, {}, Key(1))
    assert report.as_json()["contenders"][0]["reward"]["mean"] is None
    lines = report_lines(report)
    assert lines[3].split()[-3:] == ["-", "1.0", "-"]  # reward, turns, trained on
    assert "reward of learned minus base: -" in lines


def episode(problem: str, reward: float | None, cost: float = 1.0) -> Episode:
    turn = Turn(0, "a", output=Output(usage=Usage(cost=cost)))
    return Episode(
        f"e/{problem}",
        Problem(problem),
        Trajectory([turn]),
        status=Status.COMPLETED,
        scores=Scores(1.0, reward is not None and reward > 0),
        reward=None if reward is None else Reward(reward),
    )


def test_several_tries_of_a_problem_count_as_one_problem() -> None:
    rows = outcomes([episode("p", 1.0), episode("p", 0.0), episode("q", 1.0)])
    assert rows["p"]["reward"] == 0.5
    report = compare("test", 2, {"learned": rows}, {}, Key(1))
    assert report.problems == 2
    assert report.contenders[0].reward.mean == 0.75


def test_a_missing_reward_is_left_out_and_counted_never_zero() -> None:
    rows = outcomes([episode("p", 1.0), episode("q", None)])
    report = compare("test", 1, {"learned": rows}, {}, Key(1))
    assert report.contenders[0].reward.mean == 1.0
    assert report.contenders[0].missing == 1
    assert any("without a reward, left out: learned 1" in line for line in report_lines(report))


def test_the_report_says_when_an_interval_includes_zero() -> None:
    same = outcomes([episode(str(i), float(i % 2)) for i in range(20)])
    better = outcomes([episode(str(i), float(i % 2) + 1) for i in range(20)])
    report = compare("test", 1, {"learned": better, "base": same}, {"learned": 640}, Key(1))
    assert report.ahead["base"].mean == pytest.approx(1.0)
    lines = "\n".join(report_lines(report))
    assert "640 episodes" in lines
    assert "reward of learned minus base: +1.000" in lines
    assert "includes 0" not in lines
    tie = compare("test", 1, {"learned": same, "base": same}, {}, Key(1))
    assert "the interval includes 0" in "\n".join(report_lines(tie))
