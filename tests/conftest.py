"""Settings that hold for every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no reason to fail: no deadline. Where CI decides, examples do not change from
# one run to the next.
settings.register_profile("local", deadline=None)
settings.register_profile(
    "ci-orchestrion", deadline=None, derandomize=True, print_blob=True, max_examples=40
)
settings.load_profile("ci-orchestrion" if os.environ.get("CI") else "local")

TESTS = Path(__file__).parent
LONG = ("test_conformance.py", "docs", "end_to_end", "packaging", "plugins/marl")
"""Whose files take long; none of them must be what one processor is left with at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long; everything else stays in order."""
    paths = [TESTS / name for name in LONG]
    items.sort(key=lambda item: not any(item.path.is_relative_to(path) for path in paths))
