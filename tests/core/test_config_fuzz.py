"""However a config is damaged, it is either right or refused with its problems.

40 examples of each run by default; ORCHESTRION_FUZZ=5000 runs as many of each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrion import ConfigError
from orchestrion._schema import json_schema
from orchestrion.cli import main
from orchestrion.config import Config, from_data, load
from tests.core.plugin_support import with_parts
from tests.core.test_config_load import ENV, TEXT
from tests.core.test_schema import GOOD

EXAMPLES = int(os.environ.get("ORCHESTRION_FUZZ", "40"))
PLUGINS = with_parts()
VALIDATOR = jsonschema.Draft202012Validator(json_schema(PLUGINS))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

WORDS = st.sampled_from(
    "use echo team order toy api main one in agents policy model x no 1e-3 false a.b [0] <<".split()
) | st.sampled_from(["", "${env:KEY}", "${env:NO_KEY}", "${env:"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested data."""
    found = [path] if path else []
    items: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        items = list(data.items())
    elif isinstance(data, list):
        items = list(enumerate(data))
    for key, value in items:
        found += places(value, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A good config with one to four things changed."""
    data: Any = deepcopy(GOOD)
    for _ in range(draw(st.integers(1, 4))):
        here = places(data)
        if not here:
            break
        *above, last = draw(st.sampled_from(here))
        parent = data
        for key in above:
            parent = parent[key]
        change = draw(st.sampled_from(["replace", "remove", "rename", "copy", "insert"]))
        if change == "remove":
            del parent[last]
        elif change == "rename" and isinstance(parent, dict):
            parent[draw(WORDS | st.text(max_size=4))] = parent.pop(last)
        elif change == "copy":
            *source, end = draw(st.sampled_from(here))
            node = data
            for key in source:
                node = node[key] if _has(node, key) else {}
            parent[last] = deepcopy(node[end]) if _has(node, end) else draw(VALUES)
        elif change == "insert" and isinstance(parent, dict):
            parent[draw(WORDS)] = draw(VALUES)
        else:
            parent[last] = draw(VALUES)
    return data  # type: ignore[no-any-return]


def _has(node: Any, key: Any) -> bool:
    if isinstance(node, dict):
        return key in node
    return isinstance(node, list) and isinstance(key, int) and key < len(node)


def check(config: Config) -> None:
    """What holds for every config that was accepted."""
    resolved = config.resolved()
    json.dumps(resolved, allow_nan=False)
    assert VALIDATOR.is_valid(resolved)
    assert ENV["KEY"] not in json.dumps(resolved)
    if "<masked>" not in json.dumps(resolved):
        assert from_data(resolved, env=ENV, plugins=PLUGINS) == config


def attempt(read: Callable[[], Config]) -> None:
    """Read a config: it is right, or refused by the one error meant for that."""
    try:
        config = read()
    except ConfigError as exc:
        refusal: ConfigError | None = exc
    else:
        refusal = None
        check(config)
    if refusal is not None:
        assert refusal.problems
        assert ENV["KEY"] not in str(refusal)


@FUZZ
@given(damaged())
def test_damaged_data_is_right_or_refused(data: dict[str, Any]) -> None:
    attempt(lambda: from_data(data, env=ENV, plugins=PLUGINS))


@st.composite
def damaged_text(draw: st.DrawFn) -> str:
    """The text of a good config with one to three pieces cut out or put in."""
    text = TEXT
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 12)))
        new = draw(WORDS | st.text(alphabet="{}[]:,\n \t-#&*!|>'\"%@`$x1", max_size=4))
        text = text[:start] + new + text[end:]
    return text


@FUZZ
@given(damaged_text())
def test_damaged_text_is_right_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    attempt(lambda: load(tmp_path / "c.yaml", env=ENV, plugins=PLUGINS))


@settings(FUZZ, max_examples=max(10, EXAMPLES // 10))
@given(damaged_text())
def test_the_command_exits_with_0_or_2_and_never_with_a_traceback(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    result = CliRunner().invoke(main, ["validate", str(tmp_path / "c.yaml")], env=ENV)
    assert result.exit_code in (0, 2)
    assert result.stderr.startswith("error: ") == (result.exit_code == 2)
    assert "Traceback" not in result.output


@FUZZ
@given(st.lists(st.text(max_size=20) | st.tuples(WORDS, VALUES).map(lambda t: f"{t[0]}={t[1]}")))
def test_overrides_of_any_kind_are_applied_or_refused(overrides: list[str]) -> None:
    attempt(lambda: from_data(GOOD, overrides, env=ENV, plugins=PLUGINS))
