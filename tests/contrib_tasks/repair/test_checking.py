"""Problems of files are run once when they are opened: what cannot be mended is left out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from orchestrion_repair.checking import checked
from orchestrion_repair.loaders import Collection, load_path
from orchestrion_repair.task import Repair
from orchestrion_repair.trial import RepairLimits
from structlog.testing import capture_logs

from orchestrion import Key, OpenContext, UsageError
from tests.contrib_tasks.repair.support import with_runner

RIGHT = "def size(n):\n    return abs(n)\n"
WRONG = "def size(n):\n    return n\n"
CASES = [[[1], 1], [[-1], 1], [[2], 2], [[-2], 2], [[3], 3]]
"""Every second test, all that the program fails, would be hidden."""
LOOP = "def size(n):\n    k = 0\n    while k < n:\n        k += 1\n    return k\n"


def row(**changes: Any) -> dict[str, Any]:
    given = {"name": "size", "code": WRONG, "solution": RIGHT, "cases": CASES, **changes}
    return {key: value for key, value in given.items() if value is not None}


def of(tmp_path: Path, *rows: dict[str, Any], steps: int = 2_000) -> Collection:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))

    return with_runner(lambda runner: checked(load_path(file), runner, RepairLimits(steps=steps)))


def arguments(cases: Any) -> list[Any]:
    return [case.args[0] for case in cases]


@pytest.mark.parametrize("solution", [RIGHT, None])
def test_a_failing_test_is_visible_and_another_hidden(tmp_path: Path, solution: Any) -> None:
    [bug] = of(tmp_path, row(solution=solution)).bugs
    assert arguments(bug.visible) == [-1, 2, 3]
    assert arguments(bug.hidden) == [1, -2]


def test_a_division_with_a_visible_failure_stays_as_it_is(tmp_path: Path) -> None:
    cases = [*CASES[1:], CASES[0]]
    [bug] = of(tmp_path, row(cases=cases)).bugs
    assert (*arguments(bug.visible), *arguments(bug.hidden)) == (-1, -2, 1, 2, 3)
    [own] = of(tmp_path, row(cases=None, visible=CASES[::2], hidden=CASES[1::2])).bugs
    assert arguments(own.visible) == [1, 2, 3]


def test_tests_beyond_the_limits_of_the_solution_are_left_out(tmp_path: Path) -> None:
    slow = row(solution=LOOP, cases=[[[1], 1], [[9_000], 9_000], [[2], 3], [[-2], 0]])
    slow["code"] = LOOP.replace("k < n", "k <= n")
    slow["cases"][2] = [[2], 2]
    found = of(tmp_path, slow)
    [bug] = found.bugs
    assert sorted([*arguments(bug.visible), *arguments(bug.hidden)]) == [-2, 1, 2]
    assert found.skipped == (
        "size: left out test 2 of 4, which its solution fails (OutOfSteps) within 2000 steps",
    )
    assert of(tmp_path, slow, steps=20_000).skipped == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"code": "def size(n):\n    return max(n, -n)\n"}, "its program passes all its tests"),
        ({"cases": [*CASES, [[4], 5]]}, "its solution fails 1 of 6 tests"),
        ({"solution": LOOP, "cases": [[[5], 5], [[5_000], 1]]}, "no hidden test is left"),
    ],
)
def test_what_cannot_be_mended_is_left_out_by_name(
    tmp_path: Path, changes: Any, reason: str
) -> None:
    wrong = {"code": LOOP.replace("k += 1", "k += 2"), **changes}
    found = of(tmp_path, row(**(wrong if "solution" in changes else changes)), row(name="other"))
    assert [bug.id for bug in found.bugs] == ["other"]
    assert found.skipped[-1].startswith(f"size: {reason}")


def test_the_task_says_what_it_leaves_out_and_notes_its_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    good, bad = row(name="good"), row(name="bad", code=RIGHT)
    notes: dict[str, str] = {}
    context = OpenContext("task", Key(0), note=notes.__setitem__)

    async def opened() -> list[str]:
        async with Repair(suite=str(file)).open(context) as task:
            return [problem.id for problem in task.problems("test")]

    file.write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    with capture_logs() as logs:
        assert asyncio.run(opened()) == ["good"]
    assert list(notes) == ["sandbox"]
    assert [one["event"] for one in logs] == [
        f"{file}: left out: bad: its program passes all its tests"
    ]
    file.write_text(json.dumps(bad))
    with pytest.raises(UsageError, match="no problem can be used: bad: its program passes"):
        asyncio.run(opened())
