"""The environment of a review: the latest version, and what is publicly known about it.

States are immutable and hold nothing hidden. From the first version on they hold a repair state of
`orchestrion-repair`, so that its agents (`run-tests`, `mutate`, `lint`) work on the visible
examples. Reviewers may report in `Output.data`, beside their text:

    {"tool": "review", "on": digest, "defect": true}     their opinion of a version

Reports change what is shown next, and never the scores.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from attrs import asdict, evolve, frozen
from orchestrion_repair import (
    RepairLimits,
    RepairState,
    Skills,
    Target,
    after,
    digest_of,
    observed,
    target_of,
)

from orchestrion import JSON, Observation, Turn, replace
from orchestrion_code_review.challenge import LEVELS, Challenge, Test
from orchestrion_code_review.versions import code_of


@frozen
class Work:
    """What is known during an episode.

    Args:
        target: the function and its visible examples, as repair agents read them.
        level: of the problem.
        skills: families of edits by agent.
        state: of the latest version; None before the first.
        writer: the agent of the first version.
        author: the agent of the latest version.
        versions: number of versions.
        turns: number of turns.
        defect: what the last review of the latest version says; None if there is none.
        reviewed: whether a version before the latest was reviewed.
    """

    target: Target
    level: str
    skills: Skills = ()
    state: RepairState | None = None
    writer: str = ""
    author: str = ""
    versions: int = 0
    turns: int = 0
    defect: bool | None = None
    reviewed: bool = False


def target_data(challenge: Challenge) -> dict[str, JSON]:
    """Return the public part of a problem, which agents read as data."""
    return {
        "entry_point": challenge.entry_point,
        "level": challenge.level,
        "examples": [example.to_json() for example in challenge.examples],
        "visible": [_visible(example, challenge.entry_point) for example in challenge.examples],
        "limits": asdict(RepairLimits()),
    }


def begun(data: Mapping[str, Any], skills: Skills = ()) -> Work:
    """Return what is known at the start: the problem alone."""
    return Work(target_of(data), data["level"], skills)


def advanced(work: Work, turn: Turn) -> Work:
    """Return the work after a turn; a malformed report changes nothing but the counts."""
    work = evolve(work, turns=work.turns + 1)
    if turn.status != "completed":
        return work
    code = code_of(turn)
    if code is not None and (work.state is None or code != work.state.code):
        work = _replaced(work, turn, code)
    if work.state is None:
        return work
    state = after(work.state, turn)
    match turn.output.data:
        case {"tool": "review", "on": on, "defect": bool(defect)} if on == digest_of(state.code):
            return evolve(work, state=state, defect=defect)
    return evolve(work, state=state)


def _replaced(work: Work, turn: Turn, code: str) -> Work:
    """Return the work with another version."""
    state, data = work.state, turn.output.data
    # Code in the data is taken over by the repair state itself, which believes what an agent says
    # of its examples.
    if state is None or not isinstance(data, Mapping) or data.get("code") != code:
        state = RepairState(work.target, code, skills=work.skills)
    return evolve(
        work,
        state=state,
        writer=work.writer or turn.agent,
        author=turn.agent,
        versions=work.versions + 1,
        defect=None,
        reviewed=work.reviewed or work.defect is not None,
    )


# ---------------------------------------------------------------- what is shown


def shown(work: Work) -> Observation:
    """Return the observation for people, agents and learned policies."""
    numbers = tuple(features(work).values())
    if work.state is None:
        blocked = frozenset(name for name, _ in work.skills)
        return Observation("No version yet.", None, numbers, blocked)
    seen = observed(work.state)
    review = {None: "not reviewed", True: "reviewed: a defect", False: "reviewed: fine"}
    head = f"Version {work.versions}, by {work.author}, {review[work.defect]}."
    return replace(seen, text=f"{head}\n\n{seen.text}", features=numbers)


def features(work: Work) -> dict[str, float]:
    """Return the features for learned policies. The hints of the choices have those of edits."""
    state = work.state
    results = state.results if state is not None else None
    passing = sum(bool(result["passed"]) for result in results) / len(results) if results else 0.0
    numbers: dict[str, float] = {
        "has a version": state is not None,
        "versions": min(1.0, work.versions / 4),
        "turns": min(1.0, work.turns / 8),
        "latest is not the writer's": work.author != work.writer,
        "examples known": bool(results),
        "share passing": passing,
        "all pass": bool(results) and passing == 1,
        "reviewed": work.defect is not None,
        "review says defect": work.defect is True,
        "review says fine": work.defect is False,
        "earlier version was reviewed": work.reviewed,
        "linted": state is not None and "lint" in state.done,
        "lint found something": state is not None and bool(state.findings),
        "has types": _typed(state.code) if state is not None else 0.0,
        **{level: work.level == level for level in LEVELS},
    }
    return {name: float(number) for name, number in numbers.items()}


@lru_cache(maxsize=10_000)
def _typed(code: str) -> float:
    """Return the share of parameters and results with a type annotation."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
    typed: list[bool] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            typed.append(node.returns is not None)
            typed += (parameter.annotation is not None for parameter in node.args.args)
    return sum(typed) / len(typed) if typed else 0.0


# ---------------------------------------------------------------- examples as repair reads them


def _visible(test: Test, entry_point: str) -> dict[str, JSON]:
    case = test.case(entry_point)
    if case is None or case.raises or case.named or not _is_json([list(case.args), case.wanted]):
        return {"assert": test.statement}
    return {"call": list(case.args), "want": case.wanted}


def _is_json(value: Any) -> bool:
    """Return whether a value is the same after it was written and read as JSON."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
