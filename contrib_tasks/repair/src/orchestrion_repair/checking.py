"""What a collection's problems give when they are run once, before anybody works on them.

A problem is fair if a failing test can be seen, and if a right program passes under the run's
limits. So each program is run on all its tests when a collection is opened, and its solution too
if there is one. What cannot be mended here is left out, and said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest

from attrs import evolve, frozen

from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.loaders import Collection
from orchestrion_repair.rows import divided
from orchestrion_repair.runner import Runner
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits

_LIMITS = frozenset({"OutOfSteps", "OutOfTime", "MemoryError", "RecursionError"})


async def checked(collection: Collection, runner: Runner, limits: RepairLimits) -> Collection:
    """Return the collection without what cannot be mended under these limits.

    - A test that the solution passes only beyond the limits is left out.
    - A problem is left out if its solution fails a test in another way, if its program passes
      every test, or if fewer than two tests are left.
    - Where the loader divided the tests and hid every failing one, the first of them changes
      places with the visible test before it.
    """
    programs = [_trial(bug, bug.code) for bug in collection.bugs]
    solutions = [_trial(bug, bug.solution) for bug in collection.bugs if bug.solution]
    # As the verdict runs them: what passes here passes there.
    reports = await asyncio.gather(
        *(runner.judge(trial, limits) for trial in [*programs, *solutions])
    )
    right = iter(reports[len(programs) :])
    bugs: list[Bug] = []
    skipped = list(collection.skipped)
    for bug, gave in zip(collection.bugs, reports, strict=False):
        tests = _tests(bug, gave, next(right) if bug.solution else None)
        tests, notes, reason = _fair(tests, limits)
        skipped += [f"{bug.id}: left out {note}" for note in notes]
        if not reason:
            new, reason = _divided(bug, tests, bug.id in collection.divided)
        if reason:
            skipped.append(f"{bug.id}: {reason}")
        else:
            bugs.append(new)
    return evolve(collection, bugs=tuple(bugs), skipped=tuple(skipped))


@frozen
class _Test:
    """A test with what the program and the solution gave; `shown` is whether it is visible."""

    case: Case
    shown: bool
    program: Outcome
    solution: Outcome | None


def _trial(bug: Bug, code: str) -> ProgramTrial:
    return ProgramTrial(code, bug.entry_point, (*bug.visible, *bug.hidden), bug.prelude)


def _tests(bug: Bug, program: Sequence[Outcome], solution: Sequence[Outcome] | None) -> list[_Test]:
    """Return all tests, visible and hidden ones in turns, as files have them."""
    cases, shown = (*bug.visible, *bug.hidden), len(bug.visible)
    right: Sequence[Outcome | None] = solution or [None] * len(cases)
    columns = zip(cases, [i < shown for i in range(len(cases))], program, right, strict=True)
    tests = [_Test(*row) for row in columns]
    pairs = zip_longest(tests[:shown], tests[shown:])
    return [test for pair in pairs for test in pair if test is not None]


def _fair(tests: Sequence[_Test], limits: RepairLimits) -> tuple[list[_Test], list[str], str]:
    """Return the tests that the solution passes, notes on others, and a reason to leave all out."""
    kept = [test for test in tests if test.solution is None or test.solution.passed]
    failed = [
        (number, test.solution.error)
        for number, test in enumerate(tests, start=1)
        if test.solution is not None and not test.solution.passed
    ]
    wrong = [f" ({error})" if error else "" for _, error in failed if error not in _LIMITS]
    if wrong:
        return kept, [], f"its solution fails {len(wrong)} of {len(tests)} tests{wrong[0]}"
    notes = [
        f"test {number} of {len(tests)}, which its solution fails ({error}) "
        f"within {limits.steps} steps"
        for number, error in failed
    ]
    return kept, notes, ""


def _divided(bug: Bug, tests: list[_Test], ours: bool) -> tuple[Bug, str]:
    """Return the bug with these tests, divided as they were; or a reason to leave it out."""
    if all(test.program.passed for test in tests):
        return bug, "its program passes all its tests"
    if ours and len(tests) > 1:
        shown, hidden = (list(part) for part in divided(tests))
        failing = [i for i, test in enumerate(hidden) if not test.program.passed]
        if all(test.program.passed for test in shown):
            i = failing[0]
            shown[i], hidden[i] = hidden[i], shown[i]
    else:
        shown = [test for test in tests if test.shown]
        hidden = [test for test in tests if not test.shown]
    if not shown or not hidden:
        return bug, f"no {'hidden' if shown else 'visible'} test is left"
    visible, judged = (tuple(test.case for test in part) for part in (shown, hidden))
    return evolve(bug, visible=visible, hidden=judged), ""
