"""Rubrics are data, and held to rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_judge.rubric import SHIPPED, Criterion, Rubric, Scale, read_rubric, shipped

from orchestrion import ConfigError, UsageError


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_rubric_says_what_both_ends_of_each_scale_mean(name: str) -> None:
    rubric = shipped(name)
    assert rubric.name == name
    assert len(rubric.criteria) >= 3
    for one in rubric.criteria:
        assert f"{one.scale.high:g}:" in one.description
        assert f"{one.scale.low:g}:" in one.description
        assert all(value.is_integer() for value in one.scale.values)


@given(st.data())
def test_full_marks_are_worth_1_the_lowest_0_and_better_scores_more(data: st.DataObject) -> None:
    sizes = st.floats(0.1, 10)
    scales = [Scale(0, 1, 0), Scale(1, 5), Scale(-3, 7, 2.5), Scale(0, 10, 0.5)]
    rubric = Rubric(
        tuple(
            Criterion(f"c{i}", "text", data.draw(sizes), data.draw(st.sampled_from(scales)))
            for i in range(data.draw(st.integers(1, 5)))
        )
    )
    best = {one.name: one.scale.high for one in rubric.criteria}
    worst = {one.name: one.scale.low for one in rubric.criteria}
    assert rubric.value(best) == pytest.approx(1)
    assert rubric.value(worst) == 0
    name = data.draw(st.sampled_from(sorted(best)))
    assert 0 <= rubric.value({**best, name: worst[name]}) < rubric.value(best) <= 1


def test_weights_count_against_each_other() -> None:
    rubric = Rubric((Criterion("a", "x", 3, Scale(1, 5)), Criterion("b", "x", 1, Scale(0, 10))))
    assert rubric.value({"a": 5, "b": 0}) == 0.75
    assert rubric.value({"a": 1, "b": 10}) == 0.25


@pytest.mark.parametrize(
    ("scale", "inside", "outside"),
    [
        (Scale(1, 5), [1, 2, 5], [0, 6, 2.5, 5.000001, float("nan"), float("inf")]),
        (Scale(0, 1, 0.1), [0, 0.1, 0.3, 0.7, 1], [0.15, 1.1, -0.1]),
        (Scale(0, 10, 0), [0, 8.513, 10], [-0.001, 10.001]),
    ],
)
def test_a_scale_has_its_steps_and_nothing_else(
    scale: Scale, inside: list[float], outside: list[float]
) -> None:
    assert [score for score in inside if not scale.has(score)] == []
    assert [score for score in outside if scale.has(score)] == []


@pytest.mark.parametrize(("low", "high", "step"), [(5, 1, 1), (1, 1, 1), (0, 1, 0.3)])
def test_a_scale_that_makes_no_sense_is_refused(low: float, high: float, step: float) -> None:
    with pytest.raises(ValueError):
        Scale(low, high, step)


def test_two_criteria_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="twice: a"):
        Rubric((Criterion("a", "x"), Criterion("a", "y")))


def test_a_rubric_in_a_file_is_read_like_one_in_a_config(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ncriteria:\n  - {name: tone, description: polite, scale: {low: 0, high: 3}}\n"
    )
    assert read_rubric(file) == Rubric((Criterion("tone", "polite", 1.0, Scale(0, 3)),), "mine")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("criteria: []", "mine.yaml:1: criteria: must"),
        ("criteria:\n  - {name: tone, descripton: x}", "did you mean 'description'"),
        ("criteria:\n  - {name: Tone, description: x}", r"criteria\[0\].name: must"),
        ("criteria:\n  - {name: a, description: x, weight: 0}", "weight"),
        ("criteria:\n  - {name: a, description: x, scale: {low: 5, high: 1}}", "above low"),
        ("criteria: x", "criteria"),
        ("- a", "mine.yaml"),
        ("", "mine.yaml"),
        ("a: [", "not valid YAML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_rubric(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.yaml cannot be read"):
        read_rubric(tmp_path / "no.yaml")
