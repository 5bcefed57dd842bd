"""A config is right, or everything that is wrong with it is said at once, with its place."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from attrs import field, frozen, make_class

from orchestrion import (
    Agent,
    Component,
    ConfigError,
    Kind,
    Meta,
    Model,
    Policy,
    RunError,
    hidden,
    hookimpl,
)
from orchestrion._plugins import Plugins
from orchestrion.config import Config, Problem, flat, from_data, load, value_at
from tests.core.plugin_support import Site, parts_plugin, with_parts

TEXT = """\
seed: 7
task: {use: toy, size: 4}
models:
  main: {use: api, key: "${env:KEY}"}
agents:
  one:
    use: echo
    text: hello
    model: main
  inner: {use: echo}
  team:
    use: team
    members: [inner, {use: echo, times: 2}]
    policy: {use: order}
    judges: {strict: main}
policy: {use: order, steps: [one, team]}
reward: {use: judged, judge: {use: api}}
trainer:
  - {use: practice, lr: 1}
  - {use: practice}
limits: {turns: 12}
budget: {usd: 0}
evaluation:
  baselines:
    alone: {policy: {use: order, agents: [one]}, trainer: {use: practice}}
"""
ENV = {"KEY": "sk-very-secret"}
SMALL: dict[str, Any] = {
    "task": {"use": "toy"},
    "agents": {"a": {"use": "echo"}},
    "policy": {"use": "order"},
}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return with_parts()


def read(text: str, tmp_path: Path, plugins: Plugins, *overrides: str) -> Config:
    (tmp_path / "c.yaml").write_text(text)
    return load(tmp_path / "c.yaml", overrides, env=ENV, plugins=plugins)


@pytest.fixture
def config(tmp_path: Path, plugins: Plugins) -> Config:
    return read(TEXT, tmp_path, plugins)


def small(plugins: Plugins, *overrides: str, **sections: Any) -> Config:
    """A small config that has these sections besides."""
    return from_data({**SMALL, **sections}, overrides, env=ENV, plugins=plugins)


def problems(data: dict[str, Any], plugins: Plugins, *overrides: str) -> list[str]:
    """What is wrong with a small config that has these sections besides."""
    try:
        small(plugins, *overrides, **data)
    except ConfigError as exc:
        return [p.removeprefix("config: ") for p in exc.problems]
    return []


def of_echo(plugins: Plugins, **settings: Any) -> list[str]:
    return [
        p.removeprefix("agents.a.")
        for p in problems({"agents": {"a": {"use": "echo", **settings}}}, plugins)
    ]


# ------------------------------------------------------------------ a right config


def test_sections_are_structured(config: Config) -> None:
    assert config.seed == 7
    assert config.limits.turns == 12
    assert config.budget.usd == 0.0
    assert config.budget.calls is None
    assert config.run.concurrency == 64
    assert config.evaluation.split == "test"


def test_components_come_after_what_is_wired_into_them(config: Config) -> None:
    order = list(config.components)
    for entry in config.components.values():
        for targets in entry.refs.values():
            for target in targets:
                assert order.index(target) < order.index(entry.path)


def test_wired_fields_hold_components_and_entries_say_which(config: Config) -> None:
    team = config.components["agents.team"]
    inner = config.components["agents.inner"].component
    assert team.component.members[0] is inner
    assert team.component.members[1].times == 2
    assert team.refs == {
        "members": ("agents.inner", "agents.team.members[1]"),
        "policy": ("agents.team.policy",),
        "judges": ("models.main",),
    }
    assert config.components["reward"].refs == {"judge": ("reward.judge",)}


def test_runtimes_take_the_place_of_wired_components(config: Config) -> None:
    team = config.components["agents.team"]
    wired = team.wired({path: path.upper() for path in config.components})
    assert wired.members == ["AGENTS.INNER", "AGENTS.TEAM.MEMBERS[1]"]
    assert wired.policy == "AGENTS.TEAM.POLICY"
    assert wired.judges == {"strict": "MODELS.MAIN"}
    assert team.component.policy.steps == ()


def test_the_roster_is_every_agent_that_no_other_refers_to(config: Config) -> None:
    assert config.roster == ("agents.one", "agents.team")


def test_names_may_hold_dots_as_names_of_models_do(tmp_path: Path, plugins: Plugins) -> None:
    text = re.sub(r"\bone\b", "llama-3.1-8b", TEXT)
    text = text.replace("main", "gpt-6.1")
    config = read(text, tmp_path, plugins, "agents.llama-3.1-8b.text=changed")
    assert config.roster == ("agents.llama-3.1-8b", "agents.team")
    agent = config.components["agents.llama-3.1-8b"]
    assert agent.component.text == "changed"
    assert agent.refs["model"] == ("models.gpt-6.1",)
    assert "agents.llama-3.1-8b.text" in config.learnable()
    changed = config.with_overlay({"agents.llama-3.1-8b.text": "learned"})
    assert changed.components["agents.llama-3.1-8b"].component.text == "learned"
    assert from_data(changed.resolved(), env=ENV, plugins=plugins) == changed


def test_policy_agents_overrides_the_roster(tmp_path: Path, plugins: Plugins) -> None:
    config = read(TEXT, tmp_path, plugins, "policy.agents=[inner, one]")
    assert config.roster == ("agents.inner", "agents.one")
    assert config.components["policy"].agents == ("inner", "one")
    assert "agents.team" not in config.components, "what nobody needs is not opened"
    assert "agents.team" in config.definitions


def test_baselines_name_their_components_and_team(config: Config) -> None:
    alone = config.evaluation.baselines["alone"]
    assert alone.policy == "evaluation.baselines.alone.policy"
    assert alone.trainer == "evaluation.baselines.alone.trainer"
    assert alone.agents == ("agents.one",)
    assert alone.policy in config.components


@pytest.mark.parametrize("none", ["{}", "[]", "null"])
def test_no_baselines_may_be_written_in_any_empty_form(
    none: str, tmp_path: Path, plugins: Plugins
) -> None:
    config = read(TEXT, tmp_path, plugins, f"evaluation.baselines={none}")
    assert config.evaluation.baselines == {}


def test_a_baseline_may_have_settings_as_they_were_configured(
    tmp_path: Path, plugins: Plugins
) -> None:
    plain = "evaluation.baselines.plain={policy: {use: order}, as_configured: true}"
    config = read(TEXT, tmp_path, plugins, plain)
    assert config.evaluation.baselines["plain"].as_configured
    assert not config.evaluation.baselines["alone"].as_configured
    again = from_data(config.resolved(), env=ENV, plugins=plugins)
    assert again.evaluation.baselines["plain"].as_configured
    words = "evaluation.baselines=[untrained, order]"
    config = read(TEXT, tmp_path, plugins, words)
    assert from_data(config.resolved(), env=ENV, plugins=plugins) == config
    with pytest.raises(ConfigError, match=r"plain\.as_configured: expected true or false"):
        read(TEXT, tmp_path, plugins, plain.replace("true", "perhaps"))


def test_stages_are_paths_in_order(config: Config, tmp_path: Path, plugins: Plugins) -> None:
    assert config.stages == ("trainer[0]", "trainer[1]")
    assert config.components["trainer[0]"].component.lr == 1.0
    one = read(TEXT, tmp_path, plugins, "trainer={use: practice}")
    assert one.stages == ("trainer",)


def test_paths_are_taken_from_the_folder_of_the_file_that_names_them(
    tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text("agents: {a: {use: echo, file: data/x.csv}}")
    monkeypatch.chdir(tmp_path.parent)
    text = "include: [sub/base.yaml]\ntask: {use: toy}\npolicy: {use: order}"
    config = read(text, tmp_path, plugins)
    assert config.components["agents.a"].component.file == tmp_path / "sub" / "data" / "x.csv"
    config = read(text, tmp_path, plugins, "agents.a.file=y.csv")
    assert config.components["agents.a"].component.file == tmp_path.parent / "y.csv"


def test_numbers_structure_strictly_and_integers_are_numbers(plugins: Plugins) -> None:
    settings = {"use": "echo", "rate": 0, "pair": [3, 4], "either": [1], "mode": 3}
    echo = small(plugins, agents={"a": settings}).components["agents.a"].component
    assert (echo.rate, echo.pair, echo.either, echo.mode) == (0.0, (3, 4.0), [1], 3)
    assert isinstance(echo.rate, float)


# ------------------------------------------------------------------ wrong values


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"loud": "false"}, "loud: expected true or false, got 'false' (text); leave out the qu"),
    ({"loud": 1}, "loud: expected true or false, got 1 (an integer)"),
    ({"loud": "yes"}, "loud: expected true or false, got 'yes' (text); in YAML 1.2 that is a"),
    ({"times": 7.9}, "times: expected an integer, got 7.9 (a number)"),
    ({"times": 7.0}, "times: expected an integer, got 7.0 (a number)"),
    ({"times": "7"}, "times: expected an integer, got '7' (text); leave out the quotes"),
    ({"times": True}, "times: expected an integer, got true (a boolean)"),
    ({"times": None}, "times: expected an integer, got null"),
    ({"times": 0}, "times: must be at least 1, got 0"),
    ({"times": 10}, "times: must be at most 9, got 10"),
    ({"rate": 1}, "rate: must be less than 1, got 1"),
    ({"rate": "1e-3"}, "rate: expected a number, got '1e-3' (text); leave out the quotes"),
    ({"rate": math.nan}, "rate: expected a number, got nan (a number); it must be finite"),
    ({"rate": math.inf}, "rate: expected a number, got inf"),
    ({"text": 5}, "text: expected text, got 5 (an integer); put it in quotes"),
    ({"text": [1]}, "text: expected text, got a list of 1"),
    ({"mode": "c"}, "mode: expected one of 'a', 'b', 3, got 'c'"),
    ({"mode": "3"}, "mode: expected one of 'a', 'b', 3, got '3'"),
    ({"mode": True}, "mode: expected one of"),
    ({"colour": "rde"}, "colour: expected one of 'red', 'blue', got 'rde' (text); did you mea"),
    ({"limit": 3}, "limit: must be a multiple of 2, got 3"),
    ({"limit": "x"}, "limit: expected an integer or null, got 'x'"),
    ({"code": "a"}, "code: must have at least 2 characters"),
    ({"code": "abcde"}, "code: must have at most 4 characters"),
    ({"code": "A1"}, "code: must match ^[a-z]+$"),
    ({"words": "x"}, "words: expected a list, got 'x' (text); for one element, write [x]"),
    ({"words": ["a", 1]}, "words[1]: expected text, got 1"),
    ({"words": ["a"] * 4}, "words: must have at most 3 elements"),
    ({"pair": [1]}, "pair: expected a list of 2, got a list of 1"),
    ({"pair": [1.5, 2]}, "pair[0]: expected an integer, got 1.5"),
    ({"weights": {"x": "1"}}, "weights.x: expected a number, got '1'"),
    ({"weights": [1]}, "weights: expected a mapping, got a list of 1"),
    ({"part": {}}, "part: 'size' is missing: expected an integer"),
    ({"part": {"size": -1}}, "part.size: must be at least 0, got -1"),
    ({"part": {"size": 1, "tag": []}}, "part.tag: unknown key; did you mean 'tags'?"),
    ({"part": 3}, "part: expected a mapping, got 3"),
    ({"parts": {"x": {"size": 1, "tags": [2]}}}, "parts.x.tags[0]: expected text, got 2"),
    ({"either": 1.5}, "either: expected an integer or text or a list, got 1.5"),
    ({"either": ["x"]}, "either[0]: expected an integer, got 'x'"),
    (
        {"anything": [math.inf]},
        "anything[0]: expected plain data, got inf (a number); it must be finite",
    ),
    ({"even": 3}, "even: 'even' must be in [2, 4, 6]"),
    ({"file": ""}, "file: expected a path, got ''"),
    ({"tetx": "x"}, "tetx: unknown key; did you mean 'text'?"),
    ({"hidden": 1}, "hidden: unknown key"),
    ({"derived": 1}, "derived: unknown key"),
    ({"model": 3}, "model: expected the name of a model, or {use: ...} or null, got 3"),
]


@pytest.mark.parametrize(("setting", "problem"), WRONG_SETTINGS)
def test_a_wrong_value_is_one_problem_that_says_what_was_expected(
    plugins: Plugins, setting: dict[str, Any], problem: str
) -> None:
    found = of_echo(plugins, **setting)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_everything_wrong_is_reported_at_once_in_order(tmp_path: Path, plugins: Plugins) -> None:
    text = """\
tsk: {use: toy}
task: {use: toy, size: 7.9}
models:
  main: {use: api, timeout: 200, key: "${env:NO_KEY}"}
agents:
  one: {use: echo, times: 0, rate: 2, even: 3, model: mian, tmes: 1}
  two: {use: ecko}
policy: {use: order, stpes: []}
limits: {turns: 0}
run: {concurrency: true, retention: al, observers: [nobody]}
"""
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path, plugins, "trainer.x=1")
    found = [p for p in caught.value.problems if isinstance(p, Problem)]
    assert [(p.line, p.path) for p in found] == [
        (1, "tsk"),
        (2, "task.size"),
        (4, "models.main.key"),
        (4, "models.main.timeout"),
        (6, "agents.one.times"),
        (6, "agents.one.rate"),
        (6, "agents.one.model"),
        (6, "agents.one.tmes"),
        (6, "agents.one.even"),
        (7, "agents.two.use"),
        (8, "policy.stpes"),
        (9, "limits.turns"),
        (10, "run.concurrency"),
        (10, "run.retention"),
        (10, "run.observers[0]"),
        (None, "trainer"),
    ]
    assert str(caught.value).startswith(f"{tmp_path}/c.yaml: 16 problems\n")
    assert f"{tmp_path}/c.yaml:2: task.size: expected an integer, got 7.9" in str(caught.value)


WRONG_SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"task": "toy"}, "task: expected a mapping, got 'toy' (text); write {use: toy}"),
    ({"task": {}}, "task: 'use' is missing: it says which task this is"),
    (
        {"task": {"ues": "toy"}},
        "task: 'use' is missing: it says which task this is; is 'ues' m",
    ),
    ({"task": {"use": 3}}, "task.use: expected the name of a task, got 3"),
    ({"task": {"use": "echo"}}, "task.use: no installed plugin supplies a task 'echo'"),
    ({"agents": []}, "agents: expected a mapping of names, got an empty list"),
    ({"agents": {}}, "agents: the team is empty: no agent is defined"),
    ({"agents": {"a:b": {"use": "echo"}}}, "agents.a:b: 'a:b' cannot be a name"),
    (
        {"agents": {"a": {"use": "echo"}, "a.b": {"use": "echo"}}},
        "agents.a.b: 'a.b' reads like a setting of 'a'; rename one of them",
    ),
    ({"agents": {"a": None}}, "agents.a: expected a mapping, got null"),
    ({"trainer": []}, "trainer: a list of stages needs at least one"),
    ({"seed": -1}, "seed: must be at least 0"),
    ({"seed": True}, "seed: expected an integer"),
    ({"limits": []}, "limits: expected a mapping, got an empty list"),
    ({"polcy": {}}, "polcy: unknown section; did you mean 'policy'?"),
    ({"models": {"m": {"use": "api"}}}, "models.m: defined, but nothing uses it"),
    ({"policy": {"use": "order", "agents": ["b"]}}, "policy.agents[0]: no agent is called 'b'"),
    (
        {"policy": {"use": "order", "agents": ["a", "a"]}},
        "policy.agents[1]: agent 'a' is named",
    ),
    ({"policy": {"use": "order", "agents": "a"}}, "policy.agents: expected a list of names"),
    (
        {"evaluation": {"baselines": {"x": {}}}},
        "evaluation.baselines.x: a baseline is a mapping",
    ),
    (
        {"evaluation": {"baselines": ["ordr"]}},
        "evaluation.baselines.ordr: no policy, and no trainer with a policy, is called 'ordr'; "
        "did you mean 'order'?",
    ),
    (
        {"evaluation": {"baselines": {"x": 3}}},
        "evaluation.baselines.x: a baseline is a mapping with a policy, {policy: {use: ...}}, or a "
        "word: untrained, a trainer or a policy",
    ),
    (
        {"evaluation": {"baselines": ["order", 3]}},
        "evaluation.baselines: expected a mapping of names, or a list of words",
    ),
    (
        {"evaluation": {"baselines": ["learned"]}},
        "evaluation.baselines.learned: 'learned' is what the report calls the trained policy",
    ),
    (
        {"evaluation": {"baselines": ["untrained"]}},
        "evaluation.baselines.untrained: there is no trainer",
    ),
    *[
        (
            {"evaluation": {"baselines": {"x": {"policy": {"use": "order"}, key: ["a"]}}}},
            f"evaluation.baselines.x.{key}: unknown key (known: policy, trainer, as_configured)",
        )
        for key in ("agents", "word")
    ],
    ({"evaluation": {"splt": "test"}}, "evaluation.splt: unknown key; did you mean 'split'?"),
    (
        {"evaluation": {"baselines": [1]}},
        "evaluation.baselines: expected a mapping of names, or a list of words, got a list",
    ),
    (
        {"run": {"observers": ["part"]}},
        "run.observers[0]: no plugin called 'part' is installed",
    ),
    ({"run": {"name": "../x"}}, "run.name: must match"),
]


@pytest.mark.parametrize(("data", "problem"), WRONG_SECTIONS)
def test_wrong_sections_are_problems(plugins: Plugins, data: dict[str, Any], problem: str) -> None:
    found = problems(data, plugins)
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_null_leaves_out_a_section_also_of_an_included_file(
    plugins: Plugins, tmp_path: Path
) -> None:
    parts = {"trainer": {"use": "practice"}, "limits": {"turns": 3}}
    (tmp_path / "base.yaml").write_text(json.dumps(SMALL | parts))
    (tmp_path / "c.yaml").write_text("include: [base.yaml]\ntrainer: null\nlimits:\n")
    config = load(tmp_path / "c.yaml", plugins=plugins)
    assert (config.stages, config.limits.turns) == ((), 100)
    assert config.digest == from_data(SMALL, plugins=plugins).digest
    (tmp_path / "c.yaml").write_text("include: [base.yaml]\npolicy: null\ntrainr: null\n")
    with pytest.raises(ConfigError, match="trainr: unknown section; did you mean 'trainer'") as e:
        load(tmp_path / "c.yaml", plugins=plugins)
    assert "section 'policy' is missing" in str(e.value)


@pytest.mark.parametrize("section", ["task", "agents", "policy"])
def test_the_three_sections_that_every_config_needs(plugins: Plugins, section: str) -> None:
    with pytest.raises(ConfigError, match=f"section '{section}' is missing"):
        from_data({name: SMALL[name] for name in SMALL if name != section}, plugins=plugins)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({1: 2}, "x: key 1 is not text"),
        ([{"\ud800": 1}], "text with half of a surrogate pair"),
        (json.loads("[" * 60 + "]" * 60), "more than 48 levels deep"),
    ],
)
def test_plain_data_that_no_config_can_hold_is_a_problem(
    plugins: Plugins, value: Any, problem: str
) -> None:
    assert problems({"x": value}, plugins) == [problem]


# ------------------------------------------------------------------ wiring


def team(*members: Any, **more: Any) -> dict[str, Any]:
    return {"use": "team", "members": list(members), "policy": {"use": "order"}, **more}


@pytest.mark.parametrize(
    ("agents", "problem"),
    [
        (
            {"a": {"use": "echo", "model": "mian"}},
            "agents.a.model: no model is called 'mian' (no models are defined)",
        ),
        (
            {"a": {"use": "echo", "model": "api"}},
            "agents.a.model: no model is called 'api'; write {use: api} (no models are defined)",
        ),
        ({"a": team("b", policy="ordr"), "b": {"use": "echo"}}, "given as {use: ...}, got 'ordr'"),
        ({"a": team("b", "b2"), "b": {"use": "echo"}}, "did you mean 'b'? (defined: a, b)"),
        ({"a": team("a")}, "agents.a: refers to itself: agents.a -> agents.a"),
        (
            {"a": team("b"), "b": team("a")},
            "agents.a: refers to itself: agents.a -> agents.b -> agents.a",
        ),
        ({"a": team({"use": "order"})}, "agents.a.members[0].use: no installed plugin supplies"),
        ({"a": team({"use": "echo", "times": 0})}, "agents.a.members[0].times: must be at least"),
        ({"a": team()}, "agents.a.members: must have at least 1 elements"),
        ({"a": team("b", policy="order"), "b": {"use": "echo"}}, "a policy is named only by 'pol"),
        (
            {"a": team("b", judges={"x": 3}), "b": {"use": "echo"}},
            "agents.a.judges.x: expected the",
        ),
        (
            {"a": team("b", judges={"use": "api"}), "b": {"use": "echo"}},
            "agents.a.judges: expected names, each with a component; 'use' cannot be a name",
        ),
    ],
)
def test_references_that_lead_nowhere_are_problems(
    plugins: Plugins, agents: dict[str, Any], problem: str
) -> None:
    found = problems({"agents": agents}, plugins)
    assert len(found) == 1
    assert problem in found[0]


def test_what_refers_to_something_broken_is_not_reported_as_well(plugins: Plugins) -> None:
    agents = {"a": team("b"), "b": {"use": "echo", "times": 0}}
    assert len(problems({"agents": agents}, plugins)) == 1


def test_a_long_chain_of_components_is_a_problem_and_no_crash(plugins: Plugins) -> None:
    agents = {f"a{i}": team(f"a{i + 1}") for i in range(400)} | {"a400": {"use": "echo"}}
    found = problems({"agents": agents}, plugins)
    assert any("more than 24 components, each in the next" in p for p in found)


def test_a_team_in_which_every_agent_is_part_of_something_is_empty() -> None:
    @frozen
    class Guided(Policy):
        guide: Agent

    plugins = with_component(Guided, "policies")
    policy = {"use": "odd", "guide": "a"}
    found = problems({"policy": policy}, plugins)
    assert found == ["agents: the team is empty: every agent is part of another"]
    assert problems({"policy": {**policy, "agents": ["a"]}}, plugins) == []


def test_the_policy_may_be_named_from_within(plugins: Plugins) -> None:
    agents = {"a": team("b", policy="policy"), "b": {"use": "echo"}}
    config = small(plugins, agents=agents)
    assert config.components["agents.a"].refs["policy"] == ("policy",)
    assert config.resolved()["agents"]["a"]["policy"] == "policy"
    config = small(plugins, agents=agents, policy={"use": "order", "agents": ["a"]})
    assert config.roster == ("agents.a",)


def test_a_plugin_says_what_to_write_for_names_it_no_longer_has() -> None:
    plugins = with_parts()
    removed = {
        "agent shout": "write {use: echo}",
        "agent echo.volume": "write `loud`",
        "agent echo.mode=z": "write `mode: a`",
    }
    next(iter(plugins._results.values())).namespace.ORCHESTRION_REMOVED = removed  # type: ignore[union-attr]
    agents = {
        "a": {"use": "shout"},
        "b": {"use": "echo", "volume": 3, "mode": "z"},
    }
    assert problems({"agents": agents}, plugins) == [
        "agents.a.use: no installed plugin supplies an agent 'shout'; write {use: echo}",
        "agents.b.volume: write `loud`",
        "agents.b.mode: write `mode: a`",
    ]


# ------------------------------------------------------------------ faulty components


def with_component(cls: type, hook: str = "agents") -> Plugins:
    """Plugins that supply this class under the name "odd", besides the usual parts."""
    globals()[cls.__name__] = cls
    supply = hookimpl(specname=f"orchestrion_{hook}")(
        lambda: [Component("odd", f"{__name__}:{cls.__name__}", "")]
    )
    plugins = with_parts()
    plugins.register(SimpleNamespace(supply=supply), "odd")
    return plugins


def odd(cls: type, **settings: Any) -> str:
    found = problems({"agents": {"a": {"use": "odd", **settings}}}, with_component(cls))
    assert len(found) == 1
    return found[0]


@frozen
class Deep:
    """A nested class that wants a component."""

    model: Model


def made(annotation: Any, default: Any = None, name: str = "x", base: type = Agent) -> type:
    """A component with one setting."""
    setting = field(type=annotation, default=default)
    return make_class("Odd", {name: setting}, bases=(base,), frozen=True)


@pytest.mark.parametrize(
    ("cls", "reason"),
    [
        (made(set[int]), "Odd.x: set cannot stand in a config"),
        (made(complex), "Odd.x: complex cannot stand in a config"),
        (made(dict[int, int]), "the keys of a mapping must be str"),
        (made(dict[str, int] | dict[str, str]), "two alternatives could both be written as a map"),
        (made(Model | str), "text could be a value or the name of a component"),
        (made(list[Model] | tuple[Model, ...]), "two alternatives could both be written as a list"),
        (made("NoWhere"), "an annotation cannot be resolved: name 'NoWhere'"),
        (made(Model, object()), "a component that is wired in can have no default but None"),
        (made(str, name="use"), "Odd.use: a setting cannot be called 'use'"),
    ],
)
def test_annotations_that_no_setting_can_have_are_the_plugins_fault(cls: type, reason: str) -> None:
    text = odd(cls)
    message = "agents.a: agent 'odd' of plugin 'odd' (odd) cannot be configured: "
    assert text.startswith(message)
    assert reason in text


def test_a_component_is_wired_into_the_own_fields_of_another_only() -> None:
    problem = odd(made(Deep), x={"model": "m"})
    assert "a model can be wired into a component's own fields only" in problem


def test_the_agents_of_a_policy_are_no_setting_of_its_own() -> None:
    plugins = with_component(made(tuple[str, ...], (), "agents", Policy), "policies")
    [problem] = problems({"policy": {"use": "odd"}}, plugins)
    assert problem.endswith("a policy cannot have a setting called 'agents'")


def test_a_class_that_raises_when_it_is_made_is_one_problem_without_secrets() -> None:
    @frozen
    class OddInit(Agent):
        text: str

        def __attrs_post_init__(self) -> None:
            raise ValueError(f"no {self.text} please")

    assert odd(OddInit, text="milk").endswith("agents.a: no milk please")
    assert odd(OddInit, text="${env:KEY}").startswith("agents.a: not accepted (ValueError; not sh")


def test_every_failing_validator_speaks_even_beside_a_wrong_type() -> None:
    @frozen
    class OddValidators(Agent):
        x: int = field(default=0)
        y: int = field(default=0)
        z: Annotated[int, Meta(ge=0)] = 0

        @x.validator
        def _x(self, attribute: Any, value: int) -> None:
            if value > self.z:
                raise ValueError("x must not be above z")

        @y.validator
        def _y(self, attribute: Any, value: int) -> None:
            if value:
                raise ValueError("y must be zero")

    plugins = with_component(OddValidators)
    settings = {"use": "odd", "x": 1, "y": 1}
    assert len(problems({"agents": {"a": settings}}, plugins)) == 2
    # z did not structure, so what x says about it is not known yet.
    assert len(problems({"agents": {"a": {**settings, "z": "0"}}}, plugins)) == 2


def test_a_plugin_may_add_a_kind_with_a_section_of_its_own(site: Site) -> None:
    site.plugin(
        "court",
        """
        from typing import Protocol
        from attrs import frozen
        from orchestrion import Agent, Kind

        class Judge(Protocol):
            def judge(self) -> float: ...

        @frozen
        class Strict(Judge):
            bar: float = 0.5

        @frozen
        class Judged(Agent):
            judge: Judge

        @hookimpl
        def orchestrion_kinds():
            yield Kind("judge", "judges", "court_plugin:Judge")

        @hookimpl
        def orchestrion_components():
            yield "judge", Component("strict", "court_plugin:Strict", "strict")

        @hookimpl
        def orchestrion_agents():
            yield Component("judged", "court_plugin:Judged", "judged")
        """,
    )
    plugins = site.plugins()
    assert Kind("judge", "judges", "court_plugin:Judge") in plugins.kinds().values()
    plugins.register(parts_plugin("orchestrion_test_parts"), "parts")
    agents = {"a": {"use": "judged", "judge": "j"}}
    config = small(plugins, agents=agents, judges={"j": {"use": "strict", "bar": 1}})
    assert config.components["agents.a"].refs == {"judge": ("judges.j",)}
    assert config.resolved()["judges"] == {"j": {"use": "strict", "bar": 1.0}}
    assert [p.name for p in config.plugins_used] == ["court", "parts"]
    judges = {"j": {"use": "strict"}, "k": {"use": "strict"}}
    with pytest.raises(ConfigError, match=r"judges\.k: defined, but nothing uses it"):
        small(plugins, agents=agents, judges=judges)


# ------------------------------------------------------------------ resolved


def test_a_resolved_config_loads_again_to_an_equal_one(
    config: Config, tmp_path: Path, plugins: Plugins
) -> None:
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    written = load(tmp_path / "again.yaml", env=ENV, plugins=plugins)
    for again in (from_data(config.resolved(), env=ENV, plugins=plugins), written):
        assert again == config
        assert again.digest == config.digest
        assert again.resolved() == config.resolved()


def test_a_resolved_config_has_every_default(config: Config) -> None:
    resolved = config.resolved()
    assert resolved["agents"]["one"]["times"] == 1
    assert resolved["agents"]["one"]["part"] == {"size": 1, "tags": []}
    assert resolved["limits"] == {"turns": 12, "calls": None, "tokens": None}
    assert list(resolved["agents"]) == ["one", "inner", "team"]


def test_settings_inside_nested_classes_are_not_lost(plugins: Plugins) -> None:
    agents = {"a": {"use": "echo", "parts": {"x": {"size": 4, "tags": ["t"]}}}}
    resolved = small(plugins, agents=agents, run={"concurrency": 3}).resolved()
    assert resolved["agents"]["a"]["parts"] == {"x": {"size": 4, "tags": ["t"]}}
    assert resolved["run"]["concurrency"] == 3


def test_the_digest_changes_with_what_decides_the_result_only(
    tmp_path: Path, plugins: Plugins
) -> None:
    digest = read(TEXT, tmp_path, plugins).digest
    for same in ("run.name=x", "run.concurrency=1", "run.directory=/tmp", "agents.one.times=1"):
        assert read(TEXT, tmp_path, plugins, same).digest == digest
    for other in ("seed=8", "agents.one.text=x", "run.timeout=5", "limits.turns=11"):
        assert read(TEXT, tmp_path, plugins, other).digest != digest
    swapped = TEXT.replace("[one, team]", "[team, one]")
    assert read(swapped, tmp_path, plugins).digest != digest


def test_the_order_of_agents_is_part_of_the_digest(plugins: Plugins) -> None:
    def digest(*names: str) -> str:
        return small(plugins, agents={name: {"use": "echo"} for name in names}).digest

    assert digest("a", "b") == digest("a", "b") != digest("b", "a")


# ------------------------------------------------------------------ secrets


def secret_config(plugins: Plugins, api: dict[str, Any], **env: str) -> Config:
    sections = {
        "models": {"m": {"use": "api", **api}},
        "agents": {"a": {"use": "echo", "model": "m"}},
    }
    return from_data({**SMALL, **sections}, env={**ENV, **env}, plugins=plugins)


def test_values_from_the_environment_are_dumped_as_references(config: Config) -> None:
    assert config.components["models.main"].component.key == "sk-very-secret"
    assert config.resolved()["models"]["main"]["key"] == "${env:KEY}"
    assert "sk-very-secret" not in json.dumps(config.resolved()) + config.to_yaml()


def test_secrets_written_into_a_config_are_masked(plugins: Plugins) -> None:
    api = {"key": "sk-literal", "headers": {"a": "tok-1", "b": "Bearer ${env:KEY}"}}
    resolved = secret_config(plugins, api).resolved()
    assert resolved["models"]["m"] == {
        "use": "api",
        "key": "<masked>",
        "headers": {"a": "<masked>", "b": "Bearer ${env:KEY}"},
        "url": "http://localhost",
        "timeout": 1.0,
    }
    with pytest.raises(ConfigError) as caught:
        from_data(resolved, env=ENV, plugins=plugins)
    assert [p.path for p in caught.value.problems] == ["models.m.key", "models.m.headers"]  # type: ignore[attr-defined]
    assert "masked when the config was stored" in str(caught.value)


def test_a_password_in_an_address_comes_from_the_environment(plugins: Plugins) -> None:
    def resolved(url: str) -> Any:
        variables = {"DB_PW": "hunter-7766", "ADDRESS": "https://me:other%218855@host/x"}
        config = secret_config(plugins, {"key": "${env:KEY}", "url": url}, **variables)
        return config.resolved()["models"]["m"]["url"]

    for url in ("http://me:${env:DB_PW}@host", "${env:ADDRESS}", "http://host:80/a:b@c"):
        assert resolved(url) == url
    place = "[models.m.url]"
    assert hidden("hunter-7766, other%218855, other!8855") == f"{place}, {place}, {place}"
    assert resolved("http://h/?a=1&write_token=${env:DB_PW}&b").endswith("=${env:DB_PW}&b")
    for url in (
        "http://me:literal-4433@host",
        "http://${env:KEY}:literal-4433@host/",
        "http://host/?write_token=literal-4433",
    ):
        with pytest.raises(ConfigError, match=r"models\.m\.url: has a password") as caught:
            resolved(url)
        assert "literal-4433" not in str(caught.value)


def test_no_message_repeats_a_secret(plugins: Plugins) -> None:
    wrong: list[dict[str, Any]] = [
        {"key": ["sk-literal"]},
        {"headers": "sk-literal"},
        {"headers": {"x": ["sk-literal"]}},
        {"timeout": "${env:KEY}"},
        {"url": ["${env:KEY}"]},
        {"timeout": 200, "url": "http://${env:KEY}"},
    ]
    for api in wrong:
        with pytest.raises(ConfigError) as caught:
            secret_config(plugins, api)
        assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        "agents=${env:KEY}",
        "agents.a=${env:KEY}",
        "agents.a.use=${env:KEY}",
        "agents.a.model=${env:KEY}",
        "agents.a.mode=${env:KEY}",
        "agents.a.code=${env:KEY}",
        "agents.a.even=${env:KEY}",
        "policy.agents=['${env:KEY}']",
        "policy=${env:KEY}",
        "limits=${env:KEY}",
        "run.observers=['${env:KEY}']",
        "evaluation.baselines=${env:KEY}",
        "evaluation.baselines=['${env:KEY}']",
        "models=${env:KEY}",
    ],
)
def test_no_message_repeats_what_came_from_the_environment(plugins: Plugins, change: str) -> None:
    found = problems({}, plugins, change)
    assert found != []
    assert "sk-" not in "\n".join(found)


def test_a_dotenv_file_beside_the_config_adds_variables(tmp_path: Path, plugins: Plugins) -> None:
    (tmp_path / ".env").write_text("KEY=from-file\nOTHER=2\n")
    (tmp_path / "c.yaml").write_text(TEXT)
    config = load(tmp_path / "c.yaml", env={}, plugins=plugins)
    assert config.components["models.main"].component.key == "from-file"
    assert config.environment["OTHER"] == "2"
    config = load(tmp_path / "c.yaml", env=ENV, plugins=plugins)
    assert config.components["models.main"].component.key == "sk-very-secret"


def test_the_config_of_a_run_finds_the_dotenv_file_where_the_run_began(
    tmp_path: Path, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "config.yaml").write_text(TEXT)
    (tmp_path / ".env").write_text("KEY=from-here\n")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "runs" / "config.yaml"
    assert load(run, env={}, plugins=plugins).environment["KEY"] == "from-here"
    (tmp_path / "runs" / ".env").write_text("KEY=from-beside\n")
    assert load(run, env={}, plugins=plugins).environment["KEY"] == "from-beside"


# ------------------------------------------------------------------ overlays


def test_an_overlay_changes_learnable_settings(config: Config, plugins: Plugins) -> None:
    assert config.learnable() == {
        "agents.one.text": "hello",
        "agents.inner.text": "hi",
        "agents.team.members[1].text": "hi",
    }
    changed = config.with_overlay({"agents.one.text": "x", "agents.team.members[1].text": "y"})
    assert changed.components["agents.one"].component.text == "x"
    assert changed.components["agents.team"].component.members[1].text == "y"
    assert changed.digest != config.digest
    assert config.components["agents.one"].component.text == "hello"
    assert from_data(changed.resolved(), env=ENV, plugins=plugins) == changed


def test_what_a_trainer_writes_is_never_expanded(config: Config, plugins: Plugins) -> None:
    changed = config.with_overlay({"agents.one.text": "say ${env:KEY}"})
    assert changed.components["agents.one"].component.text == "say ${env:KEY}"
    again = from_data(changed.resolved(), env=ENV, plugins=plugins)
    assert again.components["agents.one"].component.text == "say ${env:KEY}"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("agents.one.times", 2, "not learnable"),
        ("agents.one.txt", "x", "no setting 'txt'; did you mean 'text'?"),
        ("agents.on.text", "x", "no component there; did you mean 'agents.one.text'?"),
        ("limits.turns", 3, "no component there"),
        ("", 3, "no component there"),
        ("agents.one.text", 3, "expected text, got 3"),
        ("agents.one.text", object(), "cannot stand in a config"),
    ],
)
def test_an_overlay_changes_nothing_else(
    config: Config, path: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config.with_overlay({path: value})
    assert message in str(caught.value)


# ------------------------------------------------------------------ plugins of a config


def test_run_block_acts_before_anything_is_imported(site: Site, tmp_path: Path) -> None:
    site.plugin("bad", "raise RuntimeError('imported')")
    text = "task: {use: toy}\nagents: {a: {use: echo}}\npolicy: {use: order}\nrun: {block: [bad]}"
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match="blocked plugins might: bad"):
        load(tmp_path / "c.yaml")
    assert "bad_plugin" not in sys.modules
    with pytest.raises(ConfigError, match="RuntimeError: imported"):
        load(tmp_path / "c.yaml", ["run.block=[]"])


def test_observers_are_the_plugins_in_use_and_those_listed() -> None:
    seen: list[str] = []

    class Watching:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def orchestrion_run_finished(self, status: str) -> None:
            seen.append(self.name)

    plugins = with_parts()
    plugins.register(Watching("listed"), "listed")
    plugins.register(Watching("idle"), "idle")
    config = small(plugins, run={"observers": ["listed"]})
    config.observers().run_finished(None, "completed")
    assert seen == ["listed"]


def test_components_of_a_kind_that_observes_have_hooks_and_decide_nothing(site: Site) -> None:
    site.plugin(
        "press",
        """
        from attrs import frozen
        from orchestrion import Kind

        seen = []

        @frozen
        class Paper:
            title: str = ""

            def observe(self):
                return Reporter(self.title) if self.title != "odd" else Odd()

        class Reporter:
            def __init__(self, title):
                self.title = title

            def orchestrion_run_finished(self, status):
                seen.append((self.title, status))

        class Odd:
            def orchestrion_run_ended(self, status):
                pass

        @hookimpl
        def orchestrion_kinds():
            yield Kind("paper", "papers", "press_plugin:Paper", observes=True)

        @hookimpl
        def orchestrion_components():
            yield "paper", Component("paper", "press_plugin:Paper", "tells of runs")
        """,
    )
    plugins = site.plugins()
    plugins.register(parts_plugin("orchestrion_test_parts"), "parts")
    plain = small(plugins)
    config = small(plugins, papers={"one": {"use": "paper", "title": "news"}})
    config.observers().run_finished(None, "completed")
    assert importlib.import_module("press_plugin").seen == [("news", "completed")]
    assert (config.digest, config.components) == (plain.digest, plain.components)
    assert from_data(config.resolved(), plugins=plugins) == config
    odd = small(plugins, papers={"one": {"use": "paper", "title": "odd"}})
    with pytest.raises(RunError, match=r"papers\.one .*no lifecycle hook 'orchestrion_run_ended'"):
        odd.observers()


def test_a_misspelt_override_is_told_the_key_that_the_file_gives(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "task: {use: toy, size: 3}\nagents: {a: {use: echo}}\npolicy: {use: order}\n"
        "trainer: [{use: practice}, {use: practice}]\n"
    )

    def problem(override: str) -> str:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / "c.yaml", [override], plugins=with_parts())
        return str(caught.value)

    assert "  -o task.siz: unknown key; did you mean 'size'?" in problem("task.siz=4"), "named once"
    assert "write trainer[1]" in problem("trainer.1.lr=2")
    assert "write trainer[0]" in problem("trainer.lr=2")


def test_settings_have_the_paths_of_overrides() -> None:
    data = {"a": {"b": [1, 2], "c": [{"d": None}]}, "e": {}}
    paths: dict[str, Any] = {"a.b": [1, 2], "a.c[0].d": None, "e": {}}
    assert dict(flat(data)) == paths
    assert {path: value_at(data, path) for path in paths} == paths
    assert [value_at(data, path) for path in ("a.c[1].d", "a.b.c", "x", "")] == [None] * 4
