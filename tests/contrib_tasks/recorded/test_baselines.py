"""Fixed strategies by matrices equal what the environment does, question by question."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_recorded.baselines import (
    Matrix,
    Strategy,
    best_by_category,
    best_cascade,
    best_set,
    best_single,
    candidates,
    cross_fitted,
    describe,
    evaluate,
    evaluate_by_category,
    matrix,
    oracle,
)
from orchestrion_recorded.recording import Recording
from orchestrion_recorded.table import Table, same
from orchestrion_recorded.task import RecordedTask

from tests.contrib_tasks.recorded.support import (
    ALL_TRAIN,
    MODELS,
    after,
    judged,
    opened,
    row,
    table,
    tables,
)

VOTES = st.sampled_from(["plurality", "weighted"])
WEIGHTS = st.sampled_from([0.0, 0.1, 0.5, 2.0])
STRATEGIES = [
    Strategy(first, agree, then)
    for size in range(4)
    for first in combinations(range(3), size)
    for then in (None, *(m for m in range(3) if m not in first))
    for agree in (range(size + 2) if then is not None else [0])
]


def data_of(of: Table, vote: str) -> Matrix:
    settings = RecordedTask(split=ALL_TRAIN, vote=vote)  # type: ignore[arg-type]
    return matrix(opened(of, settings), "train")


def played(task: Recording, name: str, strategy: Strategy) -> tuple[float, float]:
    """A strategy by the environment: was it right, and what did it cost?"""
    case = task.cases[name]
    first = [m for m in strategy.first if MODELS[m] in case.row.answers]
    asked = list(first)
    said = [case.row.answers[MODELS[m]].answer for m in first]
    counts = Counter(same(answer) for answer in said if answer is not None)
    then = strategy.then
    goes = then is not None and max(counts.values(), default=0) < strategy.agree
    if goes and then is not None and MODELS[then] in case.row.answers:
        asked.append(then)
    right = judged(task, name, after(task, name, [MODELS[m] for m in asked])).success
    return float(right), sum(case.costs[m] for m in asked)


@settings(max_examples=25)
@given(tables(), VOTES, st.sampled_from(STRATEGIES))
def test_a_strategy_is_worth_what_playing_it_gives(
    of: Table, vote: str, strategy: Strategy
) -> None:
    task = opened(of, RecordedTask(split=ALL_TRAIN, vote=vote))  # type: ignore[arg-type]
    found = evaluate(matrix(task, "train"), strategy)
    want = [played(task, one.id, strategy) for one in of.rows]
    assert list(found.correct) == [right for right, _ in want]
    assert list(found.cost) == pytest.approx([cost for _, cost in want])


@settings(max_examples=30)
@given(tables(), VOTES, WEIGHTS)
def test_searches_find_the_best_of_all_and_nothing_beats_the_oracle(
    of: Table, vote: str, weight: float
) -> None:
    data = data_of(of, vote)
    rewards = {strategy: evaluate(data, strategy).reward(weight) for strategy in STRATEGIES}
    means = {strategy: float(reward.mean()) for strategy, reward in rewards.items()}
    best = max(mean for strategy, mean in means.items() if len(strategy.first) <= 2)
    assert means[best_cascade(data, weight, 2)] == pytest.approx(best)
    sets = {strategy: mean for strategy, mean in means.items() if strategy.then is None}
    assert sets[best_set(data, weight, beam=8)] == pytest.approx(max(sets.values()))
    alone = max(mean for strategy, mean in sets.items() if len(strategy.first) == 1)
    assert sets[best_single(data, weight)] == pytest.approx(alone)
    above = oracle(data, weight).reward(weight) - np.array(list(rewards.values()))
    assert np.all(above >= -1e-12)


@settings(max_examples=20)
@given(tables(), VOTES)
def test_every_candidate_has_the_mean_that_evaluating_it_gives(of: Table, vote: str) -> None:
    data = data_of(of, vote)
    found = candidates(data, 3)
    assert len(set(found.strategies)) == len(found.strategies) == 1 + 7 + 3 * 2 * 2 + 3 * 1 * 3
    for one, accuracy, cost in zip(found.strategies, found.accuracy, found.cost, strict=True):
        result = evaluate(data, one)
        assert accuracy == pytest.approx(result.correct.mean())
        assert cost == pytest.approx(result.cost.mean())


def test_the_oracle_pays_the_cheapest_that_is_right_if_it_is_worth_it() -> None:
    rows = (row("a", "A", ("A", "A", "A")), row("b", "A", ("B", "B", "A")))
    data = matrix(opened(table(*rows)), "train")
    assert oracle(data, 0.5).reward(0.5).tolist() == [1 - 0.5 / 8, 0.5]
    assert oracle(data, 2.0).reward(2.0).tolist() == [0.75, 0.0]


def test_strategies_are_told_in_words() -> None:
    data = matrix(opened(table(row("a", "A", ("B", "A", "A")))), "train")
    assert describe(data, best_single(data, 1.0)) == "middle"
    assert describe(data, Strategy(())) == "nobody"
    assert describe(data, Strategy((0, 1), 2, 2)) == "cheap + middle; unless 2 agree: dear"


def test_votes_are_fitted_on_other_questions_than_the_one_at_hand() -> None:
    # "cheap" is right on every fifth question, which are one part of five, and on some others.
    rows = [row(f"q{i}", "A", ("A" if i % 5 in (0, 2) else "B", "A", "C")) for i in range(50)]
    task = opened(table(*rows))
    data = matrix(task, "train")
    fitted = cross_fitted(task, data)
    for i in range(50):
        rest = [other for j, other in enumerate(rows) if j % 5 != i % 5]
        assert fitted.votes[i].tolist() == opened(table(*rest)).votes[0]
    assert fitted.votes[0, 0] < data.votes[0, 0] < fitted.votes[1, 0]
    assert (fitted.right == data.right).all()


def test_a_look_up_by_category_asks_each_category_s_own_model() -> None:
    law = [row(f"l{i}", "A", ("A", "B", "B"), "law") for i in range(40)]
    art = [row(f"a{i}", "A", ("B", "B", "A"), "art") for i in range(40)]
    rare = [row("r", "A", ("B", "A", "B"), "rare")]
    data = matrix(opened(table(*law, *art, *rare)), "train")
    # One question says little: its category goes by what is best over all.
    shrunk = best_by_category(data, 0.1)
    assert shrunk["rare"] == shrunk[""] == candidates(data, 1).best(0.1)
    chosen = best_by_category(data, 0.1, shrinkage=0.0)
    assert (chosen["law"], chosen["art"]) == (Strategy((0,)), Strategy((2,)))
    result = evaluate_by_category(data, chosen)
    assert result.correct[:80].all()
    assert result.cost[:80].tolist() == pytest.approx([1 / 8] * 40 + [1.0] * 40)


def test_a_look_up_of_cascades_asks_two_and_a_third_where_one_and_another_do_not_do() -> None:
    # Two that agree are right, and a tie goes to A, which is wrong: then the third decides.
    plural = RecordedTask(split=ALL_TRAIN, vote="plurality")
    both = [row(f"b{i}", "B", ("B", "B", "A"), "law") for i in range(20)]
    first = [row(f"f{i}", "B", ("B", "A", "B"), "law") for i in range(20)]
    second = [row(f"s{i}", "B", ("A", "B", "B"), "law") for i in range(20)]
    data = matrix(opened(table(*both, *first, *second), plural), "train")
    narrow = best_by_category(data, 0.01, shrinkage=0.0)
    wide = best_by_category(data, 0.01, shrinkage=0.0, limit=2)
    assert evaluate_by_category(data, narrow).correct.mean() < 1
    assert len(wide["law"].first) == 2
    assert wide["law"].then is not None
    assert evaluate_by_category(data, wide).correct.all()
