"""Language models with local weights: sampled in batches, trained in place.

This module exports what trainers of other packages use, beside `orchestrion_local.interfaces`.
Names are imported on first use, so that listing plugins loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_local.hf import check_known as check_known
    from orchestrion_local.hf import names_of as names_of
    from orchestrion_local.hf import settings_by_model as settings_by_model
    from orchestrion_local.hf import unsynced as unsynced
    from orchestrion_local.optimizing import WeightOptimizer as WeightOptimizer
    from orchestrion_local.optimizing import check_memory as check_memory
    from orchestrion_local.optimizing import micro_batches as micro_batches
    from orchestrion_local.settings import Optimizer as Optimizer

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
