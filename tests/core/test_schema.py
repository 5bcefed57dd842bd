"""The JSON Schema and structuring accept and refuse the same configs."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrion import ConfigError
from orchestrion._plugins import Plugins
from orchestrion._schema import Schema, json_schema
from orchestrion.config import from_data
from tests.core.plugin_support import Site, with_parts
from tests.core.test_config_load import SMALL, WRONG_SECTIONS, WRONG_SETTINGS

PLUGINS = with_parts()
SCHEMA = json_schema(PLUGINS)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

GOOD: dict[str, Any] = {
    "seed": 3,
    "task": {"use": "toy", "size": 4},
    "models": {"main": {"use": "api", "key": None}},
    "agents": {
        "one": {"use": "parts:echo", "model": "main", "parts": {"x": {"size": 1}}},
        "two": {
            "use": "team",
            "members": ["in", {"use": "echo", "times": 2, "either": [1]}],
            "policy": {"use": "order"},
            "judges": {"strict": {"use": "api"}},
        },
        "in": {"use": "echo", "mode": 3, "colour": "blue", "limit": None, "pair": [1, 2]},
    },
    "policy": {"use": "order", "agents": ["one", "two"], "steps": []},
    "reward": {"use": "judged"},
    "trainer": [{"use": "practice"}, {"use": "practice", "lr": 1}],
    "limits": {"turns": None},
    "budget": {"minutes": 0.5},
    "run": {"name": "a-1", "retention": "none"},
    "evaluation": {"baselines": {"b": {"policy": {"use": "order"}}}},
}


def structures(data: dict[str, Any]) -> bool:
    try:
        from_data(data, env={}, plugins=PLUGINS)
    except ConfigError:
        return False
    return True


def changed(path: str, value: Any) -> dict[str, Any]:
    """`GOOD` with one value set, or removed if it is `...`."""
    data = deepcopy(GOOD)
    *above, last = path.split("/")
    node: Any = data
    for part in above:
        node = node[int(part) if isinstance(node, list) else part]
    key: Any = int(last) if isinstance(node, list) else last
    if value is ...:
        del node[key]
    else:
        node[key] = value
    return data


def test_the_schema_is_a_valid_schema_and_is_json() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def test_a_good_config_is_good_to_both() -> None:
    VALIDATOR.validate(GOOD)
    assert structures(GOOD)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("trainer", {"use": "practice"}),
        ("trainer", ...),
        ("limits", ...),
        ("trainer", None),
        ("evaluation", None),
        ("agents/in/anything", {"x": [1, None]}),
        ("agents/in/rate", 0),
        ("agents/in/words", ["a", "b", "c"]),
        ("agents/in/either", "x"),
        ("agents/one/use", "echo"),
        ("agents/in/model", None),
        ("agents/two/members", ["in"]),
        ("evaluation/baselines", {}),
        ("policy/agents", ["one"]),
        ("models/main/headers", {"a": "b"}),
        ("run/timeout", None),
    ],
)
def test_both_accept(path: str, value: Any) -> None:
    data = changed(path, value)
    assert structures(data)
    assert VALIDATOR.is_valid(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("task", ...),
        ("agents", ...),
        ("policy", ...),
        ("policy", None),
        ("seed", None),
        ("agents/one/use", "other:echo"),
        ("agents/one/model", {"use": "echo"}),
        ("agents/two/members", []),
        ("agents/two/members", "in"),
        ("agents/two/members/1/times", 10),
        ("agents/two/policy", ...),
        ("agents/two/agents", ["in"]),
        ("agents/in/pair", [1, 2, 3]),
        ("agents/in/either", None),
        ("policy/agents", []),
        ("budget/usd", -1),
        ("run/retention", "al"),
        ("evaluation/split", "tset"),
        ("evaluation/baselines/b/x", 1),
        ("evaluation/baselines/b c", {"policy": {"use": "order"}}),
    ],
)
def test_both_refuse(path: str, value: Any) -> None:
    data = changed(path, value)
    assert not structures(data)
    assert not VALIDATOR.is_valid(data)


BEYOND_A_SCHEMA = (
    "got 7.0",
    "it must be finite",
    "must be in [2, 4, 6]",
    "the team is empty",
    "reads like a setting",
    "nothing uses it",
    "no agent is called",
    "is called 'ordr'",
    "is what the report calls",
    "there is no trainer",
    "list of words, got an empty list",
    "no plugin called",
)
"""Words of the problems that only structuring finds."""


@pytest.mark.parametrize(
    ("data", "problem"),
    [({"agents": {"a": {"use": "echo", **one}}}, problem) for one, problem in WRONG_SETTINGS]
    + WRONG_SECTIONS,
)
def test_the_schema_refuses_what_structuring_refuses(data: dict[str, Any], problem: str) -> None:
    beyond = any(words in problem for words in BEYOND_A_SCHEMA)
    assert VALIDATOR.is_valid({**SMALL, **data}) == beyond


SETTINGS = ["text", "times", "rate", "loud", "mode", "colour", "limit", "code", "words", "pair"]
SETTINGS = [*SETTINGS, "weights", "part", "parts", "either", "anything"]
# An integral float is an integer to JSON Schema and none to us: that is the one difference.
SCALARS = st.none() | st.booleans() | st.integers(-3, 12) | st.just(0.5) | st.text(max_size=5)
VALUES = SCALARS | st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["size", "tags", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(SETTINGS), VALUES, min_size=1, max_size=3))
def test_both_agree_on_drawn_settings(settings: dict[str, Any]) -> None:
    data = changed("agents/one", {"use": "echo", "model": "main", **settings})
    assert structures(data) == VALIDATOR.is_valid(data)


def test_branches_describe_components_and_settings() -> None:
    echo = SCHEMA["$defs"]["agent.parts:echo"]
    assert echo["description"] == "says something (parts)"
    assert echo["properties"]["use"]["enum"] == ["echo", "parts:echo"]
    assert echo["properties"]["text"] == {
        "type": "string",
        "default": "hi",
        "description": "what to say, always.",
    }
    assert echo["additionalProperties"] is False


def test_secrets_have_no_default_in_the_schema() -> None:
    assert "default" not in SCHEMA["$defs"]["model.parts:api"]["properties"]["key"]


def test_without_plugins_no_component_is_valid() -> None:
    schema = json_schema(Plugins(path=[], env={}))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert not jsonschema.Draft202012Validator(schema).is_valid(GOOD)


def test_broken_components_are_left_out_and_said(site: Site) -> None:
    site.plugin(
        "half",
        """
        @hookimpl
        def orchestrion_tasks():
            yield Component("gone", "no_such_module:Gone", "gone")
        """,
    )
    schema = Schema(site.plugins())
    document = schema.document()
    assert document["$defs"]["task"] == {"not": {}}
    assert len(schema.problems) == 1
    assert "task 'gone' of plugin 'half' (orchestrion-half 1.0)" in schema.problems[0]
