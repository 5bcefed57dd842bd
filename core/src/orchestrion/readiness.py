"""Whether the parts of a config, once they are open, can work with each other.

Nothing is run and nothing is called: a run asks before it begins, and `validate` asks without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrion.engine.calls import CallPath
from orchestrion.engine.opening import Opened
from orchestrion.guards import calling, check_problems, place_of
from orchestrion.keys import Key
from orchestrion.records import Split
from orchestrion.session import EngineSession

__all__ = ["check_ready", "check_trainer"]


def check_ready(opened: Opened) -> None:
    """Hold a task to its contract, and every trainer against what it is to train.

    Raises:
        UsageError: a split that is used is empty, or a trainer refuses.
        RunError: a component broke its contract.
    """
    config = opened.config
    baselines = config.evaluation.baselines.values()
    used: list[Split] = [config.evaluation.split]
    if config.stages or any(one.trainer for one in baselines):
        used.append("train")
    check_problems(opened.runtimes["task"], used, place_of(config, "task"))
    for path in config.stages:
        check_trainer(opened, path)
    for one in baselines:
        if one.trainer is not None:
            check_trainer(opened, one.trainer, one.policy, one.agents)


def check_trainer(
    opened: Opened, path: str, policy: str = "policy", agents: Sequence[str] | None = None
) -> None:
    """Ask a trainer whether it can train this policy with this team.

    Raises:
        UsageError: it cannot.
        RunError: it raised something else.
    """
    # Trainers need not subclass the protocol, which has the default.
    check: Any = getattr(opened.runtimes[path], "check", None)
    if check is None:
        return
    engine = opened.engine(CallPath(), policy, agents)
    key = Key(opened.config.seed)
    try:
        with calling(place_of(opened.config, path), "check"):
            check(EngineSession(engine, "check", key, key))
    finally:
        engine.close()
