"""The learned ranking: it begins as the hand-made one, and learns which edits were right."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_repair.features import outlooks
from orchestrion_repair.learned import (
    Case,
    Model,
    Situation,
    begin,
    fit,
    rank,
    rows_of,
    situation_from,
    situation_json,
)
from orchestrion_repair.prior import rate
from orchestrion_repair.ranking import Program, program, propose
from orchestrion_repair.state import State, blocked, map_of, target_of
from orchestrion_repair.traits import SIZE, slot
from scipy.optimize import approx_fprime

from tests.contrib_tasks.repair.support import TOTAL

WRONG = TOTAL.replace("value > 0", "value < 0")


def candidates_of(code: str, family: str) -> list[int]:
    return [one.number for one in program(code).candidates if one.family == family]


def case(code: str, right: str) -> Case:
    """A program and the edit that gives `right`; every other one was not tried."""
    known = program(code)
    good = tuple(one.number for one in known.candidates if one.apply(code) == right)
    assert len(good) == 1
    others = tuple(one.number for one in known.candidates if one.number not in good)
    return Case(known, Situation(), good, (), others, len(others))


def test_before_anything_is_learned_it_goes_by_rates_and_suspicion() -> None:
    known = program(WRONG)
    lines = sorted({one.line for one in known.candidates})
    seen = Situation(suspicion=tuple((line, 0.9 if line == 4 else 0.1) for line in lines))
    ranked = rank(begin(), known, seen)
    assert ranked.order[0] == 4

    def weight(number: int) -> float:
        one = known.candidates[number]
        return rate(one.family, one.sub) * (0.95 if one.line == 4 else 0.15) ** 2

    values = [weight(number) for number in ranked.numbers.tolist()]
    assert values == sorted(values, reverse=True)
    assert ranked.chances.sum() == pytest.approx(1)


def test_what_was_right_elsewhere_comes_first_here() -> None:
    """Two programs in which `<` had to become `>`; a third of other names."""
    lessons = [
        case(WRONG, TOTAL),
        case("def f(a, b):\n    return a < b\n", "def f(a, b):\n    return a > b\n"),
    ]
    model = fit([rows_of(one) for one in lessons], doubt=0.1)
    code = (
        "def best(items, other):\n    if items < other:\n        return items\n    return other\n"
    )

    def place(ranking: Model) -> int:
        numbers = rank(ranking, program(code), Situation()).numbers.tolist()
        known = program(code).candidates
        return next(
            i for i, n in enumerate(numbers) if known[n].apply(code) == code.replace("<", ">")
        )

    assert place(model) == 0 < place(begin())


def test_the_fit_is_where_the_likelihood_has_no_slope() -> None:
    matrix, right, offset = rows_of(
        case("def f(a, b):\n    return a < b\n", "def f(a, b):\n    return a > b\n")
    )
    model = fit([(matrix, right, offset)], doubt=1.0, steps=500)
    first = begin().weights

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
    whole = case(WRONG, TOTAL)
    sample = Case(whole.program, whole.situation, whole.right, (), whole.others[::4], whole.rest)
    for one in (whole, sample):
        _, right, offset = rows_of(one)
        assert np.exp(offset[~right]).sum() == pytest.approx(whole.rest)


def test_a_model_is_kept_as_text() -> None:
    model = begin()
    again = Model.from_text(model.to_text())
    assert np.array_equal(again.weights, model.weights)
    assert Model.from_text(model.to_text()) is again
    with pytest.raises(ValueError, match=f"expected {4 * SIZE} bytes, got 3"):
        Model.from_text("AAAA")


def test_a_situation_survives_json() -> None:
    seen = Situation(
        ((2, 0.5),), (("too low", 1.0),), ((2, 0.5),), ((2, 1),), (3,), (), frozenset({4})
    )
    assert situation_from(json_and_back(situation_json(seen))) == seen
    assert situation_from(json_and_back(situation_json(Situation()))) == Situation()


def json_and_back(data: object) -> dict[str, object]:
    return json.loads(json.dumps(data))  # type: ignore[no-any-return]


@given(st.sets(st.integers(0, 400)))
@settings(max_examples=25, deadline=None)
def test_what_was_tried_is_not_ranked_again(tried: set[int]) -> None:
    known = program(WRONG)
    ranked = rank(begin(), known, Situation(tried=frozenset(tried)))
    numbers = ranked.numbers.tolist()
    assert sorted(numbers) == sorted({one.number for one in known.candidates} - tried)
    assert sorted(line for some in ranked.regions.values() for line in some) == sorted(known.masses)


def test_lines_on_which_nothing_changes_the_outcome_can_be_learned_to_be_avoided() -> None:
    weights = begin().weights.copy()
    weights[slot("never moved")] = -2.0
    lines = tuple((line, 0.5) for line in sorted(program(WRONG).masses))
    tried = frozenset(one.number for one in program(WRONG).candidates if one.line == 4)
    some = frozenset(sorted(tried)[:10])
    seen = Situation(suspicion=lines, tried=some)
    before, after = rank(begin(), program(WRONG), seen), rank(Model(weights), program(WRONG), seen)
    assert after.weights[4] < before.weights[4]


def state_of(
    code: str, model: Model | None, skills: tuple[tuple[str, tuple[str, ...]], ...]
) -> State:
    data = {"entry_point": "total", "visible": [], "limits": {}}
    return State(target_of(data), code, skills=skills, model=model)


def test_agents_are_promising_by_what_the_ranking_says_of_their_edits() -> None:
    weights = begin().weights.copy()
    weights[slot("family delete")] = 12.0
    skills = (("cut", ("delete",)), ("swap", ("comparison", "variable")))
    state = state_of(WRONG, Model(weights), skills)
    found = outlooks(state)
    assert max(found, key=lambda name: found[name].outlook).startswith("cut:")
    total = sum(found[f"cut:{region}"].left for region in ("top", "next", "rest"))
    assert total == len(candidates_of(WRONG, "delete"))
    lines = map_of(state)
    assert not blocked(state) & {f"cut:{name}" for name, some in lines.regions.items() if some}


def test_agents_try_edits_in_the_order_they_are_told() -> None:
    known: Program = program(WRONG)
    lines = sorted(known.masses)
    usual = propose(known, ["comparison"], lines, {}, ())
    told = [one.number for one in reversed(usual)][:3]
    found = propose(known, ["comparison"], lines, {}, {told[0]}, [*told, 999_999])
    assert [one.number for one in found[:2]] == told[1:]
    assert {one.number for one in found} == {one.number for one in usual} - {told[0]}
