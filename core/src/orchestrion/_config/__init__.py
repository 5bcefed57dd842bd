"""Reads, checks and wires configs.

config = load("orchestrion.yaml", ["policy.hidden=[64]"])
for path, entry in config.components.items():   # each after what is wired into it
    ...
"""

from __future__ import annotations

from orchestrion._config.components import Entry
from orchestrion._config.loading import from_data, load
from orchestrion._config.nodes import Problem
from orchestrion._config.reading import read_as, read_data, read_section, text_as
from orchestrion._config.result import Config
from orchestrion._config.sections import Baseline, Budget, Evaluation, Limits, RunSettings
from orchestrion._config.yaml import to_yaml

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
