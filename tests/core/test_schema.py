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
        ("tsk", {}),
        ("seed", -1),
        ("seed", 1.5),
        ("task/use", ...),
        ("task/use", "echo"),
        ("task/use", "toyy"),
        ("task/size", 0),
        ("task/size", "3"),
        ("task/sise", 3),
        ("agents", []),
        ("agents/a b", {"use": "echo"}),
        ("agents/one/use", "other:echo"),
        ("agents/one/times", True),
        ("agents/one/loud", "false"),
        ("agents/one/loud", 0),
        ("agents/one/hidden", 1),
        ("agents/one/derived", 1),
        ("agents/one/parts/x/size", -1),
        ("agents/one/parts/x/size", ...),
        ("agents/one/parts/x/extra", 1),
        ("agents/one/code", "ABC"),
        ("agents/one/code", "a"),
        ("agents/one/words", ["a"] * 4),
        ("agents/one/rate", 1),
        ("agents/one/file", ""),
        ("agents/one/model", 3),
        ("agents/one/model", {"use": "echo"}),
        ("agents/two/members", []),
        ("agents/two/members", "in"),
        ("agents/two/members/1/times", 10),
        ("agents/two/policy", ...),
        ("agents/two/agents", ["in"]),
        ("agents/in/mode", "c"),
        ("agents/in/limit", 3),
        ("agents/in/pair", [1]),
        ("agents/in/pair", [1, 2, 3]),
        ("agents/in/pair", [1.5, 2]),
        ("agents/in/either", ["x"]),
        ("agents/in/either", None),
        ("agents/in/weights", {"x": "1"}),
        ("policy/agents", []),
        ("policy/agents", ["one", "one"]),
        ("trainer", []),
        ("trainer/0/lr", "1e-3"),
        ("limits/turns", 0),
        ("limits/steps", 5),
        ("budget/usd", -1),
        ("run/retention", "al"),
        ("run/name", "../x"),
        ("evaluation/split", "tset"),
        ("evaluation/baselines/b/policy", ...),
        ("evaluation/baselines/b/x", 1),
        ("evaluation/baselines/b c", {"policy": {"use": "order"}}),
    ],
)
def test_both_refuse(path: str, value: Any) -> None:
    data = changed(path, value)
    assert not structures(data)
    assert not VALIDATOR.is_valid(data)


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
