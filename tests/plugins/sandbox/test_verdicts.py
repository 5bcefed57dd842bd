"""Programs that are wrong on purpose: none may be judged as right, and honest ones all are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from attrs import evolve
from orchestrion_sandbox.box import ZygoteBox
from orchestrion_sandbox.interface import Limits
from orchestrion_sandbox.judge import JUDGE_LIMITS, judge_calls, judge_statements
from orchestrion_sandbox.repository import judge_repository
from orchestrion_sandbox.split import PYTEST_LIMITS, judge_pytest
from orchestrion_sandbox.verdict import Verdict

from tests.plugins.sandbox.candidates import (
    BENIGN,
    CASES,
    ENTRY,
    IDS,
    STATEMENTS,
    TESTS,
    WRONG,
    Wrong,
)
from tests.plugins.sandbox.naive import NAIVE

Judge = Callable[[ZygoteBox, str, bool], Coroutine[Any, Any, Verdict]]


def patient(limits: Limits, short: bool) -> Limits:
    """CPU time alone decides, little of it for a program that is known to be endless."""
    cpu = 1 if short else 4 * limits.cpu_seconds
    return evolve(limits, wall_seconds=300, cpu_seconds=cpu)


async def outside(box: ZygoteBox, source: str, short: bool) -> Verdict:
    limits = patient(JUDGE_LIMITS, short)
    return await judge_calls(box, source, ENTRY, CASES, limits=limits)


async def statements(box: ZygoteBox, source: str, short: bool) -> Verdict:
    limits = patient(JUDGE_LIMITS, short)
    return await judge_statements(box, source, ENTRY, STATEMENTS, limits=limits)


async def split(box: ZygoteBox, source: str, short: bool) -> Verdict:
    limits = patient(PYTEST_LIMITS, short)
    tests, files = {"test_total.py": TESTS}, {"solution.py": source}
    return await judge_pytest(box, tests, files, wanted=IDS, limits=limits)


async def shared(box: ZygoteBox, source: str, short: bool) -> Verdict:
    """Proves nothing; it has to be told to accept that."""
    tests, files = {"test_total.py": TESTS}, {"solution.py": source}
    limits = patient(PYTEST_LIMITS, False)
    return await judge_repository(box, tests, files, accept_unproven=True, limits=limits)


JUDGES: dict[str, Judge] = {
    "outside": outside,
    "statements": statements,
    "split": split,
}


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("candidate", WRONG)
def test_a_wrong_program_is_not_judged_as_right(
    runner: asyncio.Runner, box: ZygoteBox, candidate: str, judge: str
) -> None:
    wrong = WRONG[candidate]
    verdict = runner.run(JUDGES[judge](box, wrong.source, wrong.endless))
    assert not verdict.passed, wrong.how
    assert verdict.outcomes or verdict.reason
    assert verdict.share < 1


@pytest.mark.parametrize(
    ("candidate", "naive"),
    [(name, naive) for name, wrong in WRONG.items() for naive in sorted(wrong.fools)],
)
def test_the_same_program_gets_past_a_naive_judge(
    runner: asyncio.Runner, box: ZygoteBox, candidate: str, naive: str
) -> None:
    assert runner.run(NAIVE[naive](box, WRONG[candidate].source)), WRONG[candidate].how


@pytest.mark.parametrize("candidate", [name for name, wrong in WRONG.items() if wrong.forged])
def test_an_attempt_to_forge_is_reported(
    runner: asyncio.Runner, box: ZygoteBox, candidate: str
) -> None:
    verdict = runner.run(outside(box, WRONG[candidate].source, WRONG[candidate].endless))
    assert verdict.forgeries


@pytest.mark.parametrize("judge", [*JUDGES, "shared"])
@pytest.mark.parametrize("control", BENIGN)
def test_an_honest_program_passes_and_raises_no_alarm(
    runner: asyncio.Runner, box: ZygoteBox, control: str, judge: str
) -> None:
    verdict = runner.run((JUDGES | {"shared": shared})[judge](box, BENIGN[control], False))
    assert verdict.forgeries == ()
    assert verdict.passed, [o for o in verdict.outcomes if not o.passed]
    assert len(verdict.outcomes) == len(CASES)
    assert verdict.level == 3


@pytest.mark.parametrize("naive", NAIVE)
def test_honest_programs_pass_the_naive_judges_too(
    runner: asyncio.Runner, box: ZygoteBox, naive: str
) -> None:
    assert runner.run(NAIVE[naive](box, BENIGN["generators"]))


def test_there_are_as_many_as_promised() -> None:
    assert len(WRONG) == 43
    assert len(BENIGN) == 10
    fooled = {name for name in NAIVE if any(name in wrong.fools for wrong in WRONG.values())}
    assert fooled == set(NAIVE)
    assert isinstance(WRONG["c01"], Wrong)
