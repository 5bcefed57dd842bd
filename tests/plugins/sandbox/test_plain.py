"""Values cross the wall and come back as they were; whatever else comes is refused."""

from __future__ import annotations

import asyncio
import collections
import enum
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_sandbox.compare import same
from orchestrion_sandbox.dialogue import Forged, raised, read, to_pass_on
from orchestrion_sandbox.inside.plain import (
    LARGE,
    MOST_ITEMS,
    Items,
    Malformed,
    Refused,
    decode,
    encode,
)
from orchestrion_sandbox.interface import Limits, Program, Result
from orchestrion_sandbox.judge import judge_calls, judge_statements
from orchestrion_sandbox.verdict import Case, Equal, Verdict
from orchestrion_sandbox.warm import WarmBox

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.text(st.characters(categories=["Cs"]), max_size=3),
    st.binary(),
    st.complex_numbers(),
    st.integers(4090, 5000).map(lambda bits: -(1 << bits)),
)
HASHABLE = st.recursive(
    ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(HASHABLE, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=12,
)
TAGS = "set dict float bytes complex int tuple frozenset iter handle x".split()
EQUAL: tuple[Equal, ...] = ("exact", "python", "items")


def crossed(value: Any) -> Any:
    """There and back as JSON text."""
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


@given(VALUES)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert same(crossed(value), value)


@given(VALUES, VALUES, st.sampled_from(EQUAL))
def test_same_does_not_care_which_comes_first(one: Any, other: Any, equal: Equal) -> None:
    assert same(one, other, equal) == same(other, one, equal)


@given(VALUES, st.sampled_from(EQUAL), st.sampled_from([0.0, 1e-6]))
def test_everything_is_the_same_as_itself(value: Any, equal: Equal, tolerance: float) -> None:
    assert same(value, value, equal, tolerance)


@given(st.lists(ATOMS, min_size=1, max_size=5), st.data())
def test_one_different_item_makes_a_difference(items: list[Any], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(items) - 1))
    other = data.draw(ATOMS.filter(lambda atom: not same(atom, items[at])))
    assert not same([*items[:at], other, *items[at + 1 :]], items)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["$", "v", "n", "a"]), inner, max_size=3)
            | st.fixed_dictionaries(
                {
                    "$": st.sampled_from(TAGS),
                    "v": inner,
                }
            )
        ),
        max_leaves=10,
    )
)
def test_whatever_json_comes_is_plain_data_or_malformed(data: Any) -> None:
    try:
        value = decode(data)
    except Malformed:
        return
    assert only_plain(value)


def only_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(only_plain(part) for pair in value.items() for part in pair)
    if type(value) in (list, tuple, set, frozenset, Items):
        return all(map(only_plain, value))
    return type(value) in (type(None), bool, int, float, complex, str, bytes)


# ---------------------------------------------------------------- what does not cross


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    """A subclass of a plain type."""


def numbers() -> Any:
    while True:
        yield 1


@pytest.mark.parametrize(
    ("value", "crosses_as"),
    [
        (Colour.RED, 1),
        (Name("x"), "x"),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.Counter("aa"), {"a": 2}),
        ({1: Name("y")}, {1: "y"}),
    ],
)
def test_subclasses_cross_as_the_plain_type(value: Any, crosses_as: Any) -> None:
    assert same(crossed(value), crosses_as)


@pytest.mark.parametrize(
    "value",
    [
        range(3),
        collections.deque([0, 1, 2]),
        iter([0, 1, 2]),
        {0: 0, 1: 0, 2: 0}.keys(),
        (i for i in range(3)),
    ],
)
def test_what_can_only_be_gone_through_is_a_list_only_if_that_is_said(value: Any) -> None:
    got = crossed(value)
    assert got != [0, 1, 2]
    assert not same(got, [0, 1, 2])
    assert same(got, [0, 1, 2], "items")


def test_views_can_be_counted_and_indexed_on_the_other_side() -> None:
    got = crossed(range(3))
    assert (len(got), got[1], next(got), list(got)) == (3, 1, 0, [1, 2])


cyclic: list[Any] = []
cyclic.append(cyclic)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        int,
        print,
        cyclic,
        numbers(),
        {(1, object())},
        [0] * (MOST_ITEMS + 1),
        {"a": {"b": object()}},
    ],
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(Refused):
        encode(value)


@pytest.mark.parametrize(
    ("got", "wanted", "differ_under"),
    [
        (1, True, {"exact"}),
        (1.0, 1, {"exact"}),
        (1 + 0j, 1, {"exact"}),
        ([1], (1,), set(EQUAL)),
        ("1", 1, set(EQUAL)),
        (b"a", "a", set(EQUAL)),
        ({1}, frozenset({1}), {"exact"}),
        ({1}, {True}, {"exact"}),
        ({1: "a"}, {1.0: "a"}, {"exact"}),
        ({(1, 0)}, {(True, False)}, {"exact"}),
        (None, 0, set(EQUAL)),
        (float("nan"), float("nan"), set()),
        ({float("nan")}, {float("nan")}, set()),
        ({float("nan"): 1}, {float("nan"): 1}, set()),
        ({"nan"}, {float("nan")}, set(EQUAL)),
        (0.0, -0.0, set()),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, set()),
        ([1, 2], [1, 2, 3], set(EQUAL)),
        ({"a": 1}, {"a": 1, "b": None}, set(EQUAL)),
        (math.inf, -math.inf, set(EQUAL)),
    ],
)
def test_types_count_unless_said_otherwise(got: Any, wanted: Any, differ_under: set[str]) -> None:
    assert {equal for equal in EQUAL if not same(got, wanted, equal)} == differ_under


def test_a_tolerance_is_for_numbers_and_not_for_truth() -> None:
    assert same([0.1 + 0.2], [0.3], tolerance=1e-9)
    assert not same([0.1 + 0.2], [0.3])
    assert not same({0.1 + 0.2}, {0.3}, tolerance=1e-9)
    assert not same(True, False, tolerance=10.0)
    assert not same(10**12 + 1, 10**12, tolerance=1e-9), "integers are exact"
    assert same(1e12 + 1, 10**12, "python", 1e-9)
    assert not same(2 + 0j, 2, "json")
    assert not same(1 << 5000, 1.0, "python", 1e-6)


# ---------------------------------------------------------------- hostile replies

HOSTILE = [
    "",
    "null",
    "[]",
    "1" * 5000,
    "[" * 100_000,
    '{"id": ID',
    '{"id": ID}',
    '{"id": "ID"}{"id": "ID"}',
    '{"id": "wrong", "value": 3}',
    '{"id": "ID", "id": "ID", "value": 3}',
    '{"id": "ID", "value": 0, "value": 3}',
    '{"id": "ID", "value": NaN}',
    '{"id": "ID", "value": Infinity}',
    '{"id": "ID", "value": 1e400}',
    '{"id": "ID", "value": ' + "9" * 5000 + "}",
    '{"id": "ID", "value": ' + "[" * 5000 + "]" * 5000 + "}",
    '{"id": "ID", "value": ' + "[" * 900 + "]" * 900 + "}",
    '{"id": "ID", "value": "\\ud800"}',
    '{"id": "ID", "value": {"$": "str", "v": "33"}}',
    '{"id": "ID", "value": {"$": "str", "v": "eda0"}}',
    '{"id": "ID", "value": {"$": "str", "v": 3}}',
    '{"id": "ID", "value": 3.0}',
    '{"id": "ID", "value": true}',
    '{"id": "ID", "value": "3"}',
    '{"id": "ID", "value": {"$": "float", "v": "0x1p999999"}}',
    '{"id": "ID", "value": {"$": "float", "v": "3"}}',
    '{"id": "ID", "value": {"$": "float", "v": 3}}',
    '{"id": "ID", "value": {"$": "float", "v": []}}',
    '{"id": "ID", "value": {"$": "int", "v": "0x3"}}',
    '{"id": "ID", "value": {"$": "int", "v": "3"}}',
    '{"id": "ID", "value": {"$": "int", "v": 3}}',
    '{"id": "ID", "value": {"$": "int", "v": "0x%s"}}' % ("f" * 100_000),
    '{"id": "ID", "value": {"$": "set", "v": [[1]]}}',
    '{"id": "ID", "value": {"$": "set", "v": 3}}',
    '{"id": "ID", "value": {"$": "set", "v": "abc"}}',
    '{"id": "ID", "value": {"$": "frozenset", "v": [{"$": "dict", "v": []}]}}',
    '{"id": "ID", "value": {"$": "dict", "v": ["ab"]}}',
    '{"id": "ID", "value": {"$": "dict", "v": [[1]]}}',
    '{"id": "ID", "value": {"$": "dict", "v": [[1, 2, 3]]}}',
    '{"id": "ID", "value": {"$": "dict", "v": [[[1], 2]]}}',
    '{"id": "ID", "value": {"$": "dict", "v": {"a": 1}}}',
    '{"id": "ID", "value": {"$": "bytes", "v": "xyz"}}',
    '{"id": "ID", "value": {"$": "bytes", "v": 3}}',
    '{"id": "ID", "value": {"$": "complex", "v": [3, 0]}}',
    '{"id": "ID", "value": {"$": "complex", "v": ["3", "0"]}}',
    '{"id": "ID", "value": {"$": "complex", "v": [3.0]}}',
    '{"id": "ID", "value": {"$": "complex", "v": 3}}',
    '{"id": "ID", "value": {"$": []}}',
    '{"id": "ID", "value": {"$": [], "v": 3}}',
    '{"id": "ID", "value": {"$": null, "v": 3}}',
    '{"id": "ID", "value": {"$": "__class__", "v": 3}}',
    '{"id": "ID", "value": {"$": "int", "v": "0x3", "w": 1}}',
    '{"id": "ID", "value": {"$": "handle", "v": {"n": 1}}}',
    '{"id": "ID", "value": {"$": "handle", "v": 1}}',
    '{"id": "ID", "value": {}}',
    '{"id": "ID", "value": {"v": 3}}',
    '{"id": "ID", "error": 3}',
    '{"id": "ID", "error": {"a": []}}',
    '{"id": "ID", "error": "ValueError", "value": 3, "text": {"a": 1}}',
    '{"id": "ID", "error": "\\u001b[31mPASS", "text": "\\u001b]0;x\\u0007\\ud800"}',
    '{"id": "ID", "error": "ValueError", "kinds": {"ValueError": 1}}',
    '{"id": "ID", "error": "Refused", "kinds": [["ValueError"]]}',
    '{"id": "ID", "relay": {"call": "f"}}',
    '{"id": "ID", "callback": 0, "args": []}',
    '{"id": "ID", "end": true}',
    '{"id": "ID", "lies": 1, "value": 4}',
    "\x00\xff",
    '{"id": "ID", "value": 3}\x00',
    "\ufeff" + '{"id": "ID", "value": 3}',
]


class Saying:
    """A sandbox whose program gives the same answer to everything, and ends when told to."""

    backend, level = "double", 3

    def __init__(self, answer: str) -> None:
        self.slots = asyncio.Semaphore(1)
        self._answer = answer

    @asynccontextmanager
    async def converse(
        self, program: Program, limits: Limits, harness: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Saying]:
        yield self

    async def ask(self, line: bytes, seconds: float | None = None) -> bytes:
        request = json.loads(line)
        if request.get("end"):
            return json.dumps({"id": request["id"], "end": True}).encode()
        return self._answer.replace("ID", request["id"]).encode("utf-8", "surrogatepass")

    async def said_more(self) -> bool:
        return False

    async def result(self) -> Result:
        return Result("ok", 0)


def test_a_hostile_reply_fails_the_case_and_not_the_judge() -> None:
    async def judged(answer: str) -> Verdict:
        cases = [Case((1, 2), 3), Case((1, 2), raises="KeyError")]
        return await judge_calls(cast(WarmBox, Saying(answer)), "", "f", cases)

    with asyncio.Runner() as runner:
        for answer in HOSTILE:
            verdict = runner.run(judged(answer))
            assert (verdict.passed, verdict.share) == (False, 0), answer[:100]
            for outcome in verdict.outcomes:
                shown = outcome.error + outcome.text + outcome.got
                shown.encode()  # nothing that a file could not take
                assert "\x1b" not in shown, answer[:100]


def test_the_same_double_passes_with_the_right_answer() -> None:
    box = cast(WarmBox, Saying('{"id": "ID", "value": 3}'))
    assert asyncio.run(judge_calls(box, "", "f", [Case((1, 2), 3)])).passed


def test_what_is_passed_on_to_tests_can_be_decoded_there() -> None:
    for answer in HOSTILE:
        try:
            passed = to_pass_on(read(answer.replace("ID", "1").encode("utf-8", "replace"), "1"))
        except Forged:
            continue
        json.dumps(passed)
        if "value" in passed and "error" not in passed:
            value = passed["value"]
            is_handle = isinstance(value, dict) and value["$"] == "handle"
            assert is_handle or only_plain(decode(value)), answer[:100]


def test_tests_that_say_nothing_of_the_kind_do_not_pass_either() -> None:
    box = cast(WarmBox, Saying('{"id": "ID", "error": "AssertionError"}'))
    assert not asyncio.run(judge_statements(box, "", "f", ["assert f()"])).passed


def test_what_a_program_says_of_itself_is_cut_and_cleaned() -> None:
    outcome = raised({"error": "ValueError", "text": "a\x1b[31m" + "x" * 10_000})
    assert outcome is not None
    assert len(outcome.text) <= 200
    assert "\x1b" not in outcome.text


def test_numbers_of_any_size_cross() -> None:
    assert crossed(LARGE) == LARGE
    assert crossed([-LARGE * 10**6000])[0] == -LARGE * 10**6000
