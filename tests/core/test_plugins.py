"""Plugins are found from metadata, loaded one by one, and hurt nobody when they are broken."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrion import Component, Kind, PluginError, RunError, _importing, hookimpl, load_object
from orchestrion._discovery import COMMANDS, GROUP, installed
from orchestrion._plugins import Plugins
from orchestrion.cli import main
from tests.core.plugin_support import Site

GOOD = """
    @hookimpl
    def orchestrion_agents():
        yield Component("critic", "good_parts:Critic", "says what is wrong")
        yield Component("writer", "good_parts:Critic", "writes")
"""
CRITIC = """
    from attrs import frozen
    from orchestrion import Agent

    @frozen
    class Critic(Agent):
        strict: bool = False

    class Plain:
        pass
"""


def why(plugins: Plugins, kind: str, use: str) -> str:
    with pytest.raises(PluginError) as caught:
        plugins.find(kind, use)
    return str(caught.value)


def failure_of(plugins: Plugins, name: str) -> tuple[str, str]:
    plugins.load_all()
    failure = plugins.failure(plugins.get(name))
    assert failure is not None
    return failure.state, failure.reason


# ------------------------------------------------------------------ the index


def test_the_index_names_distribution_version_and_summary_without_importing(site: Site) -> None:
    site.plugin("good", "raise RuntimeError('imported')")
    (plugin,) = site.plugins().installed
    assert plugin.name == "good"
    assert plugin.origin == "orchestrion-good 1.0"
    assert plugin.summary == "made for a test"
    assert plugin.location == str(site.folder)
    assert "orchestrion_good_plugin" not in sys.modules
    assert "good_plugin" not in sys.modules


@pytest.mark.parametrize("metadata", [b"\xff\xfe\xff", b"Version: 1.0\n"])
def test_damaged_metadata_of_one_distribution_hides_no_other(site: Site, metadata: bytes) -> None:
    site.plugin("good", GOOD)
    for name, distribution in (("bad", "orchestrion-bad"), ("other", "of-another-project")):
        site.plugin(name, GOOD, distribution)
        folder = f"{distribution.replace('-', '_')}-1.0.dist-info"
        (site.folder / folder / "METADATA").write_bytes(metadata)
    plugins = site.plugins()
    assert [p.name for p in plugins.installed] == ["good", "orchestrion-bad"]
    assert failure_of(plugins, "orchestrion-bad")[0] == "broken"


def test_the_first_of_two_installations_of_a_distribution_counts(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Site(tmp_path_factory.mktemp("other"))
    site.plugin("good", GOOD)
    other.add("orchestrion-good", {"orchestrion": {"good": "elsewhere"}}, {}, version="9")
    plugins = Plugins(path=[str(site.folder), str(other.folder)], env={})
    assert [p.version for p in plugins.installed] == ["1.0"]


# ------------------------------------------------------------------ looking up


def test_a_bare_name_is_looked_up_in_all_plugins(site: Site) -> None:
    site.plugin("good", GOOD, good_parts=CRITIC)
    plugins = site.plugins()
    found = plugins.find("agent", "critic")
    assert str(found) == "agent 'critic' of plugin 'good' (orchestrion-good 1.0)"
    assert plugins.component_class(found).__name__ == "Critic"


def test_only_the_class_in_use_is_imported(site: Site) -> None:
    site.plugin("good", GOOD, good_parts=CRITIC)
    plugins = site.plugins()
    found = plugins.find("agent", "critic")
    assert "good_parts" not in sys.modules
    plugins.component_class(found)
    assert "good_parts" in sys.modules


@pytest.mark.parametrize(
    "use", ["good:critic", "orchestrion-good:critic", "Orchestrion_Good:critic"]
)
def test_a_qualified_name_loads_one_plugin_only(site: Site, use: str) -> None:
    site.plugin("good", GOOD)
    site.plugin("other", "raise RuntimeError('imported')")
    plugins = site.plugins()
    assert plugins.find("agent", use).component.name == "critic"
    assert "other_plugin" not in sys.modules


def test_two_suppliers_of_one_name_are_told_apart_by_distribution(site: Site) -> None:
    site.plugin("good", GOOD)
    site.plugin("twin", GOOD)
    message = why(site.plugins(), "agent", "critic")
    assert "write 'orchestrion-good:critic' or 'orchestrion-twin:critic'" in message
    found = site.plugins().find("agent", "orchestrion-twin:critic")
    assert found.plugin.name == "twin"


@pytest.mark.parametrize(
    ("kind", "use", "words"),
    [
        ("agnt", "critic", ["no kind 'agnt'", "did you mean 'agent'"]),
        ("policy", "critic", ["no installed plugin supplies a policy 'critic'", "of kind agent"]),
        ("agent", "critc", ["supplies an agent 'critc'", "did you mean 'critic'?"]),
        ("agent", "CRITIC", ["did you mean 'critic'?"]),
        ("agent", "zzz", ["(installed: critic, writer)"]),
        ("model", "zzz", ["nor any other model"]),
        ("agent", "goood:critic", ["no plugin called 'goood'", "did you mean 'good'?"]),
        ("agent", "good:critc", ["plugin 'good' (orchestrion-good 1.0)", "did you mean 'critic'?"]),
        ("policy", "good:critic", ["it supplies no policy at all"]),
    ],
)
def test_an_unknown_name_is_diagnosed_step_by_step(
    site: Site, kind: str, use: str, words: list[str]
) -> None:
    site.plugin("good", GOOD)
    message = why(site.plugins(), kind, use)
    for word in words:
        assert word in message


def test_a_broken_plugin_that_might_supply_a_name_is_in_the_error(site: Site) -> None:
    site.plugin("good", GOOD)
    site.plugin("bad", "import no_such_library")
    message = why(site.plugins(), "agent", "judge")
    assert "plugin 'bad' (orchestrion-bad 1.0) might, but is broken" in message
    assert "No module named 'no_such_library'" in message


# ------------------------------------------------------------------ broken plugins


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('at\\nimport')", "RuntimeError: at import"),
        ("import no_such_library", "No module named 'no_such_library'"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("@hookimpl\ndef orchestrion_agent(): return ()", "did you mean 'orchestrion_agents'?"),
        ("def orchestrion_polices(): return ()", "did you mean 'orchestrion_policies'?"),
        ("def orchestrion_agents(): return ()", "not marked with @hookimpl"),
        ("@hookimpl\ndef orchestrion_agents(config): return ()", "config"),
        ("@hookimpl(wrapper=True)\ndef orchestrion_agents(): return (yield)", "wrapper"),
        ("@hookimpl\ndef orchestrion_agents(): return 'critic'", "must yield or return a list"),
        ("@hookimpl\ndef orchestrion_agents(): return None", "must yield or return a list"),
        ("@hookimpl\ndef orchestrion_agents(): yield 'critic'", "is not a Component"),
        ("@hookimpl\ndef orchestrion_agents(): yield Component('a:b', 'm:C', '')", "cannot be"),
        ("@hookimpl\ndef orchestrion_agents(): yield Component('a', 'm.C', '')", "module:Class"),
        (
            "@hookimpl\ndef orchestrion_agents():\n    yield Component('a', 'm:C', '')\n"
            "    yield Component('a', 'm:D', '')",
            "two components of kind agent called 'a'",
        ),
        (
            "@hookimpl\ndef orchestrion_tasks():\n    yield Component('a', 'm:C', '')\n    1 / 0",
            "Zero",
        ),
        ("ORCHESTRION_API = '1'", "TypeError"),
    ],
)
def test_a_broken_plugin_is_reported_and_leaves_nothing_behind(
    site: Site, source: str, reason: str
) -> None:
    site.plugin("bad", source)
    site.plugin("good", GOOD)
    plugins = site.plugins()
    state, text = failure_of(plugins, "bad")
    assert state == "broken"
    assert reason in text
    assert "\n" not in text
    assert [f.component.name for f in plugins.components()] == ["critic", "writer"]
    assert [name for name, _ in plugins._manager.list_name_plugin()] == ["orchestrion-good:good"]
    with pytest.raises(PluginError, match=r"plugin 'bad' \(orchestrion-bad 1.0\) cannot be used"):
        plugins.load(plugins.get("bad"))


def test_the_reason_says_where_a_plugin_failed(site: Site) -> None:
    site.plugin("bad", "\n\nx = 1 / 0")
    assert f"{site.folder}/bad_plugin.py, line 4" in failure_of(site.plugins(), "bad")[1]


def test_an_interrupt_while_a_plugin_loads_is_no_failure_of_it(site: Site) -> None:
    site.plugin("bad", "raise KeyboardInterrupt")
    plugins = site.plugins()
    with pytest.raises(KeyboardInterrupt):
        plugins.load_all()
    assert plugins.failure(plugins.get("bad")) is None


def test_what_a_plugin_prints_does_not_reach_standard_output(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.plugin("loud", "print('hello')\n" + "import sys; sys.stdout.write('again')")
    site.plugins().load_all()
    out, err = capsys.readouterr()
    assert out == ""
    assert "hello" in err


def test_an_import_that_takes_long_is_announced(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Elapsed:
        """A timer whose time is over when it starts."""

        def __init__(self, seconds: float, function: Callable[[], None]) -> None:
            self.start, self.cancel = function, lambda: None

    monkeypatch.setattr(_importing, "Timer", Elapsed)
    site.plugin("good", GOOD, good_parts=CRITIC)
    plugins = site.plugins()
    plugins.component_class(plugins.find("agent", "critic"))
    plugin = "plugin 'good' (orchestrion-good 1.0) ..."
    assert capsys.readouterr().err.splitlines() == [
        f"importing {plugin}",
        f"importing agent 'critic' of {plugin}",
    ]


def test_a_plugin_is_loaded_once(site: Site) -> None:
    site.plugin("bad", "import builtins\nbuiltins.count = getattr(builtins, 'count', 0) + 1\n1 / 0")
    plugins = site.plugins()
    plugins.load_all()
    plugins.load_all()
    why(plugins, "agent", "critic")
    import builtins

    assert builtins.__dict__.pop("count") == 1


def test_classes_that_cannot_be_imported_are_errors_that_name_the_plugin(site: Site) -> None:
    site.plugin("good", GOOD, good_parts="import no_such_library")
    plugins = site.plugins()
    with pytest.raises(PluginError, match=r"orchestrion-good 1.0.*No module named 'no_such_lib"):
        plugins.component_class(plugins.find("agent", "critic"))


def test_a_component_must_be_an_attrs_class(site: Site) -> None:
    site.plugin("good", GOOD.replace("good_parts:Critic", "good_parts:Plain"), good_parts=CRITIC)
    plugins = site.plugins()
    with pytest.raises(PluginError, match="is not an attrs class"):
        plugins.component_class(plugins.find("agent", "critic"))


# ------------------------------------------------------------------ blocking


@pytest.mark.parametrize("name", ["bad", "orchestrion-bad", "Orchestrion_Bad"])
def test_a_blocked_plugin_is_not_imported(site: Site, name: str) -> None:
    site.plugin("bad", "raise RuntimeError('imported')")
    for plugins in (
        site.plugins(block=[name]),
        site.plugins(env={"ORCHESTRION_BLOCK": f"x,{name}"}),
    ):
        assert failure_of(plugins, "bad") == ("blocked", "blocked")
        assert "bad_plugin" not in sys.modules
        assert "blocked plugins might: bad" in why(plugins, "agent", "critic")


def test_the_allow_list_rules_out_everything_else(site: Site) -> None:
    site.plugin("bad", "raise RuntimeError('imported')")
    site.plugin("good", GOOD)
    plugins = site.plugins(env={"ORCHESTRION_PLUGINS": "good"})
    assert failure_of(plugins, "bad") == ("blocked", "not in ORCHESTRION_PLUGINS")
    assert plugins.find("agent", "critic")
    assert site.plugins(env={"ORCHESTRION_PLUGINS": ""}).load_all() == []


@pytest.mark.parametrize(
    ("words", "env", "reason"),
    [
        (["--block", "values"], {}, "orchestrion-values 0.2.0 supplies it and is blocked"),
        ([], {"ORCHESTRION_BLOCK": "orchestrion-values"}, "supplies it and is blocked"),
        ([], {"ORCHESTRION_PLUGINS": "serve"}, "is not in ORCHESTRION_PLUGINS"),
        ([], {"ORCHESTRION_PLUGINS": "values"}, ""),
    ],
)
def test_who_names_a_plugin_means_its_commands_too(
    words: list[str], env: dict[str, str], reason: str
) -> None:
    done = CliRunner().invoke(main, [*words, "statistics", "--help"], env=env)
    assert done.exit_code == (2 if reason else 0)
    assert reason in done.stderr


# ------------------------------------------------------------------ names claimed twice


def test_a_plugin_name_claimed_by_two_distributions_is_an_error_naming_both(site: Site) -> None:
    site.plugin("good", GOOD)
    site.plugin("good", GOOD, distribution="impostor")
    for use in ("critic", "good:critic"):
        message = why(site.plugins(), "agent", use)
        assert "impostor" in message
        assert "orchestrion-good" in message


def test_a_shared_plugin_name_is_settled_by_blocking_one_or_by_its_distribution(
    site: Site,
) -> None:
    site.plugin("good", GOOD)
    site.plugin("good", GOOD, distribution="impostor")
    assert site.plugins(block=["impostor"]).find("agent", "good:critic")
    found = site.plugins().find("agent", "orchestrion-good:critic")
    assert found.plugin.distribution == "orchestrion-good"


# ------------------------------------------------------------------ API version


@pytest.mark.parametrize("declared", ["1", "(1, 1)", "(0, 3)"])
def test_a_plugin_for_this_api_version_is_loaded(site: Site, declared: str) -> None:
    site.plugin("good", f"ORCHESTRION_API = {declared}")
    assert len(site.plugins().load_all()) == 1


@pytest.mark.parametrize(
    ("declared", "advice"), [("0", "upgrade the plugin"), ("(2, 3)", "upgrade orchestrion")]
)
def test_a_plugin_for_another_api_version_is_incompatible(
    site: Site, declared: str, advice: str
) -> None:
    site.plugin("old", f"ORCHESTRION_API = {declared}")
    state, reason = failure_of(site.plugins(), "old")
    assert state == "incompatible"
    assert advice in reason


# ------------------------------------------------------------------ kinds of plugins' own

KIND = """
    from orchestrion import Kind

    @hookimpl
    def orchestrion_kinds():
        yield Kind("judge", "judges", "{module}_plugin:Judge")

    @hookimpl
    def orchestrion_components():
        yield "judge", Component("strict", "{module}_plugin:Judge", "strict")

    class Judge:
        pass
"""


def test_a_kind_that_is_taken_makes_the_second_plugin_broken(site: Site) -> None:
    site.plugin("court", KIND.format(module="court"))
    site.plugin("later", KIND.format(module="later"))
    plugins = site.plugins()
    assert list(plugins.kinds())[-1] == "judge"
    state, reason = failure_of(plugins, "later")
    assert state == "broken"
    assert "taken by 'court'" in reason


def test_a_kind_cannot_take_a_section_of_core() -> None:
    plugins = Plugins(path=[], env={})
    hooks = SimpleNamespace(
        orchestrion_kinds=hookimpl(specname="orchestrion_kinds")(
            lambda: [Kind("x", "limits", "m:X")]
        )
    )
    plugins.register(hooks, "x")
    assert "x" not in plugins.kinds()
    assert failure_of(plugins, "x")[0] == "broken"


# ------------------------------------------------------------------ the life of a run


class Watching:
    """A plugin object with lifecycle hooks."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl
    def orchestrion_turn_finished(self, turn: Any) -> None:
        self.seen.append(turn)

    @hookimpl
    def orchestrion_run_finished(self, directory: Path | None, status: str) -> None:
        raise ValueError("no thanks")

    @hookimpl
    def orchestrion_agents(self) -> list[Component]:
        return []


def test_lifecycle_hooks_are_called_for_the_chosen_plugins_only() -> None:
    plugins = Plugins(path=[], env={})
    chosen, other = Watching(), Watching()
    plugins.register(chosen, "chosen")
    plugins.register(other, "other")
    observers = plugins.observers(["chosen", "chosen"])
    turn: Any = "turn"
    observers.turn_finished("e", turn)
    assert (chosen.seen, other.seen) == (["turn"], [])
    assert observers.of_episodes().turn_finished is not None
    assert plugins.observers([]).of_episodes().turn_finished is None
    observers.run_started(None, {}, print)


def test_a_failing_hook_fails_the_run_and_names_the_plugin() -> None:
    plugins = Plugins(path=[], env={})
    plugins.register(Watching(), "watching")
    with pytest.raises(
        RunError, match=r"'watching'.*orchestrion_run_finished: ValueError: no thanks"
    ):
        plugins.observers(["watching"]).run_finished(None, "completed")


def test_plugins_wait_at_the_end_of_a_run_when_all_were_told() -> None:
    told: list[str] = []

    class Waiting:
        def __init__(self, name: str) -> None:
            self.name = name

        @hookimpl
        def orchestrion_run_finished(self, status: str) -> Any:
            told.append(f"{self.name} {status}")
            return lambda: told.append(f"{self.name} waits")

    plugins = Plugins(path=[], env={})
    for name in "ab":
        plugins.register(Waiting(name), name)
    plugins.observers("ab").run_finished(None, "completed")
    assert sorted(told[:2]) == ["a completed", "b completed"]
    assert sorted(told[2:]) == ["a waits", "b waits"]


def test_every_lifecycle_hook_of_the_specs_has_a_method_with_its_arguments() -> None:
    import inspect

    from orchestrion import _hookspecs as hookspecs
    from orchestrion._hooks import LIFECYCLE, SPECS
    from orchestrion._observers import Observers

    suppliers = {kind.hook for kind in Plugins(path=[], env={}).kinds().values()}
    suppliers |= {"orchestrion_kinds", "orchestrion_components", "orchestrion_doctor"}
    suppliers |= {"orchestrion_sections"}
    assert suppliers | set(LIFECYCLE) == set(SPECS)
    for hook in LIFECYCLE:
        spec = inspect.signature(getattr(hookspecs, hook))
        method = inspect.signature(getattr(Observers, hook.removeprefix("orchestrion_")))
        assert list(spec.parameters) == list(method.parameters)[1:]


def test_imports_in_two_threads_at_once_leave_standard_output_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first thread to begin is the first to end."""
    inside = {name: threading.Event() for name in ("first", "second")}
    go_on = {name: threading.Event() for name in inside}

    class Slow:
        def __getattr__(self, name: str) -> str:
            if name not in inside:
                raise AttributeError(name)
            inside[name].set()
            go_on[name].wait()
            return name

    monkeypatch.setitem(sys.modules, "slow_parts", Slow())
    before, threads = sys.stdout, []
    for name in inside:
        thread = threading.Thread(target=load_object, args=(f"slow_parts:{name}", "here"))
        thread.start()
        inside[name].wait()
        assert sys.stdout is sys.stderr
        threads.append(thread)
    for name, thread in zip(inside, threads, strict=True):
        go_on[name].set()
        thread.join()
    assert sys.stdout is before


def test_a_registered_plugin_object_must_be_right_and_its_name_free() -> None:
    plugins = Plugins(path=[], env={})
    plugins.register(Watching(), "one")
    with pytest.raises(PluginError, match="is taken"):
        plugins.register(Watching(), "one")
    with pytest.raises(PluginError, match="no hook 'orchestrion_agnts'"):
        plugins.register(SimpleNamespace(orchestrion_agnts=len), "two")
    assert [p.name for p in plugins.installed] == ["one"]


def test_entry_points_of_other_groups_are_no_plugins(tmp_path: Path) -> None:
    info = tmp_path / "orchestrion_two-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: orchestrion-two\nVersion: 1.0\n")
    points = {"console_scripts": "a = two:main", GROUP: "b = two.plugin", COMMANDS: "c = two:show"}
    text = "".join(f"[{group}]\n{line}\n\n" for group, line in points.items())
    (info / "entry_points.txt").write_text(text)
    found = {group: installed(group, [str(tmp_path)]) for group in (GROUP, COMMANDS)}
    assert {group: [one.value for one in its] for group, its in found.items()} == {
        GROUP: ["two.plugin"],
        COMMANDS: ["two:show"],
    }
