"""Sweeps: which settings of a config are best, found by trials under one budget.

result = asyncio.run(sweep("sweep.yaml"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_sweep.sweeping import SweepResult as SweepResult
    from orchestrion_sweep.sweeping import sweep as sweep

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
