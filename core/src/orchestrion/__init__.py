"""Orchestrion: learn which agent acts next.

Public names are imported on first use, so that `import orchestrion` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msgspec import Meta as Meta

    from orchestrion.components import Component as Component
    from orchestrion.components import Kind as Kind
    from orchestrion.errors import BudgetError as BudgetError
    from orchestrion.errors import CallError as CallError
    from orchestrion.errors import CheckpointError as CheckpointError
    from orchestrion.errors import ConfigError as ConfigError
    from orchestrion.errors import OrchestrionError as OrchestrionError
    from orchestrion.errors import PluginError as PluginError
    from orchestrion.errors import ReplayError as ReplayError
    from orchestrion.errors import RunError as RunError
    from orchestrion.errors import StoreError as StoreError
    from orchestrion.errors import UsageError as UsageError
    from orchestrion.hookspecs import hookimpl as hookimpl
    from orchestrion.interfaces import Agent as Agent
    from orchestrion.interfaces import Answer as Answer
    from orchestrion.interfaces import Branch as Branch
    from orchestrion.interfaces import CallLimits as CallLimits
    from orchestrion.interfaces import Calls as Calls
    from orchestrion.interfaces import Job as Job
    from orchestrion.interfaces import Member as Member
    from orchestrion.interfaces import Metrics as Metrics
    from orchestrion.interfaces import Model as Model
    from orchestrion.interfaces import OpenContext as OpenContext
    from orchestrion.interfaces import Plan as Plan
    from orchestrion.interfaces import Policy as Policy
    from orchestrion.interfaces import Request as Request
    from orchestrion.interfaces import RewardFunction as RewardFunction
    from orchestrion.interfaces import Session as Session
    from orchestrion.interfaces import Situation as Situation
    from orchestrion.interfaces import Stateful as Stateful
    from orchestrion.interfaces import Task as Task
    from orchestrion.interfaces import Trainer as Trainer
    from orchestrion.interfaces import View as View
    from orchestrion.interfaces import learnable as learnable
    from orchestrion.interfaces import no_calls as no_calls
    from orchestrion.interfaces import supports as supports
    from orchestrion.keys import Key as Key
    from orchestrion.records import JSON as JSON
    from orchestrion.records import Activation as Activation
    from orchestrion.records import Array as Array
    from orchestrion.records import Decision as Decision
    from orchestrion.records import Episode as Episode
    from orchestrion.records import Observation as Observation
    from orchestrion.records import Output as Output
    from orchestrion.records import Problem as Problem
    from orchestrion.records import Reward as Reward
    from orchestrion.records import Saved as Saved
    from orchestrion.records import Scores as Scores
    from orchestrion.records import Split as Split
    from orchestrion.records import Status as Status
    from orchestrion.records import Step as Step
    from orchestrion.records import Trajectory as Trajectory
    from orchestrion.records import Turn as Turn
    from orchestrion.records import Usage as Usage
    from orchestrion.secrets import Secret as Secret

__version__ = "0.1.0"

API_VERSION = 1
"""Raised when a plugin written for an older core stops working."""

_HOMES = {
    "components": "Component Kind",
    "errors": "BudgetError CallError CheckpointError ConfigError OrchestrionError PluginError "
    "ReplayError RunError StoreError UsageError",
    "hookspecs": "hookimpl",
    "interfaces": "Agent Answer Branch CallLimits Calls Job Member Metrics Model OpenContext Plan "
    "Policy Request RewardFunction Session Situation Stateful Task Trainer View learnable no_calls "
    "supports",
    "keys": "Key",
    "records": "JSON Activation Array Decision Episode Observation Output Problem Reward Saved "
    "Scores Split Status Step Trajectory Turn Usage",
    "secrets": "Secret",
}
_HOME = {name: f"orchestrion.{home}" for home, names in _HOMES.items() for name in names.split()}
_HOME["Meta"] = "msgspec"

__all__ = ["API_VERSION", "__version__", *sorted(_HOME)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'orchestrion' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
