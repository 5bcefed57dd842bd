"""The conformance kit, where no installed plugin shows what it does."""

from __future__ import annotations

from orchestrion import Kind
from orchestrion.components import KINDS
from orchestrion.testing.stage import config_for

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
