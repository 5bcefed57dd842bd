"""Intervals: what a report may claim."""

from __future__ import annotations

import random
from math import isnan
from types import SimpleNamespace

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
    UsageError,
)
from orchestrion._cli.display import (
    Display,
    comparison_lines,
    cost_text,
    problem_lines,
    report_lines,
)
from orchestrion._comparison import ComparedResult, compare_outcomes
from orchestrion._report import Outcomes, compare, outcomes
from orchestrion.runs import Report, convergence, difference, estimate

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
    for seed in range(60):
        draw = random.Random(seed)
        found = estimate([draw.gauss(3.0, 1.0) for _ in range(60)], Key(seed))
        covered += found.low <= 3.0 <= found.high
    assert 53 <= covered <= 59


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_share_of_all_or_none_has_a_width_and_the_report_says_how(reward: float) -> None:
    rows = outcomes([episode(str(i), reward) for i in range(20)])
    report = compare("test", 1, {"learned": rows}, {}, Key(1))
    [found] = report.contenders
    bounds = [0.0, 0.168] if reward == 0 else [0.832, 1.0]
    assert [found.solved.low, found.solved.high] == pytest.approx(bounds, abs=1e-3)
    assert (found.reward.low, found.reward.high) == (reward, reward)
    end = "; exact where all or none are solved"
    assert end + ", each tried once (`evaluation.seeds`)" in report_lines(report, 200)[-1]
    assert any(line.startswith("held-out split 'test': ") for line in report_lines(report))
    trained = report_lines(compare("train", 1, {"learned": rows}, {}, Key(1)))
    assert any(line.startswith("training split 'train': ") for line in trained)
    several = report_lines(compare("test", 4, {"learned": rows}, {}, Key(1)), 200)
    assert several[-1].endswith(end)


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
    assert lines[0] == "by reward, learned is not ahead of base"
    assert lines[4].split()[-1] == "-"  # reward
    assert lines[8].split() == ["learned", "1.0", "0.0%", "0.0%", "-"]
    assert "reward of learned minus base: -" in lines


def episode(
    problem: str,
    reward: float | None,
    cost: float = 1.0,
    status: Status = Status.COMPLETED,
    usd: float = 0.0,
) -> Episode:
    turn = Turn(0, "a", output=Output(usage=Usage(cost=cost, usd=usd)))
    return Episode(
        f"e/{problem}",
        Problem(problem),
        Trajectory([turn]),
        status=status,
        scores=Scores(1.0, reward is not None and reward > 0),
        reward=None if reward is None else Reward(reward),
    )


def test_several_tries_of_a_problem_count_as_one_problem() -> None:
    rows = outcomes([episode("p", 1.0), episode("p", 0.0), episode("q", 1.0)])
    assert rows["p"]["reward"] == 0.5
    report = compare("test", 2, {"learned": rows}, {}, Key(1))
    assert report.problems == 2
    assert report.contenders[0].reward.mean == 0.75


def test_with_several_tries_the_report_says_how_often_one_of_k_solves_a_problem() -> None:
    rows = outcomes(
        [episode("p", reward) for reward in (1.0, 0.0, 0.0, 0.0)]
        + [episode("q", reward) for reward in (1.0, 1.0, 0.0, 0.0)]
    )
    report = compare("test", 4, {"learned": rows}, {}, Key(1))
    [found] = report.contenders
    # Of the six pairs of tries three hold p's success, and five one of q's.
    assert {k: one.mean for k, one in found.passes.items()} == {
        2: pytest.approx((3 / 6 + 5 / 6) / 2),
        4: 1.0,
    }
    assert found.solved.mean == (1 / 4 + 2 / 4) / 2
    assert any(line.split()[:1] == ["pass@2"] for line in report_lines(report))
    assert not compare("test", 1, {"learned": rows}, {}, Key(1)).contenders[0].passes


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


def report_of(**rows: list[Episode]) -> Report:
    results = {name: outcomes(episodes) for name, episodes in rows.items()}
    return compare("test", 1, results, {"learned": 2560}, Key(1))


def test_small_costs_keep_their_digits_and_every_cost_its_unit() -> None:
    dear = report_of(learned=[episode(str(i), 1.0, 0.00012 * i, usd=0.00012 * i) for i in range(9)])
    assert dear.unit == "US dollars"
    table = "\n".join(report_lines(dear))
    assert "cost (US dollars)" in table
    assert "0.000480 [0.0" in table
    own = report_of(learned=[episode("p", 1.0, 119.04, usd=0.5)])
    assert own.unit == "agents' unit"
    assert cost_text(Usage(calls=1, cost=1.0)) == "cost 1"
    assert cost_text(Usage(calls=1, usd=1.0, cost=1.0)) == "cost 1 US dollars"
    assert "119 [119, 119]" in "\n".join(report_lines(own))


def test_episodes_that_a_limit_ended_or_that_failed_have_columns() -> None:
    ends = [Status.LIMIT, Status.LIMIT, Status.LIMIT, Status.FAILED, *[Status.COMPLETED] * 6]
    report = report_of(learned=[episode(str(i), 0.0, status=end) for i, end in enumerate(ends)])
    (row,) = report.contenders
    assert [row.limit, row.failed] == pytest.approx([0.3, 0.1])
    header, line = report_lines(report)[5:7]
    assert header.split() == ["turns", "at", "limit", "failed", "trained", "on"]
    assert line.split() == ["learned", "1.0", "30.0%", "10.0%", "2560", "episodes"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_of_a_report_is_wider_than_the_terminal(width: int) -> None:
    names = ("learned", "best-sequence", "learned-order", "single-agent")
    episodes = [episode(str(i), i % 2 - 0.25, 100.0 + i) for i in range(40)]
    lines = report_lines(report_of(**dict.fromkeys(names, episodes)), width)
    assert max(map(len, lines)) <= width
    for name in names:
        assert any(line.startswith(name) for line in lines)
    assert not any(line.startswith("  solved") and "[" in line for line in lines), "no blocks"
    # Each contender has one row of results and one of how they came about, if these fit.
    rows = sum(line.startswith("learned-order  ") for line in lines)
    assert (rows == 2) == (width >= 80)


@pytest.mark.parametrize("width", [40, 80])
def test_progress_keeps_its_count_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with Display(terminal=True) as display:
        display.stage("trainer", 100, 0)
        for i in range(60):
            display.iteration(i, {"reward": 0.4812, "success": 0.6, "episodes": 64.0}, 0.5)
    (line,) = capsys.readouterr().err.splitlines()
    assert "60/100 reward  0.4812" in line
    assert len(line) <= width


def test_the_training_of_a_baseline_is_shown_with_the_time_that_it_may_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "orchestrion._cli.display.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    with Display(terminal=False) as shown:
        for episodes, clock.now in ((0, 100.0), (1, 101.0), (10, 110.0), (11, 111.0)):
            shown.training("chain", episodes, 1_300)
        shown.training("other", 0, None)
    assert capsys.readouterr().err.splitlines() == [
        "training chain first, on at most 1,300 episodes",
        "training chain: 10 of at most 1,300 episodes, ETA at most 21:30",
        "training other first",
    ]


def of(name: str, rows: Outcomes) -> ComparedResult:
    """A result on problems whose content is their id."""
    return ComparedResult(name, rows, digests={id: id for id in rows})


def test_two_results_are_compared_problem_by_problem() -> None:
    first = outcomes([episode("p", 1.0), episode("q", 0.0), episode("r", 1.0), episode("s", 1.0)])
    second = outcomes([episode("p", 1.0), episode("q", 1.0), episode("r", 0.0), episode("t", 1.0)])
    found = compare_outcomes(of("x", first), of("y", second))
    assert found.problems == 3
    assert found.better == (("r",), ("q",))
    assert found.alone == (1, 1)
    a, b, ahead = found.means["solved"]
    assert [a, b, ahead.mean] == pytest.approx([2 / 3, 2 / 3, 0.0])
    lines = comparison_lines(found)
    assert "only A solves (1): r" in lines
    assert "only B solves (1): q" in lines
    with pytest.raises(UsageError, match="no problem with the same id"):
        compare_outcomes(of("x", first), of("y", {}))


def test_equal_results_get_equal_intervals_whatever_they_are_called() -> None:
    draw = random.Random(1)
    own, other = (outcomes([episode(f"p{i}", draw.random()) for i in range(20)]) for _ in range(2))
    results = {"learned": own, "chain": other, "by-category": other}
    report = compare("test", 1, results, {}, Key(3))
    assert report.ahead["chain"] == report.ahead["by-category"]
    found = compare_outcomes(of("x", own), of("y", other))
    assert found.means["reward"][2] == report.ahead["chain"]


def test_what_limits_a_comparison_is_said() -> None:
    own, dear = (outcomes([episode("p", 1.0, usd=usd, cost=0.5)]) for usd in (0.0, 0.5))
    first = ComparedResult("x", own, seeds=1, digests={"p": "p"})
    second = ComparedResult("y", dear, seeds=3, digests={"p": "p"})
    assert (first.unit, second.unit) == ("agents' unit", "US dollars")
    found = compare_outcomes(first, second)
    assert found.notes == (
        "costs are not compared: A has agents' unit, B has US dollars",
        "A tried each problem 1 times, B 3 times",
    )
    assert ("cost" in found.means, found.several) == (False, True)


def test_a_result_that_cost_nothing_is_compared_in_the_unit_of_the_other() -> None:
    free, dear = (outcomes([episode("p", 1.0, cost=usd, usd=usd)]) for usd in (0.0, 0.5))
    for pair in ((free, dear), (dear, free)):
        found = compare_outcomes(*(of("x", rows) for rows in pair))
        assert (found.unit, found.notes) == ("US dollars", ())
        assert abs(found.means["cost"][2].mean) == 0.5
    assert compare_outcomes(of("x", free), of("y", free)).unit == "agents' unit"


def test_a_comparison_names_twenty_problems_and_counts_the_rest() -> None:
    right, wrong = (
        outcomes([episode(f"p{i:02}", reward) for i in range(25)]) for reward in (1.0, 0.0)
    )
    lines = comparison_lines(compare_outcomes(of("x", right), of("y", wrong)))
    text = " ".join(" ".join(lines).split())
    assert "only A solves (25): p00, " in text
    assert "p19, and 5 more (--json has all)" in text
    assert "p20" not in text


def test_only_the_same_problems_are_compared() -> None:
    rows = outcomes([episode("p", 1.0), episode("q", 0.0)])

    def judged(digests: str, **task: object) -> ComparedResult:
        return ComparedResult(
            "x", rows, digests=dict(zip("pq", digests, strict=False)), config={"task": task}
        )

    assert compare_outcomes(judged("12"), judged("12", test=3)).notes == ()
    partly = compare_outcomes(judged("12"), judged("13"))
    assert (partly.problems, partly.alone) == (1, (1, 1))
    assert partly.notes == ("not paired: 1 problems with the same id and other content",)
    elsewhere = compare_outcomes(judged("12", horizon=10), judged("12", horizon=6))
    assert elsewhere.notes[0].endswith(
        "the settings of their tasks differ: horizon is 10 in A and 6 in B"
    )
    with pytest.raises(
        UsageError, match=r"2 have the same id, and none .* \(.*seed is 1 in A and 2 in B\)"
    ):
        compare_outcomes(judged("12", seed=1), judged("34", seed=2))
    with pytest.raises(UsageError, match="evaluate both again"):
        compare_outcomes(judged(""), judged("12"))


def test_settings_of_the_team_that_differ_are_named() -> None:
    rows = outcomes([episode("p", 1.0)])

    def judged(run: str, says: str = "", **more: object) -> ComparedResult:
        config = {"run": {"name": run}, "agents": {"writer": {"prompt": says, **more}}}
        return ComparedResult(run, rows, digests={"p": "1"}, config=config)

    assert compare_outcomes(judged("x"), judged("y")).notes == ()
    notes = compare_outcomes(judged("x", "Be brief."), judged("y", "Be long.")).notes
    told = 'agents.writer.prompt is "Be brief." in A and "Be long." in B'
    assert notes == (f"their settings differ: {told}",)
    [many] = compare_outcomes(judged("x"), judged("y", "", **{f"s{i}": i for i in range(9)})).notes
    assert many.endswith("agents.writer.s7 is null in A and 7 in B, and 1 more")


def test_convergence_is_where_nine_tenths_of_the_rise_are_reached() -> None:
    history = [(10 * (i + 1), min(i, 50) / 50) for i in range(100)]
    reached = convergence(history, window=1)
    assert reached == 460
    assert convergence([(n, r - 7) for n, r in history], window=1) == reached


def test_a_run_that_did_not_improve_has_not_converged() -> None:
    assert convergence([]) == convergence([(1, 2.0)]) == convergence([(1, 2.0), (2, 1.0)]) == 0
    assert convergence([(1, 2.0), (2, 2.0)]) == 0


def test_a_problem_with_an_odd_id_has_one_line_in_the_table() -> None:
    row = {"solved": 1.0, "reward": 1.0, "failed": 0.0, "limit": 0.0}
    _, line = problem_lines({"learned": {"a\nb\tc\x1b": row}})
    assert line.split() == ["a\\nb\\tc\\x1b", "solved", "1.000"]
