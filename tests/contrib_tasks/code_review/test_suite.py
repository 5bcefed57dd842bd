"""The built-in problems: right solutions pass, wrong ones fail, and nothing is given away."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from orchestrion_code_review.challenge import (
    LEVELS,
    Challenge,
    builtin,
    constant_share,
    split_of,
)
from orchestrion_code_review.generator import generate
from orchestrion_code_review.judging import Judgement, judge
from orchestrion_code_review.static import RULES
from orchestrion_sandbox import Limits

from orchestrion import Key
from tests.contrib_tasks.code_review.support import box, in_loop

CLASSICS = (
    "reverse-string", "palindrome", "fizzbuzz", "two-sum", "binary-search", "balanced-parentheses",
)  # fmt: skip
COMPOSED = generate(16, Key(5))
EVERY = (*builtin(), *COMPOSED)
LIMITS = Limits(wall_seconds=10, cpu_seconds=5)


def judgements(asked: Sequence[tuple[Challenge, str]]) -> list[Judgement]:
    """Verdicts on programs, all in one sandbox."""

    async def run() -> list[Judgement]:
        return [await judge(box(), code, one, LIMITS) for one, code in asked]

    return in_loop(run())


def test_the_six_classics_and_at_least_forty_more_on_three_levels() -> None:
    names = [one.id for one in builtin()]
    assert set(CLASSICS) <= set(names)
    assert len(names) == len(set(names)) >= 46
    levels = Counter(one.level for one in builtin())
    assert all(levels[level] >= 12 for level in LEVELS)


def test_every_solution_passes_its_examples_and_hidden_tests() -> None:
    found = judgements([(one, one.solution) for one in EVERY])
    failed = [
        one.id for one, verdict in zip(EVERY, found, strict=True) if not verdict.judged.passed
    ]
    assert failed == []
    assert all(verdict.methods.keys() == {"outside"} for verdict in found)


def test_every_wrong_solution_fails_some_hidden_test_and_some_pass_all_examples() -> None:
    asked = [(one, code) for one in EVERY for code in one.wrong]
    assert {one.id for one, _ in asked} == {one.id for one in EVERY}, "each has one at least"
    found = judgements(asked)
    passed = [
        (one.id, code)
        for (one, code), verdict in zip(asked, found, strict=True)
        if all(outcome.passed for outcome in verdict.outcomes)
    ]
    assert passed == []
    fooled = {
        one.id
        for (one, _), verdict in zip(asked, found, strict=True)
        if one.category != "composed" and all(outcome.passed for outcome in verdict.examples)
    }
    assert len(fooled) >= len(builtin()) // 2, "examples are not enough"


def test_hidden_tests_are_not_among_the_examples_and_are_varied() -> None:
    for one in EVERY:
        assert not {test.text for test in one.tests} & {test.text for test in one.examples}, one.id
        assert len({test.text for test in one.tests}) == len(one.tests) >= 5, one.id
        assert constant_share(one.tests, one.entry_point) <= 0.75, one.id
        assert one.reference.turns >= 1, one.id


def test_the_solutions_have_full_marks_for_tidiness_and_types(tmp_path: Path) -> None:
    """By one run of each tool over all of them; `test_static.py` holds the measures themselves."""
    files = {f"solution_{i}": one for i, one in enumerate(EVERY)}
    for name, one in files.items():
        (tmp_path / f"{name}.py").write_text(one.solution, "utf-8")

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", *arguments, "."]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    ruff = ("ruff", "check", "--isolated", "--no-cache", "--select", RULES, "--line-length", "100")
    assert "All checks passed" in run(*ruff, "--target-version", "py311")
    assert "Success" in run("mypy", "--strict", "--disallow-any-explicit", "--config-file=")
    for path, functions in json.loads(run("radon", "cc", "-j")).items():
        most = max(function["complexity"] for function in functions)
        assert most <= files[Path(path).stem].reference.complexity, path


def test_splits_are_filled_disjoint_and_do_not_move_when_problems_are_added() -> None:
    before = {one.id: split_of(one) for one in builtin()}
    assert Counter(before.values()).keys() == {"train", "validation", "test"}
    assert min(Counter(before.values()).values()) >= 6
    many = {one.id: split_of(one) for one in (*generate(90, Key(5)), *builtin())}
    assert {name: many[name] for name in before} == before
    assert {one.id: many[one.id] for one in COMPOSED} == {one.id: split_of(one) for one in COMPOSED}
