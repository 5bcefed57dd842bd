"""The library of habits: ranks, versions, its JSON, and files to begin with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from orchestrion_improve.habits import Habit, HabitTrial, Library, normalized, read_file

from orchestrion import UsageError

TEXT = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)
HABITS = st.builds(
    Habit,
    role=st.sampled_from(["anna", "ben"]),
    category=st.sampled_from(["any", "sums"]),
    text=TEXT,
    status=st.sampled_from(["active", "refused", "retired"]),
    effect=st.floats(-1, 1),
    interval=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    tested_on=st.builds(HabitTrial, problems=st.integers(0, 9), pairs=st.integers(0, 99)),
    round=st.integers(-1, 5),
)


def instructions_of(library: Library, role: str) -> list[str]:
    return [habit.instruction for habit in library.active(role)]


@settings(max_examples=40)
@given(st.lists(HABITS, max_size=8))
def test_a_library_reads_back_what_it_wrote(habits: list[Habit]) -> None:
    library = Library()
    for habit in habits:
        library.add(habit)
    data = json.loads(json.dumps(library.as_json()))
    again = Library.from_json(data, "here")
    assert again.as_json() == library.as_json()
    for role in ("anna", "ben"):
        assert again.active(role) == library.active(role)
        assert again.refused(role) == library.refused(role)


def test_the_best_habits_come_first_and_versions_count_by_role_and_category() -> None:
    library = Library()
    weak = library.add(Habit("anna", "any", "weak", effect=0.1))
    library.add(Habit("anna", "any", "strong", effect=0.3))
    library.add(Habit("anna", "sums", "carry", effect=0.2))
    library.add(Habit("ben", "any", "other"))
    assert instructions_of(library, "anna") == [
        "strong",
        "When the problem is about sums: carry",
        "weak",
    ]
    assert [habit.version for habit in library.habits] == [1, 2, 1, 1]
    library.put(replace(weak, status="retired"))
    assert len(instructions_of(library, "anna")) == 2
    assert [habit.text for habit in library.refused("anna")] == ["weak"]


def test_later_trials_count_instead_of_the_first_which_chose_it() -> None:
    first = Habit("anna", "any", "lucky", effect=0.4)
    once = first.after_trial(0.1, 100)
    twice = once.after_trial(0.0, 100)
    assert (first.worth, once.worth, twice.worth) == (0.4, 0.1, 0.05)
    assert first.after_trial(0.5, 0) == first


def test_spaces_and_case_do_not_make_a_habit_new() -> None:
    library = Library([Habit("anna", "any", "Check twice.", status="refused")])
    assert library.knows("anna", "any", " check   TWICE")
    assert not library.knows("anna", "sums", "check twice")
    assert normalized("A  b.") == "a b"


def test_a_plain_file_of_texts_is_enough_to_begin_with(tmp_path: Path) -> None:
    file = tmp_path / "habits.json"
    file.write_text(json.dumps({"anna": {"any": ["Check twice."], "sums": [{"text": "Carry."}]}}))
    library = read_file(file)
    assert instructions_of(library, "anna") == [
        "Check twice.",
        "When the problem is about sums: Carry.",
    ]


def test_only_habits_in_use_are_read(tmp_path: Path) -> None:
    file = tmp_path / "habits.json"
    old = [{"text": "good"}, {"text": "bad", "status": "refused", "version": 2}]
    file.write_text(json.dumps({"anna": {"any": old}}))
    assert [habit.text for habit in read_file(file).habits] == ["good"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be an object, not list"),
        ({"anna": ["x"]}, "anna: must be an object"),
        ({"anna": {"any": "x"}}, "anna.any: must be a list"),
        ({"anna": {"any": [{"text": ""}]}}, "anna.any[0].text: is empty"),
        ({"anna": {"any": [{"text": "a\nb"}]}}, "one line"),
        ({"anna": {"any": [{"text": "x" * 301}]}}, "300 is the most"),
        ({"anna": {"any": [{}]}}, "anna.any[0]: Object missing required field `text`"),
        ({"anna": {"any": [{"text": "x", "worth": 1}]}}, "unknown field `worth`"),
        ({"anna": {"any": [{"text": "x", "status": "great"}]}}, "not one of active"),
        (
            {"anna": {"any": [{"text": "x", "effect": "high"}]}},
            "Expected `float`, got `str` - at `$.effect`",
        ),
        ({"anna": {"any": [{"text": "x", "effect": float("nan")}]}}, "at `$.effect`"),
        ({"anna": {"any": [{"text": "x", "version": 0}]}}, "Expected `int` >= 1 - at `$.version`"),
        ({"anna": {"any": [{"text": "x"}, {"text": "y", "version": 1}]}}, "version 1 twice"),
        ({"anna": {"any": [{"text": "x", "status": "refused"}]}}, "has no habit that is in use"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_place(
    data: Any, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "habits.json"
    file.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=r"habits\.json") as error:
        read_file(file)
    assert message in str(error.value)


def test_a_missing_or_broken_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_file(tmp_path / "nowhere.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        read_file(tmp_path / "broken.json")
