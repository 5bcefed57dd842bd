"""Records as JSON, and back."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrion import (
    Activation,
    Decision,
    Episode,
    Observation,
    Output,
    Problem,
    StoreError,
    Trajectory,
    Turn,
    Usage,
)
from orchestrion._store.serial import dumps, encode, loads, parse, structure
from tests.core import store_support as support


@pytest.mark.parametrize("kind", support.FIELDS, ids=lambda kind: kind.__name__)
def test_the_strategies_draw_every_field(kind: type[Any]) -> None:
    assert set(support.FIELDS[kind]) == set(kind.__struct_fields__)


@pytest.mark.parametrize("kind", support.FIELDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_every_record_is_json_and_comes_back_equal(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(support.record(kind))
    text = encode(record)
    assert set(json.loads(text.decode("utf-8"))) <= set(kind.__struct_fields__)
    assert structure(parse(text), kind) == record


def test_a_trajectory_is_the_list_of_its_turns() -> None:
    trajectory = Trajectory([Turn(i, "a") for i in range(3)])
    assert structure(parse(encode(trajectory)), Trajectory) == trajectory
    assert structure(parse(encode(trajectory)), list[Turn]) == list(trajectory.turns)


@given(support.json)
def test_plain_data_comes_back_equal(data: Any) -> None:
    assert parse(encode(data)) == data


@given(support.state)
def test_dumps_loses_nothing_not_even_infinities(data: Any) -> None:
    assert loads(dumps(data)) == data


def test_the_record_behind_a_decision_is_never_written() -> None:
    decision = Decision((Activation("a"),), logp=-1.0, record=np.ones(3))
    episode = Episode("1", Problem("p"), Trajectory(), (decision,))
    assert b"record" not in encode(decision)
    assert b"record" not in encode([decision])
    assert b"record" not in encode(episode)
    assert structure(parse(encode(episode)), Episode).decisions[0].record is None


def test_equal_observations_are_written_alike_whatever_the_order_of_their_sets() -> None:
    names = [f"agent{i}" for i in range(50)]
    one = Observation(blocked=frozenset(names))
    other = Observation(blocked=frozenset(reversed(names)))
    assert encode(one) == encode(other)
    assert parse(encode(one))["blocked"] == sorted(names)


def test_a_price_that_is_not_known_comes_back_as_not_known() -> None:
    assert math.isnan(structure(parse(encode(Usage(1, usd=math.nan))), Usage).usd)


def test_text_that_is_no_utf8_may_stand_beside_a_number_that_is_none() -> None:
    output = Output("\ud800", {"x": [math.inf, 1.5]}, Usage(usd=math.nan))
    back = structure(parse(encode(output)), Output)
    assert back.content == "\ud800"
    assert back.data == {"x": [None, 1.5]}
    assert math.isnan(back.usage.usd)


def test_data_that_is_nearly_json_is_written_as_json() -> None:
    data = {
        "array": np.arange(3),
        "number": np.float32(0.5),
        "mapping": MappingProxyType({"a": (1, 2)}),
        "ordered": OrderedDict(b=1),
    }
    expected = {"array": [0, 1, 2], "number": 0.5, "mapping": {"a": [1, 2]}, "ordered": {"b": 1}}
    assert parse(encode(Output(data=data)))["data"] == expected


def test_what_only_looks_like_plain_data_is_written_as_it() -> None:
    given = (MappingProxyType({"a": 1}), {"b": 1, "a": 2}.keys(), np.float64(0.5), np.int8(3))
    assert parse(encode(given)) == [{"a": 1}, ["a", "b"], 0.5, 3]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"a": [1, object()]}, r"\$\.a\[1\].*object"),
        ({1: "one"}, r"\$: key 1 is not text"),
        ({"s": {1, 2}}, r"\$\.s.*set"),
        ({"x": b"bytes"}, r"\$\.x.*bytes"),
    ],
)
def test_exact_data_that_is_no_json_is_refused_with_its_place(data: Any, where: str) -> None:
    with pytest.raises(StoreError, match=where):
        dumps(data)


def test_a_record_with_something_that_is_no_json_is_refused() -> None:
    with pytest.raises(StoreError, match="object, which is not JSON"):
        encode(Turn(0, "a", output=Output(data=object())))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"index": "0"}, r"index"),
        ({"index": True}, r"index"),
        ({"index": 1.0}, r"index"),
        ({"status": "done"}, r"status"),
        ({"output": {"final": "false"}}, r"output.*final"),
        ({"nonsense": 1}, r"nonsense"),
        ({"agent": None}, r"agent"),
    ],
)
def test_reading_is_strict_and_says_what_is_wrong_where(
    change: dict[str, Any], reason: str
) -> None:
    data = {"index": 0, "agent": "a", **change}
    with pytest.raises(StoreError, match=f"not a valid Turn: .*{reason}"):
        structure(parse(encode(data)), Turn)
