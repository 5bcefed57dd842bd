"""The JSON object in what a model answers."""

from __future__ import annotations

import pytest

from orchestrion import json_object


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": "}```{"}}',
        ' \n{"a": {"b": "}```{"}}\n',
        '```json\n{"a": {"b": "}```{"}}\n```',
        'Here:\n```\n{"a": {"b": "}```{"}}\n```\nDone.',
        'It is {"a": {"b": "}```{"}}, as asked.',
    ],
)
def test_what_stands_around_an_object_is_left_out(text: str) -> None:
    assert json_object(text) == {"a": {"b": "}```{"}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("}{", "not JSON"),
        ("4", "not a JSON object"),
        ('[{"a": 1}]', "not a JSON object"),
        ('"{}"', "not a JSON object"),
        ('{"a": 1} {"a": 1}', "not JSON"),
        ('{"a": 1', "not JSON"),
        ('In {braces}: {"a": 1}', "not JSON"),
        ('{"a": 1, "a": 2}', "a name stands there twice"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -1e999}', "-1e999 is too large"),
        ('{"a": "\\ud800"}', "surrogates"),
        ('{"a":' * 50_000, "not JSON"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        json_object(text)
