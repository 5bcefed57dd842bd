"""The agent that tries edits of the syntax tree, the most promising first."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from attrs import frozen
from orchestrion_repair import (
    REGIONS,
    Candidate,
    Outcome,
    Runner,
    program,
    propose,
    role_of,
    shared_runner,
)

from orchestrion import JSON, Agent, Calls, Key, Meta, OpenContext, Output, Usage, View, no_calls
from orchestrion_repair_agents.workplace import (
    NOTHING,
    content_of,
    limits_of,
    outcome_json,
    trial_of,
    work_of,
)

Family = Literal[
    "comparison", "off-by-one", "arithmetic", "condition", "extend", "variable", "constant",
    "argument", "function", "unwrap", "wrap", "operand", "graft", "slice", "guard", "insert",
    "delete", "move", "return", "control",
]  # fmt: skip


@frozen
class Mutate(Agent):
    """Tries the best-ranked edits of some families in a region of the program.

    Options are regions: `top` is the most suspicious line, `next` the three after it, `rest` all
    others. A call tries so many candidates that were not tried before. Tests that are known to
    fail come first, and a candidate is dropped at its first failure; every execution costs 1.
    The first candidate that passes all visible tests becomes the program.

    Args:
        operators: families of edits, see the README of `orchestrion-repair`.
        candidates: how many a call tries.
    """

    operators: Annotated[list[Family], Meta(min_length=1)]
    candidates: Annotated[int, Meta(ge=1, le=1000)] = 12

    options = REGIONS
    pure = True
    ceiling = no_calls

    @property
    def role(self) -> str:
        """Return what it does, for policies that read."""
        return role_of(self.operators)

    def memo(self, view: View) -> JSON:
        """Return all that a call depends on: what it would try, whatever made that the next."""
        work = work_of(view)
        if work is None:
            return None
        proposed = _proposed(work, self.operators, view.option)
        numbers = [candidate.number for candidate in proposed[: self.candidates]]
        return [content_of(work), numbers, len(proposed), work["results"] is not None]

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Mutate]:
        """Keep the processes that programs run in from one turn to the next."""
        async with shared_runner():
            yield self

    async def act(self, view: View, key: Key, calls: Calls) -> Output:
        """Try the next candidates."""
        async with shared_runner() as runner:
            return await self._act(view, runner)

    async def _act(self, view: View, runner: Runner) -> Output:
        work = work_of(view)
        if work is None:
            return NOTHING
        proposed = _proposed(work, self.operators, view.option)
        order = _order(work)
        tries = await _run(runner, work, proposed[: self.candidates], order)
        cost = sum(len(attempt.outcomes) for attempt in tries)
        report = {
            "tool": "edits",
            "on": work["on"],
            "families": list(self.operators),
            "region": view.option or REGIONS[0],
            "left": len(proposed) - len(tries),
            **_found(work, tries, order),
        }
        if tries and _passes(tries[-1], order):
            report |= {"code": tries[-1].code, "results": [{"passed": True}] * len(order)}
        return Output(_summary(report, tries, work), report, Usage(cost=float(cost)))


@frozen
class _Try:
    """A candidate, its program, and what the tests gave."""

    candidate: Candidate
    code: str
    outcomes: tuple[Outcome, ...]


async def _run(
    runner: Runner, work: Mapping[str, Any], candidates: Sequence[Candidate], order: list[int]
) -> list[_Try]:
    """Return what each candidate gave, up to the first that passes; later ones were not needed."""
    codes = [candidate.apply(work["code"]) for candidate in candidates]
    trials = [trial_of(work, code, order, stop=True) for code in codes]
    reports = await runner.run(trials, limits_of(work))
    tries: list[_Try] = []
    for candidate, code, outcomes in zip(candidates, codes, reports, strict=True):
        tries.append(_Try(candidate, code, outcomes))
        if _passes(tries[-1], order):
            break
    return tries


# ---------------------------------------------------------------- reading the task


def _proposed(
    work: Mapping[str, Any], families: Sequence[str], option: str | None
) -> list[Candidate]:
    """Return what could be tried, the most promising first."""
    current = program(work["code"], work["entry_point"], tuple(work["arguments"]))
    return propose(current, families, work["regions"][option or REGIONS[0]], work["order"])


def _order(work: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the tests, failing ones first if it is known which fail."""
    numbers, results = range(len(work["visible"])), work["results"]
    if results is None:
        return list(numbers)
    return sorted(numbers, key=lambda number: bool(results[number]["passed"]))


# ---------------------------------------------------------------- reporting


def _passes(attempt: _Try, order: Sequence[int]) -> bool:
    return len(attempt.outcomes) == len(order) > 0 and attempt.outcomes[-1].passed


def _found(work: Mapping[str, Any], tries: Sequence[_Try], order: Sequence[int]) -> dict[str, JSON]:
    """Return what was tried, and what it showed of lines and of the first failing test."""
    failing = sum(not result["passed"] for result in work["results"] or ())
    gains: dict[int, float] = {}
    moved: Counter[int] = Counter()
    for attempt in tries if failing else ():
        line, first = attempt.candidate.line, attempt.outcomes[0]
        # The share of the failing tests that were mended, as far as they were run.
        passed = sum(outcome.passed for outcome in attempt.outcomes)
        if passed:
            gains[line] = max(gains.get(line, 0.0), min(passed, failing) / failing)
        before = work["results"][order[0]]
        if first.passed or (before["error"], before["got"]) != (first.error, first.got):
            moved[line] += 1
    last = tries[-1].outcomes if tries and work["results"] is None else ()
    return {
        "tried": [attempt.candidate.number for attempt in tries],
        "gains": sorted(gains.items()),
        "moved": sorted(moved.items()),
        "last": [[number, outcome_json(o)] for number, o in zip(order, last, strict=False)],
    }


def _summary(report: Mapping[str, Any], tries: Sequence[_Try], work: Mapping[str, Any]) -> str:
    if not tries:
        return f"Nothing left to try in region {report['region']}."
    lines = sorted({attempt.candidate.line for attempt in tries})
    where = f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
    text = f"{len(tries)} edits tried on {where}"
    if "code" not in report:
        mended = [str(line) for line, _ in report["gains"]]
        some = f"; some on line {', '.join(mended)} mend a test" if mended else ""
        return f"{text}: none passes all tests{some}."
    edit = next(attempt.candidate for attempt in tries if attempt.code == report["code"])
    old = " ".join(work["code"][edit.start : edit.end].split())
    new = " ".join(edit.text.split())
    return f"{text}. Line {edit.line}, {edit.family}: `{old}` becomes `{new}`."
