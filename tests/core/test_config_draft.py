"""A config before it is checked: sections of commands, other values, one section alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import frozen

from orchestrion import ConfigError
from orchestrion._config.loading import Draft
from orchestrion._config.nodes import Problems, Source
from orchestrion._config.yaml import read_yaml
from tests.core.plugin_support import with_parts

CONFIG = """\
task: {use: toy, size: 4}
agents:
  one: {use: echo, times: 2}
policy: {use: order}
mine:
  agents.one.times: [3, 12]
"""


@frozen
class Sections:
    """What a command takes out."""

    mine: Mapping[str, tuple[int, ...]]


def drafted(text: str) -> Draft:
    problems = Problems()
    root = read_yaml(text, Source("c.yaml", Path()), problems)
    assert root is not None
    return Draft(root, "c.yaml", with_parts(), {}, problems.found)


def test_a_command_takes_its_section_and_the_rest_is_the_config() -> None:
    draft = drafted(CONFIG)
    with pytest.raises(ConfigError, match="mine: unknown section"):
        draft.config()
    assert draft.take(Sections).mine == {"agents.one.times": (3, 12)}
    assert draft.config().resolved()["agents"]["one"]["times"] == 2


def test_other_values_are_checked_with_the_lines_of_the_section_that_has_them() -> None:
    draft = drafted(CONFIG)
    draft.take(Sections)
    changed = draft.config({"agents.one.times": 3, "seed": 5}, "mine")
    assert changed.resolved()["agents"]["one"]["times"] == 3
    assert changed.seed == 5
    assert draft.config().seed == 0
    for value, text in ((12, "c.yaml:6: agents.one.times: must be at most 9"), ({1}, "c.yaml:6")):
        with pytest.raises(ConfigError) as caught:
            draft.config({"agents.one.times": value}, "mine")
        assert text in str(caught.value)
    with pytest.raises(ConfigError, match="not a config path"):
        draft.config({"agents..": 1})


def test_what_is_wrong_in_a_section_of_a_command_is_said_with_its_line() -> None:
    draft = drafted(CONFIG.replace("[3, 12]", "[3, x]"))
    with pytest.raises(ConfigError, match=r"c\.yaml:6: mine\.agents\.one\.times"):
        draft.take(Sections)
    assert draft.problem("mine", "agents.one.times", "no") == "c.yaml:6: mine.agents.one.times: no"


def test_components_of_one_section_need_nothing_else_of_the_config() -> None:
    text = "task: {use: gone}\nagents: {a: {use: echo, times: 2}, b: {use: gone}}\n"
    draft = drafted(text)
    assert [one.times for one in draft.components("agent", "a").values()] == [2]
    assert draft.components("model") == {}
    with pytest.raises(ConfigError, match=r"c\.yaml:2: agents\.b\.use: no installed plugin"):
        draft.components("agent")
