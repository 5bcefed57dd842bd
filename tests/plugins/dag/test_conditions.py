"""The language of conditions: values, refused conditions, and that evaluation never fails."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_dag.conditions import ConditionError, compiled, parse, paths

FRAME: dict[str, Any] = {
    "data": {"score": 0.9, "ok": True, "tags": ["a", "b"], "none": None, "run-tests": {"n": 2}},
    "content": "All Good",
    "coder:fast#2": {"n": 7},
}


def value(text: str, frame: Any = FRAME) -> Any:
    return compiled(parse(text), lambda root: lambda f: f.get(root))(frame)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data.score >= 0.8", True),
        ("data.score >= 0.8 and not data.ok", False),
        ("not data.ok or data.tags[1] == 'b'", True),
        ("'a' in data.tags and 'c' not in data.tags", True),
        ("'Good' in content", True),
        ('lower(content) == "all good"', True),
        ("len(data.tags) == 2", True),
        ("[data.ok] == [true]", True),
        ("[data.ok] == [1]", False),
        ("[data.ok] in [[1]]", False),
        ("[data.run-tests, [data.ok]] == [data.run-tests, [true]]", True),
        ("data.score in [0.9, 1]", True),
        ("data.run-tests.n > 1", True),
        ("data['score'] < 1 and (data.ok or false)", True),
        ("data.score > -1.5e3", True),
        ("'it\\'s' == \"it's\"", True),
        ("null == data.none", True),
        ("data.class == 'x' or data.in == null", True),
        ("coder:fast#2.n == 007 and [1, 2,] == [1, 2]", True),
        ("  data.ok\n  and 'Good'\n  in content ", True),
    ],
)
def test_conditions_give_these_values(text: str, expected: bool) -> None:
    assert value(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "data.missing.deeper > 1",
        "data.missing[3] == 'x'",
        "data.score < 'text'",
        "data.tags > 1",
        "1 == true",
        "data.ok in content",
        "len(data.score)",
        "missing == 0",
    ],
)
def test_missing_values_and_other_types_are_false_without_an_error(text: str) -> None:
    assert not value(text)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("data.x = 1", 8, "'=' has no meaning here"),
        ("data.x ==", 10, "a value or an operator is missing before the end"),
        ("data.x == 1)", 12, "unmatched ')'"),
        ("a < b < c", 7, "compare two values at a time"),
        ("'open", 1, "a string without an end"),
        ("open('x')", 5, "no function open"),
        ("__import__('os')", 11, "no function __import__"),
        ("data.x.y()", 9, "no function of that name"),
        ("data.", 6, "a value or an operator is missing before the end"),
        ("data[x]", 6, "expected a position or a quoted key in [ ]"),
        ("lambda: 1", 7, "has no meaning"),
        ("", 1, "is missing before the end"),
        ("a b", 3, "is missing before b"),
        ("[" * 60 + "1" + "]" * 60, 52, "more than 50 levels deep"),
        ("(" * 60, 60, "was never closed"),
        ("not " * 1500, 4001, "longer than 4000 characters"),
        ("not " * 900 + "1", 205, "more than 50 levels deep"),
        ("2 ** 9", 3, "'*' has no meaning here"),
        ("9-9", 1, "only paths, constants, comparisons, len and lower"),
        ("'a' 'b'", 1, "an operator is missing between two values"),
        ("len(a, b)", 4, "no function len (there are: len, lower, of one value)"),
        ("(a or b).c", 2, "only a name can be followed by . or ["),
    ],
)
def test_unreadable_conditions_are_refused_by_column(text: str, column: int, says: str) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"column {column}: ")
    assert says in str(caught.value)


def test_attributes_of_python_are_out_of_reach() -> None:
    assert value("content.__class__") is None
    assert value("data.__class__.__mro__") is None


def test_paths_are_found_with_their_columns() -> None:
    found = [(str(path), path.column) for path in paths(parse("len(a.data.x) > 1 or b.content"))]
    assert found == [("a.data.x", 5), ("b.content", 22)]


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_with_a_column_in_it(text: str) -> None:
    try:
        expression = parse(text)
    except ConditionError as error:
        column = error.column
    else:
        compiled(expression, lambda root: lambda f: f.get(root))(FRAME)
        column = 1
    assert 1 <= column <= len(text) + 1


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    JSON_VALUES, JSON_VALUES, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"])
)
def test_comparing_any_two_values_never_fails(a: Any, b: Any, operator: str) -> None:
    frame = {"a": a, "b": b}
    assert value(f"a {operator} b", frame) in (True, False)
    assert value("len(a) == lower(b)", frame) in (True, False)
    assert value("a == b", frame) != value("a != b", frame)
