"""The built-in suite: what it must hold, and that what it says is true."""

from __future__ import annotations

import ast
import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, get_args

import pytest
from orchestrion_repair.bug import Bug
from orchestrion_repair.suite import KINDS, bugs
from orchestrion_repair.trial import Outcome, ProgramTrial, RepairLimits

from orchestrion import Split
from tests.contrib_tasks.repair.support import with_runner

ONE_OF_EACH = {bug.group: bug for bug in reversed(bugs())}


# ---------------------------------------------------------------- what it holds


def test_it_has_many_functions_each_with_several_mistakes() -> None:
    mistakes = Counter(bug.group for bug in bugs())
    assert len(mistakes) >= 64
    assert min(mistakes.values()) >= 4
    assert len({bug.id for bug in bugs()}) == len(bugs())


def test_the_splits_have_their_sizes_and_share_no_function() -> None:
    sizes = {split: len(bugs(split)) / len(bugs()) for split in get_args(Split)}
    assert len(bugs("test")) >= 100
    assert 0.55 <= sizes["train"] <= 0.65
    assert sizes["validation"] >= 0.05
    groups = [{bug.group for bug in bugs(split)} for split in get_args(Split)]
    assert not any(a & b for a, b in itertools.combinations(groups, 2))
    assert sum(len(bugs(split)) for split in get_args(Split)) == len(bugs())


def test_every_area_is_trained_on_and_held_out() -> None:
    areas = [{bug.category for bug in bugs(split)} for split in ("train", "test")]
    assert len(areas[0]) >= 12
    assert areas[0] == areas[1]


def test_functions_have_different_visible_and_hidden_cases() -> None:
    for bug in ONE_OF_EACH.values():
        visible, hidden = ({json.dumps(c.args) for c in cs} for cs in (bug.visible, bug.hidden))
        assert 5 <= len(visible) == len(bug.visible) <= 8, bug.group
        assert 8 <= len(hidden) == len(bug.hidden) <= 14, bug.group
        assert not visible & hidden, bug.group


@pytest.mark.parametrize("split", [None, "train", "test"])
def test_kinds_are_mixed_as_in_collections_of_real_one_place_bugs(split: Any) -> None:
    """Shares in the order of public collections: logic, values, operators, variables, the rest."""
    counts = Counter(bug.kind for bug in bugs(split))
    share = {kind: counts[kind] / len(bugs(split)) for kind in KINDS}
    values = share["wrong value"] + share["wrong return"] + share["initial value"]
    functions = share["wrong function"] + share["argument order"]
    assert sum(share.values()) == pytest.approx(1)
    assert 0.15 <= share["missing logic"] <= 0.25
    assert 0.10 <= share["excess logic"] <= 0.20
    assert 0.12 <= values <= 0.27
    assert 0.10 <= share["wrong operator"] <= 0.20
    assert 0.08 <= share["wrong variable"] <= 0.15
    assert 0.04 <= functions <= 0.12
    assert 0.10 <= sum(share[kind] for kind in ("two places", "wrong algorithm")) <= 0.16


# ---------------------------------------------------------------- that it is true


def outcomes(
    chosen: list[Bug], code: Callable[[Bug], str], limits: RepairLimits
) -> list[tuple[Outcome, ...]]:
    trials = [ProgramTrial(code(bug), bug.entry_point, bug.visible + bug.hidden) for bug in chosen]
    return with_runner(lambda runner: runner.run(trials, limits))


def test_the_runner_finds_every_solution_right() -> None:
    chosen = list(ONE_OF_EACH.values())
    found = outcomes(chosen, lambda bug: bug.solution, RepairLimits())
    for bug, results in zip(chosen, found, strict=True):
        assert [result for result in results if not result.passed] == [], bug.group


def test_a_mistake_is_another_program_than_the_solution_and_all_others() -> None:
    trees = {ast.dump(ast.parse(code)) for bug in bugs() for code in (bug.code, bug.solution)}
    assert len(trees) == len(bugs()) + len(ONE_OF_EACH)


@pytest.mark.parametrize("category", ["dynamic", "machines", "strings"])
def test_every_mistake_is_noticed_by_visible_and_by_hidden_tests_and_none_grows(
    category: str,
) -> None:
    """It may loop for ever, which steps end, but not fill the memory or the time of a run."""
    chosen = [bug for bug in bugs() if bug.category == category]
    found = outcomes(chosen, lambda bug: bug.code, RepairLimits(steps=4_000, cpu_seconds=1))
    for bug, results in zip(chosen, found, strict=True):
        visible, hidden = results[: len(bug.visible)], results[len(bug.visible) :]
        assert not all(result.passed for result in visible), bug.id
        assert not all(result.passed for result in hidden), bug.id
        grown = {"OutOfTime", "MemoryError", "BadReply", "Crash"}
        assert not grown & {result.error for result in results}, bug.id
