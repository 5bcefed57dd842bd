"""The conformance kit, where no installed plugin shows what it does."""

from __future__ import annotations

import pytest

from orchestrion import Kind
from orchestrion._components import KINDS
from orchestrion._plugins import Plugins
from orchestrion.testing._kit import checks
from orchestrion.testing._stage import config_for
from tests.core.planted import CLEAN, PLANTED, Planted

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


def _run(kind: str, cls: type, only: str = "") -> dict[str, str]:
    """The checks of this class that fail, with what they say."""
    plugins = Plugins(path=[], env={})
    plugins.register(Planted(kind, cls), "planted")
    failed = {}
    for check in checks("planted", plugins):
        if check.component == f"{kind} {cls.__name__.lower()}" and only in ("", check.name):
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


def test_there_are_as_many_planted_mistakes_as_it_takes() -> None:
    assert len(PLANTED) >= 44
