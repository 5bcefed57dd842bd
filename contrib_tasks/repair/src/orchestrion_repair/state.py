"""The environment of a repair: what is known about a program, and what was tried on it.

States are immutable. They change by what agents report in `Output.data`, in one of these forms:

    {"tool": "tests", "on": digest, "results": [...]}       visible tests were run
    {"tool": "edits", "on": digest, "tried": [...], ...}    candidates were run
    {"tool": "lint", "on": digest, "findings": [...]}       lines that look odd
    {"code": source}                                        another program, from any agent

A report about another program than the current one (`on`) is ignored. Reports are believed only
for what is shown next; the verdict is the verifier's, from the program itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from orchestrion import JSON, Member, Turn
from orchestrion_repair.operators import FAMILIES
from orchestrion_repair.ranking import ProbeResults, Program, ochiai, program
from orchestrion_repair.symptoms import kinds_of_cases, symptoms

if TYPE_CHECKING:
    from orchestrion_repair.learned import EditModel, EditSituation, Ranked

MOST_CODE = 100_000
"""Characters of a program; a longer one from an agent is ignored."""


@frozen
class Target:
    """The part of a problem that never changes.

    Args:
        entry_point: the function to repair.
        prelude: source that statements among the cases need.
        visible: the visible cases, as JSON.
        arguments: the kind of each argument, as far as the cases show it.
        limits: how far one program may go, as `Limits` takes them.
    """

    entry_point: str
    prelude: str
    visible: tuple[Any, ...]
    arguments: tuple[str, ...]
    limits: Mapping[str, int]


@frozen
class RepairState:
    """What is known.

    Args:
        target: the function to repair.
        code: the current program.
        results: outcomes of the visible tests on it, if known.
        last: as long as these are not known: what the tests gave that ran last, on an edit of the
            program, with their numbers.
        suspicion: Ochiai's coefficient by line, if tests were run with coverage.
        seen: what probes showed of candidates when tests were run.
        tried: numbers of the candidates that were run.
        boosts: by line, the best share of failing tests that an edit there mended.
        moved: by line, how many edits there changed what the first failing test gives.
        findings: lines that a linter named.
        calls: how many calls each agent had in each region.
        turns: how many turns there were.
        executions: test executions so far.
        fixed: whether an agent says that all visible tests pass.
        improved: whether the current program is one that an agent proposed.
        skills: the families of every agent that tries edits, as far as known.
        testers: the agents that run the visible tests, as far as known.
        done: agents that have nothing more to say about this program.
        model: a learned ranking of edits; None for the untrained one.
    """

    target: Target
    code: str
    results: tuple[Any, ...] | None = None
    last: tuple[tuple[int, Any], ...] = ()
    suspicion: tuple[tuple[int, float], ...] | None = None
    seen: ProbeResults = ProbeResults()
    tried: frozenset[int] = frozenset()
    boosts: tuple[tuple[int, float], ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    findings: tuple[int, ...] = ()
    calls: tuple[tuple[str, int], ...] = ()
    turns: int = 0
    executions: float = 0.0
    fixed: bool = False
    improved: bool = False
    skills: Skills = ()
    testers: tuple[str, ...] = ()
    done: frozenset[str] = frozenset()
    model: EditModel | None = None

    @property
    def failing(self) -> tuple[int, ...]:
        """Return the numbers of the visible tests that are known to fail."""
        return tuple(i for i, r in enumerate(self.results or ()) if not r["passed"])


def target_of(data: Mapping[str, Any]) -> Target:
    """Return the part of a problem's data that never changes.

    Args:
        data: has `entry_point`, `visible` (cases as JSON), `limits`, and perhaps `prelude`.
    """
    entry_point, visible = data["entry_point"], tuple(data["visible"])
    kinds = kinds_of_cases(visible, entry_point)
    return Target(entry_point, data.get("prelude", ""), visible, kinds, data["limits"])


def digest_of(code: str) -> str:
    """Return a short name of a program, by which reports say what they are about."""
    return blake2b(code.encode(errors="replace"), digest_size=8).hexdigest()


def program_of(state: RepairState) -> Program:
    """Return the current program with all its candidates."""
    return program(state.code, state.target.entry_point, state.target.arguments)


def ranking_of(state: RepairState) -> Ranked:
    """Return the current program's lines and untried edits, the most promising first."""
    from orchestrion_repair.learned import begin, rank

    return rank(state.model or begin(), program_of(state), situation_of(state))


def situation_of(state: RepairState) -> EditSituation:
    """Return what the ranking goes by."""
    from orchestrion_repair.learned import EditSituation

    shares = symptoms_of(state).items()
    return EditSituation(
        suspicion=state.suspicion,
        symptoms=tuple((name, share) for name, share in shares if share),
        gains=state.boosts,
        moved=state.moved,
        seen=state.seen,
        raised=tuple(sorted(raised_in(state))),
        odd=state.findings,
        tried=state.tried,
    )


def symptoms_of(state: RepairState) -> dict[str, float]:
    """Return the shares of tests with each symptom, see `symptoms`; all 0 without results."""
    results = state.results
    cases = () if results is None else state.target.visible
    return symptoms(results or (), cases, state.target.entry_point)


def raised_in(state: RepairState) -> set[int]:
    """Return the lines from which tests raised exceptions."""
    return {result["line"] for result in state.results or () if result["line"] is not None}


def blocked(state: RepairState) -> frozenset[str]:
    """Return agents, and options of agents, that are known to have nothing left to do."""
    from orchestrion_repair.features import outlooks

    used_up = (name for name, outlook in outlooks(state).items() if not outlook.left)
    return state.done.union(used_up)


# ---------------------------------------------------------------- what turns do


def after(state: RepairState, turn: Turn) -> RepairState:
    """Return the state after a turn; a malformed report changes nothing but the counts."""
    state = evolve(
        state, turns=state.turns + 1, executions=state.executions + turn.output.usage.cost
    )
    data = turn.output.data
    if turn.status != "completed" or not isinstance(data, dict):
        return state
    try:
        if data.get("on") == digest_of(state.code) and data.get("tool", "") in _REPORTS:
            state = _REPORTS[data["tool"]](state, data, turn)
        code = data.get("code")
        if isinstance(code, str) and code != state.code and len(code) <= MOST_CODE:
            code.encode()  # half of a surrogate pair could stand in no record
            state = _replaced(state, code, data)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return state
    return state


def _tests(state: RepairState, data: Mapping[str, JSON], turn: Turn) -> RepairState:
    results = tuple(_result(result) for result in data["results"])
    if len(results) != len(state.target.visible):
        return state
    return evolve(
        state,
        results=results,
        seen=seen_of(data, results),
        last=(),
        suspicion=_suspicion(results) or state.suspicion,
        fixed=all(result["passed"] for result in results),
        done=state.done | {turn.agent},
    )


def seen_of(data: Mapping[str, JSON], results: Sequence[Mapping[str, Any]]) -> ProbeResults:
    """Return what probes showed, if there were any."""
    same = [int(bits or "0", 16) for bits in data.get("same", ())]
    if len(same) != len(results):
        return ProbeResults()
    probed, inert, kept = int(data["probed"], 16), 0, []
    for result, bits in zip(results, same, strict=True):
        if result["passed"]:
            kept.append(f"{bits:x}")
        else:
            inert |= bits
    return ProbeResults(f"{probed:x}", f"{inert & probed:x}", tuple(kept))


def _suspicion(results: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, float], ...] | None:
    """Return Ochiai's coefficient by line; None if the results say nothing of lines."""
    runs = [(result["passed"], frozenset(result["lines"])) for result in results]
    return tuple(sorted(ochiai(runs).items())) or None


def _result(report: Mapping[str, JSON]) -> dict[str, JSON]:
    line = report.get("line")
    asserted = {"want": report["want"]} if "want" in report else {}
    return {
        **asserted,
        "passed": bool(report["passed"]),
        "error": str(report.get("error", "")),
        "got": report.get("got"),
        "line": int(line) if line is not None else None,
        "lines": [int(number) for number in report.get("lines", ())],
    }


def _edits(state: RepairState, data: Mapping[str, JSON], turn: Turn) -> RepairState:
    boosts, moved = dict(state.boosts), dict(state.moved)
    for line, share in data["gains"]:
        boosts[int(line)] = max(boosts.get(int(line), 0.0), min(1.0, float(share)))
    for line, number in data["moved"]:
        moved[int(line)] = moved.get(int(line), 0) + int(number)
    calls, choice = dict(state.calls), f"{turn.agent}:{data['region']}"
    calls[choice] = calls.get(choice, 0) + 1
    last = tuple((int(number), _result(result)) for number, result in data.get("last", ()))
    return evolve(
        state,
        last=last or state.last,
        tried=state.tried | {int(number) for number in data["tried"]},
        boosts=tuple(sorted(boosts.items())),
        moved=tuple(sorted(moved.items())),
        calls=tuple(sorted(calls.items())),
    )


def _lint(state: RepairState, data: Mapping[str, JSON], turn: Turn) -> RepairState:
    lines = tuple(sorted({int(line) for line, _ in data["findings"]}))
    return evolve(state, findings=lines, done=state.done | {turn.agent})


def _replaced(state: RepairState, code: str, data: Mapping[str, JSON]) -> RepairState:
    """Return a state with another program; what was tried belongs to the one before."""
    results: Sequence[Any] | None = data.get("results")
    new = RepairState(
        target=state.target,
        code=code,
        calls=state.calls,
        turns=state.turns,
        executions=state.executions,
        improved=True,
        skills=state.skills,
        testers=state.testers,
        model=state.model,
    )
    if results is None or len(results) != len(state.target.visible):
        return new
    known = tuple(_result(result) for result in results)
    fixed = all(result["passed"] for result in known)
    return evolve(new, results=known, suspicion=_suspicion(known), fixed=fixed)


_REPORTS = {"tests": _tests, "edits": _edits, "lint": _lint}


# ---------------------------------------------------------------- what agents can do


Skills = tuple[tuple[str, tuple[str, ...]], ...]
"""Agents with their families, in the order of the team."""

RUNS_TESTS = "runs the visible tests"
"""The role of an agent that reports test results begins so."""
_START = "tries edits: "


def role_of(families: Sequence[str]) -> str:
    """Return the role of an agent that tries edits of these families."""
    return _START + ", ".join(families)


def skills_of(roster: Iterable[Member]) -> Skills:
    """Return the members of a team that try edits."""
    skills = []
    for member in roster:
        names = member.role.removeprefix(_START).split(", ")
        families = tuple(name for name in names if name in FAMILIES)
        if families and member.role.startswith(_START):
            skills.append((member.name, families))
    return tuple(skills)


def testers_of(roster: Iterable[Member]) -> tuple[str, ...]:
    """Return the members of a team that run the visible tests."""
    return tuple(member.name for member in roster if member.role.startswith(RUNS_TESTS))
