"""All attacks, by family: see each module."""

from __future__ import annotations

from tests.plugins.sandbox.attacks.integrity import INTEGRITY
from tests.plugins.sandbox.attacks.kernel import KERNEL
from tests.plugins.sandbox.attacks.reach import REACH
from tests.plugins.sandbox.attacks.resources import RESOURCES

ATTACKS = [*RESOURCES, *REACH, *INTEGRITY, *KERNEL]
