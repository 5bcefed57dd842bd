"""The built-in problems: right solutions pass, wrong ones fail, and nothing is given away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from orchestrion_code_review.challenge import (
    LEVELS,
    Challenge,
    Test,
    builtin,
    constant_share,
    split_of,
)
from orchestrion_code_review.generator import generate
from orchestrion_code_review.judging import Judgement, judge
from orchestrion_code_review.static import StaticTools
from orchestrion_sandbox import Limits, choose

from orchestrion import Key

CLASSICS = (
    "reverse-string", "palindrome", "fizzbuzz", "two-sum", "binary-search", "balanced-parentheses",
)  # fmt: skip
COMPOSED = generate(30, Key(5))
EVERY = (*builtin(), *COMPOSED)
LIMITS = Limits(wall_seconds=10, cpu_seconds=5)


def judgements(asked: Sequence[tuple[Challenge, str, tuple[Test, ...]]]) -> list[Judgement]:
    """Verdicts on programs, all in one sandbox."""

    async def run() -> list[Judgement]:
        async with choose("auto").open() as box:
            return [
                await judge(box, code, one.entry_point, tests, limits=LIMITS)
                for one, code, tests in asked
            ]

    return asyncio.run(run())


def test_the_six_classics_and_at_least_forty_more_on_three_levels() -> None:
    names = [one.id for one in builtin()]
    assert set(CLASSICS) <= set(names)
    assert len(names) == len(set(names)) >= 46
    levels = Counter(one.level for one in builtin())
    assert all(levels[level] >= 12 for level in LEVELS)


def test_every_solution_passes_its_examples_and_hidden_tests() -> None:
    found = judgements([(one, one.solution, one.examples + one.tests) for one in EVERY])
    failed = [
        one.id for one, verdict in zip(EVERY, found, strict=True) if not verdict.judged.passed
    ]
    assert failed == []
    assert all(verdict.methods.keys() == {"outside"} for verdict in found)


def test_every_wrong_solution_fails_some_hidden_test() -> None:
    asked = [(one, code, one.tests) for one in EVERY for code in one.wrong]
    assert {one.id for one, _, _ in asked} == {one.id for one in EVERY}, "each has one at least"
    found = judgements(asked)
    passed = [
        (one.id, code)
        for (one, code, _), verdict in zip(asked, found, strict=True)
        if verdict.judged.passed
    ]
    assert passed == []


def test_some_wrong_solutions_pass_all_examples_so_that_examples_are_not_enough() -> None:
    asked = [(one, code, one.examples) for one in builtin() for code in one.wrong]
    found = judgements(asked)
    fooled = {one.id for (one, _, _), v in zip(asked, found, strict=True) if v.judged.passed}
    assert len(fooled) >= len(builtin()) // 2


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.id)
def test_hidden_tests_are_not_among_the_examples_and_are_varied(one: Challenge) -> None:
    assert not {test.text for test in one.tests} & {test.text for test in one.examples}
    assert len({test.text for test in one.tests}) == len(one.tests) >= 5
    assert constant_share(one.tests, one.entry_point) <= 0.75
    assert one.reference.turns >= 1


def test_the_solutions_have_full_marks_for_tidiness() -> None:
    tools = StaticTools(["ruff", "complexity"])

    async def measure() -> dict[str, dict[str, float]]:
        return {
            one.id: await tools.measure(one.solution, one.reference.complexity)
            for one in (*builtin(), *COMPOSED[::5])
        }

    with tools.opened():
        found = asyncio.run(measure())
    assert {name: one for name, one in found.items() if min(one.values()) < 1} == {}


@pytest.mark.parametrize("one", [*builtin()[::8], *COMPOSED[::10]], ids=lambda one: one.id)
def test_the_solutions_have_types_that_hold(one: Challenge) -> None:
    tools = StaticTools(["types"])
    with tools.opened():
        assert asyncio.run(tools.measure(one.solution, 5)) == {"types": 1.0}


def test_splits_are_filled_disjoint_and_do_not_move_when_problems_are_added() -> None:
    before = {one.id: split_of(one) for one in builtin()}
    assert Counter(before.values()).keys() == {"train", "validation", "test"}
    assert min(Counter(before.values()).values()) >= 6
    many = {one.id: split_of(one) for one in (*generate(90, Key(5)), *builtin())}
    assert {name: many[name] for name in before} == before
    assert {one.id: many[one.id] for one in COMPOSED} == {one.id: split_of(one) for one in COMPOSED}
