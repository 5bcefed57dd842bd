"""A run that was begun by an earlier version goes on with this one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from orchestrion.config import load

AGENT = """
from attrs import Factory, frozen
from orchestrion import Agent, Output

@frozen
class Voice:
    loud: bool = False
    {of_voice}

@frozen
class Shout(Agent):
    voice: Voice = Factory(Voice)
    marks: int = 1
    {of_agent}

    def act(self, view, key, calls):
        return Output("!" * self.marks)
"""
CONFIG = """
task: {use: relay}
agents:
  one: {use: "shouting:Shout", marks: 2}
  two: {use: "shouting:Shout"}
policy: {use: round-robin}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "shouting.py"
    path.write_text(AGENT.format(of_voice="", of_agent=""))
    yield path
    sys.modules.pop("shouting", None)


def reloaded(path: Path, text: str) -> ModuleType:
    sys.modules.pop("shouting", None)
    path.write_text(text)
    importlib.invalidate_caches()
    return importlib.import_module("shouting")


def test_settings_that_were_added_since_change_nothing_and_others_do(module: Path) -> None:
    written = module.with_name("config.yaml")
    written.write_text(CONFIG)
    begun = load(written)
    written.write_text(begun.to_yaml())  # as a run's folder has it
    added = AGENT.format(of_voice="pitch: float = 1.0", of_agent="echo: bool = False")
    reloaded(module, added)
    now = load(written)
    assert now.digest != begun.digest
    assert now.is_unchanged(begun.digest)
    for old, new in (("marks: 2", "marks: 3"), ("loud: false", "loud: true"), ("two:", "three:")):
        text = begun.to_yaml()
        assert old in text
        written.write_text(text.replace(old, new, 1))
        assert not load(written).is_unchanged(begun.digest), new
    written.write_text(begun.to_yaml().replace("marks: 1", "marks: 1, echo: true"))
    assert not load(written).is_unchanged(begun.digest), "a new setting that is set"


def test_settings_may_come_in_another_order_than_in_the_version_that_began_a_run(
    module: Path,
) -> None:
    written = module.with_name("config.yaml")
    written.write_text(CONFIG)
    begun = load(written)
    written.write_text(begun.to_yaml())
    voice, marks = "    voice: Voice = Factory(Voice)\n", "    marks: int = 1\n"
    text = AGENT.format(of_voice="", of_agent="").replace(voice + marks, marks + voice)
    reloaded(module, f"# another size than before, or byte code might be taken from there\n{text}")
    now = load(written)
    assert now.digest != begun.digest
    assert now.is_unchanged(begun.digest)
