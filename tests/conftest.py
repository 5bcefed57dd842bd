"""Settings that hold for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# A busy machine is no reason to fail: no deadline. Where CI decides, examples do not change from
# one run to the next.
settings.register_profile("local", deadline=None)
settings.register_profile(
    "ci-orchestrion", deadline=None, derandomize=True, print_blob=True, max_examples=40
)
settings.load_profile("ci-orchestrion" if os.environ.get("CI") else "local")
