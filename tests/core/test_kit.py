"""The conformance kit, where no installed plugin shows what it does."""

from __future__ import annotations

import asyncio
import math
import random
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrion import Key, Kind, Trajectory, Turn
from orchestrion._components import KINDS
from orchestrion._plugins import Plugins
from orchestrion.testing import ScriptedAgent, _task_contracts, _watch, parametrize_with_checks
from orchestrion.testing._kit import Check, checks
from orchestrion.testing._stage import config_for
from tests.core import planted
from tests.core.planted import CLEAN, PLANTED, Planted
from tests.core.plugin_support import Site

AGENT = "@hookimpl\ndef orchestrion_agents():\n    yield Component('a', '{}_a:A', 'an agent')\n"
POLICY = next(kind for kind in KINDS if kind.name == "policy")


def test_a_component_of_a_plugins_kind_stands_in_the_section_of_its_kind() -> None:
    around = {"judges": {"other": {"use": "kind"}}}
    many = Kind("judge", "judges", "court:Judge")
    data = config_for(many, "court:strict", {"bar": 1}, around)
    assert data["judges"] == {"other": {"use": "kind"}, "tested": {"use": "court:strict", "bar": 1}}
    assert "judge" not in data
    one = Kind("judge", "judge", "court:Judge", many=False)
    assert config_for(one, "court:strict", {}, {})["judge"] == {"use": "court:strict"}


def test_a_component_of_cores_kinds_takes_the_place_of_the_kits() -> None:
    assert config_for(POLICY, "mine", {"x": 1}, {})["policy"] == {"use": "mine", "x": 1}


# ---------------------------------------------------------------------------- planted mistakes


def _checks(kind: str, cls: type) -> list[Check]:
    plugins = Plugins(path=[], env={})
    plugins.register(Planted(kind, cls), "planted")
    label = f"{kind} {cls.__name__.lower()}"
    return [check for check in checks("planted", plugins) if check.component == label]


def _run(kind: str, cls: type, only: str = "") -> dict[str, str]:
    """The checks of this class that fail, with what they say."""
    failed = {}
    for check in _checks(kind, cls):
        if only in ("", check.name):
            try:
                check.run()
            except Exception as error:  # `check` reports any
                failed[check.name] = str(error)
    return failed


@pytest.mark.parametrize(
    ("kind", "cls", "check", "words"), PLANTED, ids=[f"{k}-{c.__name__}" for k, c, *_ in PLANTED]
)
def test_a_planted_mistake_is_found_and_named(kind: str, cls: type, check: str, words: str) -> None:
    assert words in _run(kind, cls, only=check).get(check, "it passes")


@pytest.mark.parametrize(("kind", "cls"), CLEAN, ids=[f"{k}-{c.__name__}" for k, c in CLEAN])
def test_its_clean_twin_passes(kind: str, cls: type) -> None:
    assert _run(kind, cls) == {}


@pytest.mark.parametrize(
    ("kind", "cls", "counts"),
    [
        ("agent", planted.Counting, [4, 4, 2, 20, 0, 36, 0]),
        ("task", planted.Sums, [27, 9, 4, 17, 27]),
        ("reward", planted.Outcome, [36, 9, 0]),
        ("policy", planted.Bandit, [456, 72, 24, 2, 1, 48]),
        ("trainer", planted.Practice, [2, 12, 0, 1]),
    ],
)
def test_a_check_says_how_many_examples_it_tried(kind: str, cls: type, counts: list[int]) -> None:
    assert [check.run() for check in _checks(kind, cls)] == [1, 0, 1, 1, 1, *counts]


def test_a_plugin_that_imports_a_heavy_library_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site.folder))
    for name, heavy in (("weighty", "import numpy"), ("slight", "import json")):
        site.plugin(name, AGENT.format(name), **{f"{name}_a": f"{heavy}\nclass A: pass\n"})
    light, *_ = checks("slight", site.plugins())
    assert (light.name, light.run()) == ("is light", 1)
    heavy_check, *_ = checks("weighty", site.plugins())
    with pytest.raises(AssertionError, match="component modules imports numpy; import heavy"):
        heavy_check.run()
    (site.folder / "weighty_a.py").write_text("import no_such_module")
    with pytest.raises(AssertionError, match=r"(?s)in a fresh process: .*No module named .*\n"):
        heavy_check.run()


def test_each_check_of_a_plugin_is_a_case_of_pytest_and_some_may_be_known_to_fail(
    site: Site,
) -> None:
    site.plugin("slight", AGENT.format("slight"), slight_a="class A: pass")
    reasons = {"is light": "it is not", "agent a: opens twice without shared state": "nor that"}
    cases = parametrize_with_checks("slight", reasons).args[1]  # type: ignore[attr-defined]
    marked = {case.id: case.marks[0].kwargs["reason"] for case in cases if case.marks}
    assert marked == {"plugin: is light": "it is not", [*reasons][1]: "nor that"}
    assert {case.id.partition(": ")[0] for case in cases} == {"plugin", "agent a"}
    site.plugin("hollow", "")
    with pytest.raises(AssertionError, match="plugin 'hollow' supplies nothing to check"):
        parametrize_with_checks("hollow")


def test_required_settings_without_an_example_are_one_failure_that_says_where_to_give_them(
    site: Site,
) -> None:
    module = """
from attrs import frozen
from orchestrion import Agent, Output
@frozen
class A(Agent):
    '''Says a word.

    Args:
        word: what it says.
    '''
    word: str
    async def act(self, view, key, calls):
        return Output(self.word)
"""
    site.plugin("wordy", AGENT.format("wordy"), wordy_a=module)
    *others, last = (c for c in checks("wordy", site.plugins()) if c.component == "agent a")
    assert [check.run() for check in others] == [1, 1, 1]
    with pytest.raises(AssertionError, match=r"Component\('a', ..., example={\"word\": ...}\)"):
        last.run()
    supplied = AGENT.replace("'an agent'", "'an agent', example={{'word': 'hello'}}")
    site.plugin("worded", supplied.format("worded"), worded_a=module)
    assert "has an example" not in {check.name for check in checks("worded", site.plugins())}


@pytest.mark.parametrize(
    ("secrets", "enough"),
    [
        ("1 2 3", True),
        ("1 2 1 2 1 2", False),
        ("1 2 1 2 1 2 1 2", True),
        ("abcd efgh", True),
        ("abcd efgh abcd", False),
        ("abc efgh", False),
    ],
)
def test_hidden_values_are_looked_for_where_others_are_not_equal_by_chance(
    secrets: str, enough: bool
) -> None:
    assert _task_contracts._differ_enough(secrets.split()) is enough


NESTED: Any = "a"
for _ in range(30):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("value", "other", "same"),
    [
        (math.nan, math.nan, True),
        ([1, {"a": 1, "b": 2}], (1, {"b": 2, "a": 1}), True),
        ({"x", "y"}, {"y", "x"}, True),
        ({"x"}, {"y"}, False),
        (Key(1), Key(1), True),
        (Key(1), Key(2), False),
        (np.ones(2), np.ones(2), True),
        (np.ones(2), np.zeros(2), False),
        (np.zeros(2, np.int64), np.zeros(2), False),
        (Trajectory([Turn(0, "a")]), Trajectory([Turn(0, "a")]), True),
        (Trajectory([Turn(0, "a")]), Trajectory([Turn(0, "b")]), False),
        (ScriptedAgent(pure=True), ScriptedAgent(), False),
        (NESTED, [NESTED], True),  # so far down nobody looks
    ],
)
def test_a_snapshot_tells_whether_anything_changed(value: Any, other: Any, same: bool) -> None:
    assert (_watch.snapshot(value) == _watch.snapshot(other)) is same


@pytest.mark.parametrize(
    ("computing", "spin", "is_long"),
    [(0.2, 0.004, True), (0.09, 0.001, False), (0.5, 0.04, False), (2.0, 0.04, True)],
)
def test_a_step_computes_for_long_by_what_the_machine_does_just_now(
    monkeypatch: pytest.MonkeyPatch, computing: float, spin: float, is_long: bool
) -> None:
    monkeypatch.setattr(_watch, "_spin", lambda: spin)
    assert _watch._is_long(computing) is is_long


def test_there_are_as_many_planted_mistakes_as_it_takes() -> None:
    assert len(PLANTED) >= 50


def test_what_a_library_draws_while_it_is_imported_is_not_the_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draws_when_imported.py").write_text("import random\nNUMBER = random.random()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with _watch.drawing() as imported:
        import_module("draws_when_imported")
    imported.check_own("act()")
    with _watch.drawing() as own:
        random.random()
    with pytest.raises(AssertionError, match="the process shares"):
        own.check_own("act()")


class Clocks:
    """The clocks of a thread that sleeps, and that loses the processor as it reads them."""

    def __init__(self, lost: float) -> None:
        self.now = self.queued = 0.0
        self.lost = lost
        self.readings = 0

    def wait_in_queue(self) -> float:
        self.readings += 1
        if self.readings % 2 == 0:
            self.now += self.lost
            self.queued += self.lost
        return self.queued

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("seconds", "refused"), [(0.3, True), (0.0, False)])
def test_the_pace_of_a_component_is_the_same_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, seconds: float, refused: bool
) -> None:
    clocks = Clocks(lost=0.25)
    monkeypatch.setattr(time, "perf_counter", lambda: clocks.now)
    monkeypatch.setattr(time, "thread_time", float)
    monkeypatch.setattr(_watch, "_queued", clocks.wait_in_queue)
    work = _watch.check_pace("act()", lambda: clocks.sleep(seconds), "await")
    if not refused:
        asyncio.run(work)
        return
    with pytest.raises(AssertionError, match=r"slept or waited for 0\.30 s in one step"):
        asyncio.run(work)
