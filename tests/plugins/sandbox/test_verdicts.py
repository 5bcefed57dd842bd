"""Programs that are wrong on purpose: none may be judged as right, and honest ones all are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from attrs import evolve
from orchestrion_sandbox.interface import Limits
from orchestrion_sandbox.judge import JUDGE_LIMITS, judge_calls, judge_statements
from orchestrion_sandbox.verdict import Verdict
from orchestrion_sandbox.warm import WarmBox

from tests.plugins.sandbox.candidates import BENIGN, CASES, ENTRY, STATEMENTS, WRONG
from tests.plugins.sandbox.naive import NAIVE

Judge = Callable[[WarmBox, str, bool], Coroutine[Any, Any, Verdict]]


async def outside(box: WarmBox, source: str, endless: bool = False) -> Verdict:
    cases = CASES[:1] if endless else CASES  # each takes all the time that there is
    return await judge_calls(box, source, ENTRY, cases, limits=_by_cpu(endless))


async def statements(box: WarmBox, source: str, endless: bool = False) -> Verdict:
    texts = STATEMENTS[:1] if endless else STATEMENTS
    return await judge_statements(box, source, ENTRY, texts, limits=_by_cpu(endless))


def _by_cpu(endless: bool) -> Limits:
    """CPU time alone decides, little of it for a program that is known to be endless."""
    return evolve(JUDGE_LIMITS, wall_seconds=300, cpu_seconds=1 if endless else 12)


JUDGES: dict[str, Judge] = {"outside": outside, "statements": statements}


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("candidate", WRONG)
def test_a_wrong_program_is_not_judged_as_right(
    runner: asyncio.Runner, box: WarmBox, candidate: str, judge: str
) -> None:
    wrong = WRONG[candidate]
    verdict = runner.run(JUDGES[judge](box, wrong.source, wrong.endless))
    assert not verdict.passed, wrong.how
    assert verdict.share < 1
    if wrong.forged and judge == "outside":
        assert verdict.forgeries


@pytest.mark.parametrize("candidate", [name for name, wrong in WRONG.items() if wrong.fools])
def test_the_same_program_gets_past_naive_judges(
    runner: asyncio.Runner, box: WarmBox, candidate: str
) -> None:
    wrong = WRONG[candidate]
    for naive in sorted(wrong.fools):
        assert runner.run(NAIVE[naive](box, wrong.source)), (naive, wrong.how)


@pytest.mark.parametrize("control", BENIGN)
def test_an_honest_program_passes_and_raises_no_alarm(
    runner: asyncio.Runner, box: WarmBox, control: str
) -> None:
    for judge in JUDGES.values():
        verdict = runner.run(judge(box, BENIGN[control], False))
        assert verdict.forgeries == ()
        assert verdict.passed, [o for o in verdict.outcomes if not o.passed]
        assert len(verdict.outcomes) == len(CASES)
        assert verdict.level == 3
    for naive in NAIVE.values():
        assert runner.run(naive(box, BENIGN[control]))
