"""Language models with local weights: sampled in batches, trained in place.

This module exports what trainers of other packages use, beside `orchestrion_local.interfaces`.
Names are imported on first use, so that listing plugins loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrion_local.naming import check_known as check_known
    from orchestrion_local.naming import names_of as names_of
    from orchestrion_local.naming import settings_by_model as settings_by_model
    from orchestrion_local.naming import unsynced as unsynced
    from orchestrion_local.optimizing import WeightOptimizer as WeightOptimizer
    from orchestrion_local.settings import Optimizer as Optimizer

_MODULES = {
    "Optimizer": "settings",
    "WeightOptimizer": "optimizing",
    "check_known": "naming",
    "names_of": "naming",
    "settings_by_model": "naming",
    "unsynced": "naming",
}

__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'orchestrion_local' has no attribute {name!r}")
    value = getattr(import_module(f"orchestrion_local.{module}"), name)
    globals()[name] = value
    return value
