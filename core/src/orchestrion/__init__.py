"""Orchestrion: learn which agent acts next.

Public names are imported on first use, so that `import orchestrion` costs next to nothing. Beside
this module, `orchestrion.config`, `orchestrion.runs`, `orchestrion.cli` and `orchestrion.testing`
are public; modules whose names begin with an underscore are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion._lazy import names_on_first_use as names_on_first_use

if TYPE_CHECKING:
    from msgspec import Meta as Meta

    from orchestrion._activations import END as END
    from orchestrion._activations import START as START
    from orchestrion._activations import Activations as Activations
    from orchestrion._activations import fold as fold
    from orchestrion._activations import waves as waves
    from orchestrion._answers import json_object as json_object
    from orchestrion._asking import load as load
    from orchestrion._bounds import ceiling_of as ceiling_of
    from orchestrion._bounds import team_ceiling as team_ceiling
    from orchestrion._bounds import times as times
    from orchestrion._choices import choice_name as choice_name
    from orchestrion._choices import choices as choices
    from orchestrion._choices import is_blocked as is_blocked
    from orchestrion._choices import parse_choice as parse_choice
    from orchestrion._components import Component as Component
    from orchestrion._components import Kind as Kind
    from orchestrion._errors import BudgetError as BudgetError
    from orchestrion._errors import CallError as CallError
    from orchestrion._errors import CheckpointError as CheckpointError
    from orchestrion._errors import ConfigError as ConfigError
    from orchestrion._errors import Fault as Fault
    from orchestrion._errors import OrchestrionError as OrchestrionError
    from orchestrion._errors import PluginError as PluginError
    from orchestrion._errors import ReplayError as ReplayError
    from orchestrion._errors import RunError as RunError
    from orchestrion._errors import StoreError as StoreError
    from orchestrion._errors import UsageError as UsageError
    from orchestrion._executors import Executor as Executor
    from orchestrion._executors import Link as Link
    from orchestrion._executors import LinkLost as LinkLost
    from orchestrion._executors import work as work
    from orchestrion._experience import Experience as Experience
    from orchestrion._experience import gather as gather
    from orchestrion._experience import laps as laps
    from orchestrion._guards import note_line as note_line
    from orchestrion._hookspecs import hookimpl as hookimpl
    from orchestrion._idle import refuse_idle as refuse_idle
    from orchestrion._importing import load_function as load_function
    from orchestrion._importing import load_object as load_object
    from orchestrion._interfaces import Agent as Agent
    from orchestrion._interfaces import Answer as Answer
    from orchestrion._interfaces import Branch as Branch
    from orchestrion._interfaces import CallLimits as CallLimits
    from orchestrion._interfaces import Calls as Calls
    from orchestrion._interfaces import Job as Job
    from orchestrion._interfaces import Member as Member
    from orchestrion._interfaces import Metrics as Metrics
    from orchestrion._interfaces import Model as Model
    from orchestrion._interfaces import OpenContext as OpenContext
    from orchestrion._interfaces import Plan as Plan
    from orchestrion._interfaces import Policy as Policy
    from orchestrion._interfaces import Request as Request
    from orchestrion._interfaces import RewardFunction as RewardFunction
    from orchestrion._interfaces import Session as Session
    from orchestrion._interfaces import Situation as Situation
    from orchestrion._interfaces import Stateful as Stateful
    from orchestrion._interfaces import Task as Task
    from orchestrion._interfaces import Trainer as Trainer
    from orchestrion._interfaces import View as View
    from orchestrion._interfaces import learnable as learnable
    from orchestrion._interfaces import no_calls as no_calls
    from orchestrion._interfaces import supports as supports
    from orchestrion._keys import Key as Key
    from orchestrion._offline import is_local as is_local
    from orchestrion._offline import is_loopback as is_loopback
    from orchestrion._records import JSON as JSON
    from orchestrion._records import Activation as Activation
    from orchestrion._records import Array as Array
    from orchestrion._records import Decision as Decision
    from orchestrion._records import Episode as Episode
    from orchestrion._records import Observation as Observation
    from orchestrion._records import Output as Output
    from orchestrion._records import Problem as Problem
    from orchestrion._records import Reward as Reward
    from orchestrion._records import Saved as Saved
    from orchestrion._records import Scores as Scores
    from orchestrion._records import Split as Split
    from orchestrion._records import Status as Status
    from orchestrion._records import Step as Step
    from orchestrion._records import Trajectory as Trajectory
    from orchestrion._records import Turn as Turn
    from orchestrion._records import TurnStatus as TurnStatus
    from orchestrion._records import Usage as Usage
    from orchestrion._records import answering as answering
    from orchestrion._records import replace as replace
    from orchestrion._routing import router as router
    from orchestrion._secrets import Secret as Secret
    from orchestrion._secrets import hidden as hidden
    from orchestrion._secrets import hidden_bytes as hidden_bytes
    from orchestrion._secrets import register as register
    from orchestrion._secrets import register_named as register_named
    from orchestrion._splits import SplitShares as SplitShares
    from orchestrion._splits import split_of as split_of
    from orchestrion._splits import splits_of as splits_of
    from orchestrion._stored_run import Run as Run
    from orchestrion._suggest import did_you_mean as did_you_mean
    from orchestrion._threads import in_thread as in_thread
    from orchestrion._training import aevaluate as aevaluate
    from orchestrion._training import aresume as aresume
    from orchestrion._training import atrain as atrain
    from orchestrion._training import evaluate as evaluate
    from orchestrion._training import resume as resume
    from orchestrion._training import train as train

__version__ = "0.2.0"

API_VERSION = 1
"""Raised when a plugin written for an older core stops working."""

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
__all__ += ["API_VERSION", "__version__", "names_on_first_use"]
