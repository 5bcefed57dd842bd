"""Program repair as a task for Orchestrion.

Public for agents, and for tasks whose problems are programs too: the state of a program under
repair, the runner, and the edits. The module `orchestrion_repair.rows` is public as well: it reads
the public formats of programs with tests. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion import names_on_first_use

if TYPE_CHECKING:
    from orchestrion_repair.alternatives import probed as probed
    from orchestrion_repair.bug import Case as Case
    from orchestrion_repair.files import raw_rows as raw_rows
    from orchestrion_repair.operators import Candidate as Candidate
    from orchestrion_repair.ranking import REGIONS as REGIONS
    from orchestrion_repair.ranking import program as program
    from orchestrion_repair.ranking import propose as propose
    from orchestrion_repair.runner import Runner as Runner
    from orchestrion_repair.runner import shared_runner as shared_runner
    from orchestrion_repair.state import RUNS_TESTS as RUNS_TESTS
    from orchestrion_repair.state import RepairState as RepairState
    from orchestrion_repair.state import Skills as Skills
    from orchestrion_repair.state import Target as Target
    from orchestrion_repair.state import after as after
    from orchestrion_repair.state import digest_of as digest_of
    from orchestrion_repair.state import role_of as role_of
    from orchestrion_repair.state import skills_of as skills_of
    from orchestrion_repair.state import target_of as target_of
    from orchestrion_repair.task import observed as observed
    from orchestrion_repair.trial import Outcome as Outcome
    from orchestrion_repair.trial import ProgramTrial as ProgramTrial
    from orchestrion_repair.trial import RepairLimits as RepairLimits

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
