"""Every attack is held by the default backend, and gets past one that is weaker.

The second half is what makes the first one mean something: an attack that nothing lets through
would prove nothing by being held.
"""

from __future__ import annotations

import pytest
from orchestrion_sandbox.interface import Result

from tests.plugins.sandbox.attacks.every import ATTACKS
from tests.plugins.sandbox.conftest import Boxes
from tests.plugins.sandbox.scene import Attack, Scene


def tried(
    boxes: Boxes, backend: str, attack: Attack, seconds: float = 20.0
) -> tuple[Result, list[str]]:
    """Return the result, and everything the attack reached."""
    runner, box = boxes(backend)
    with Scene() as scene:
        result = runner.run(scene.play(box, attack))
        return result, scene.breaches(attack, result, seconds)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_the_default_backend_holds(boxes: Boxes, attack: Attack) -> None:
    result, breaches = tried(boxes, "namespaces", attack)
    assert breaches == [], result
    assert result.status in attack.ends, result


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_a_weaker_backend_does_not(boxes: Boxes, attack: Attack) -> None:
    result, breaches = tried(boxes, attack.weak, attack, 0.5)
    assert breaches, result


@pytest.mark.parametrize("attack", [a for a in ATTACKS if not a.landlock], ids=lambda a: a.name)
def test_landlock_holds_what_its_level_promises(boxes: Boxes, attack: Attack) -> None:
    result, breaches = tried(boxes, "landlock", attack)
    assert breaches == [], result
