"""Configs: read, checked, wired.

config = load("orchestrion.yaml", ["policy.hidden=[64]"])
for path, entry in config.components.items():   # each after what is wired into it
    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion._lazy import names_on_first_use

if TYPE_CHECKING:
    from orchestrion._config.components import Entry as Entry
    from orchestrion._config.loading import Draft as Draft
    from orchestrion._config.loading import draft as draft
    from orchestrion._config.loading import from_data as from_data
    from orchestrion._config.loading import load as load
    from orchestrion._config.loading import read_as as read_as
    from orchestrion._config.loading import read_data as read_data
    from orchestrion._config.loading import read_section as read_section
    from orchestrion._config.loading import text_as as text_as
    from orchestrion._config.nodes import Problem as Problem
    from orchestrion._config.nodes import flat as flat
    from orchestrion._config.nodes import value_at as value_at
    from orchestrion._config.result import Config as Config
    from orchestrion._config.sections import Baseline as Baseline
    from orchestrion._config.sections import Budget as Budget
    from orchestrion._config.sections import Evaluation as Evaluation
    from orchestrion._config.sections import Limits as Limits
    from orchestrion._config.sections import RunSettings as RunSettings
    from orchestrion._config.yaml import to_yaml as to_yaml

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
