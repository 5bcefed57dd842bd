"""Configs: read, checked, wired.

config = load("orchestrion.yaml", ["policy.hidden=[64]"])
for path, entry in config.components.items():   # each after what is wired into it
    ...
"""

from __future__ import annotations

from orchestrion.config.components import Entry
from orchestrion.config.loading import from_data, load
from orchestrion.config.nodes import Problem
from orchestrion.config.plain import to_yaml
from orchestrion.config.reading import read_as, read_data, read_section, text_as
from orchestrion.config.result import Config
from orchestrion.config.sections import Baseline, Budget, Evaluation, Limits, RunSettings

__all__ = [
    "Baseline",
    "Budget",
    "Config",
    "Entry",
    "Evaluation",
    "Limits",
    "Problem",
    "RunSettings",
    "from_data",
    "load",
    "read_as",
    "read_data",
    "read_section",
    "text_as",
    "to_yaml",
]
