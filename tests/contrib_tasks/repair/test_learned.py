"""The ranking of edits: before anything is learned, by counts, and fitted to what was right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_repair.features import outlooks
from orchestrion_repair.fitting import Rows, fit, rows_of, with_rates
from orchestrion_repair.learned import (
    EditModel,
    EditSituation,
    begin,
    counted,
    rank,
)
from orchestrion_repair.ranking import program
from orchestrion_repair.state import RepairState, blocked, ranking_of, target_of
from orchestrion_repair.traits import SIZE, slot
from scipy.optimize import approx_fprime

from tests.contrib_tasks.repair.support import TOTAL

WRONG = TOTAL.replace("value > 0", "value < 0")


def candidates_of(code: str, family: str) -> list[int]:
    return [one.number for one in program(code).candidates if one.family == family]


def rows(code: str, right: str, every: int = 1) -> Rows:
    """The case of the edit that gives `right`; of the others, which were not tried, a sample."""
    known = program(code)
    [good] = [edit.number for edit in known.candidates if edit.apply(code) == right]
    others = [edit.number for edit in known.candidates if edit.number != good]
    return rows_of(known, EditSituation(), [good], [], others[::every], len(others))


def test_before_anything_is_learned_it_goes_by_suspicion_and_all_kinds_are_alike() -> None:
    known = program(WRONG)
    lines = sorted({one.line for one in known.candidates})
    seen = EditSituation(suspicion=tuple((line, 0.9 if line == 4 else 0.1) for line in lines))
    ranked = rank(begin(), known, seen)
    assert ranked.order[0] == 4
    assert ranked.chances.sum() == pytest.approx(1)
    alike = rank(begin(), known, EditSituation())  # without test results, lines are alike too
    promised: dict[tuple[str, str], float] = {}
    for number, chance in zip(alike.numbers.tolist(), alike.chances.tolist(), strict=True):
        kind = known.candidates[number][1:3]
        promised[kind] = promised.get(kind, 0.0) + chance
    assert max(promised.values()) == pytest.approx(min(promised.values()))


def test_a_line_on_which_an_edit_helped_moves_up_and_so_does_an_odd_one() -> None:
    known = program(WRONG)
    suspicion = tuple((line, 0.7) for line in range(1, 7))
    last = rank(begin(), known, EditSituation(suspicion=suspicion)).order[-1]
    helped = EditSituation(suspicion=suspicion, gains=((last, 1.0),))
    odd = EditSituation(suspicion=suspicion, odd=(last,))
    assert rank(begin(), known, helped).order.index(last) <= 1
    assert rank(begin(), known, odd).order[-1] != last


def test_by_counts_an_edit_is_worth_the_rate_of_its_kind() -> None:
    known = program(WRONG)
    rates = {("comparison", ""): 0.5, ("variable", ""): 0.01}
    ranked = rank(counted(rates), known, EditSituation())
    values = [known.candidates[number].family for number in ranked.numbers.tolist()]
    number = values.count("comparison")
    assert set(values[:number]) == {"comparison"}
    assert ranked.chances[0] == pytest.approx(50 * ranked.chances[-1])


def test_what_was_right_elsewhere_comes_first_here() -> None:
    """Two programs in which `<` had to become `>`; a third of other names."""
    lessons = [
        rows(WRONG, TOTAL),
        rows("def f(a, b):\n    return a < b\n", "def f(a, b):\n    return a > b\n"),
    ]
    model = fit([(lesson.matrix, lesson) for lesson in lessons], begin(), doubt=0.1)
    code = (
        "def best(items, other):\n    if items < other:\n        return items\n    return other\n"
    )

    def place(ranking: EditModel) -> int:
        numbers = rank(ranking, program(code), EditSituation()).numbers.tolist()
        known = program(code).candidates
        return next(
            i for i, n in enumerate(numbers) if known[n].apply(code) == code.replace("<", ">")
        )

    assert place(model) == 0 < place(begin())


def test_the_fit_is_where_the_likelihood_has_no_slope() -> None:
    lesson = rows("def f(a, b):\n    return a < b\n", "def f(a, b):\n    return a > b\n")
    start = counted({("comparison", ""): 0.1, ("variable", ""): 0.01})
    matrix, right, offset = with_rates(lesson, start.rates), lesson.right, lesson.offset
    model = fit([(matrix, lesson)], start, doubt=1.0, steps=500)
    first = start.weights

    def loss(weights: np.ndarray) -> float:
        scores = matrix @ weights
        gap = np.logaddexp.reduce(scores + offset) - np.logaddexp.reduce(scores[right])
        return float(gap + 0.5 * ((weights - first) ** 2).sum())

    used = np.unique(matrix.indices)[:20]

    def of_used(values: np.ndarray) -> float:
        weights = model.weights.copy()
        weights[used] = values
        return loss(weights)

    slope = approx_fprime(model.weights[used], of_used, 1e-6)
    assert np.abs(slope).max() < 1e-3
    assert loss(model.weights) < loss(first)


def test_a_sample_stands_for_all_that_were_not_tried() -> None:
    for every in (1, 4):
        sample = rows(WRONG, TOTAL, every)
        rest = len(program(WRONG).candidates) - 1
        assert np.exp(sample.offset[~sample.right]).sum() == pytest.approx(rest)


def test_a_model_is_kept_as_text() -> None:
    model = EditModel(np.arange(SIZE) / 4, {("comparison", ""): 0.25, ("guard", "a/b"): 0.125})
    again = EditModel.from_text(model.to_text())
    assert np.array_equal(again.weights, model.weights)
    assert again.rates == model.rates
    assert EditModel.from_text(model.to_text()) is again


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("AAAA", "Expecting value"),
        ("[]", "an object with rates and weights"),
        ('{"rates": {}, "weights": "AAAA"}', f"expected {4 * SIZE} bytes, got 3"),
        (counted({("guard", ""): 2.0}).to_text(), "some rates are not between 0 and 1"),
    ],
)
def test_what_is_no_model_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        EditModel.from_text(text)


@given(st.sets(st.integers(0, 400)))
@settings(max_examples=25, deadline=None)
def test_what_was_tried_is_not_ranked_again(tried: set[int]) -> None:
    known = program(WRONG)
    ranked = rank(begin(), known, EditSituation(tried=frozenset(tried)))
    numbers = ranked.numbers.tolist()
    assert sorted(numbers) == sorted({one.number for one in known.candidates} - tried)
    lines = [line for some in ranked.regions.values() for line in some]
    assert sorted(lines) == sorted({one.line for one in known.candidates})
    assert [len(ranked.regions[name]) for name in ("top", "next")] == [1, 3]


def test_lines_on_which_nothing_changes_the_outcome_can_be_learned_to_be_avoided() -> None:
    weights = begin().weights.copy()
    weights[slot("never moved")] = -2.0
    lines = tuple((line, 0.5) for line in range(1, 7))
    tried = frozenset(one.number for one in program(WRONG).candidates if one.line == 4)
    some = frozenset(sorted(tried)[:10])
    seen = EditSituation(suspicion=lines, tried=some)
    before, after = (
        rank(begin(), program(WRONG), seen),
        rank(EditModel(weights), program(WRONG), seen),
    )
    assert after.order.index(4) > before.order.index(4)


def state_of(
    code: str, model: EditModel | None, skills: tuple[tuple[str, tuple[str, ...]], ...]
) -> RepairState:
    data = {"entry_point": "total", "visible": [], "limits": {}}
    return RepairState(target_of(data), code, skills=skills, model=model)


def test_agents_are_promising_by_what_the_ranking_says_of_their_edits() -> None:
    weights = begin().weights.copy()
    weights[slot("family delete")] = 12.0
    skills = (("cut", ("delete",)), ("swap", ("comparison", "variable")))
    state = state_of(WRONG, EditModel(weights), skills)
    found = outlooks(state)
    assert max(found, key=lambda name: found[name].outlook).startswith("cut:")
    total = sum(found[f"cut:{region}"].left for region in ("top", "next", "rest"))
    assert total == len(candidates_of(WRONG, "delete"))
    lines = ranking_of(state)
    assert not blocked(state) & {f"cut:{name}" for name, some in lines.regions.items() if some}
