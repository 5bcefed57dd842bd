"""What one run of a program shows of edits that were not tried."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from orchestrion_repair import probes
from orchestrion_repair.alternatives import probed
from orchestrion_repair.harness import Subject
from orchestrion_repair.ranking import Program, program

from tests.contrib_tasks.repair.support import TOTAL, Bench, bug, given_bench, on_bench

CLAMPED = """\
def clamp(value, low):
    if value < low:
        return low
    return value
"""
SEVERAL = """\
def keep(rows, row):
    rows.append(row)
    best = rows[0]
    return best
"""


@pytest.fixture(autouse=True)
def given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what starting a program changes in this process: it would neither sleep nor print."""
    monkeypatch.setattr(time, "sleep", time.sleep)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))


def same(code: str, *arguments: Any) -> tuple[Program, set[str]]:
    """The texts of the edits that changed nothing in one call."""
    known = program(code, code.split("(")[0][4:])
    looking = probed(known)
    assert looking is not None
    subject = Subject(looking.code, code.split("(")[0][4:], "", 1000, True, sites=looking.sites)
    subject.start()
    subject.probes.clear()
    error = ""
    try:
        subject.call(*arguments)
    except LookupError as raised:
        error = type(raised).__name__
    bits = int(subject.probes.same(error), 16)
    return known, {edit.text for edit in known.candidates if bits >> edit.number & 1}


def test_an_edit_of_equal_value_is_seen_and_one_of_another_value_is_not() -> None:
    _, texts = same(CLAMPED, 3, 5)
    assert "value <= low" in texts  # 3 < 5 and 3 <= 5
    assert "value >= low" not in texts
    _, texts = same(CLAMPED, 5, 5)
    assert "value >= low" not in texts
    assert "value <= low" not in texts
    assert "value > low" in texts


def test_a_copy_of_a_list_is_not_the_list() -> None:
    _, texts = same(SEVERAL, [[1]], [2])
    assert "list(row)" not in texts
    assert "rows[-1]" not in texts
    assert "min(rows)" in texts


@pytest.mark.parametrize(
    ("value", "arguments", "text"),
    [
        ("rows.get(row)", [{1: []}, 1], "[]"),
        ("{rows: 1, row: 1}", [1, 2], "{row: 1, rows: 1}"),
        ("rows.pop()", [[1], 2], "1"),
    ],
    ids=["the list that it has", "the order of keys", "an effect besides the value"],
)
def test_an_edit_whose_difference_shows_later_is_not_the_same(
    value: str, arguments: list[Any], text: str
) -> None:
    code = f"def keep(rows, row):\n    best = {value}\n    return best, [], 1\n"
    _, texts = same(code, *arguments)
    assert text not in texts


def test_another_error_than_the_programs_own_is_a_difference() -> None:
    code = "def keep(rows, row):\n    return rows[row]\n"
    _, texts = same(code, {}, 1)
    assert "rows[0]" in texts
    assert "row[rows]" not in texts
    caught = "def keep(rows, row):\n    try:\n        return rows[row]\n"
    _, texts = same(f"{caught}    except KeyError:\n        return 0\n", {}, 1)
    assert "rows[0]" not in texts


@pytest.mark.parametrize(
    "line",
    [
        "turned = reversed(rows)",
        "pairs = enumerate(rows)",
        "count = keep(n for n in rows)",
        "found = re.finditer('a', rows)",
        "q = Queue()",
        "locals = 1",
        "values = zip(rows, rows)",
        "yield rows",
        "class Row: pass",
    ],
)
def test_a_program_with_what_looking_would_change_has_no_probes(line: str) -> None:
    code = f"def keep(rows):\n    {line}\n    return len(rows)\n"
    assert probed(program(code, "keep")) is None


@pytest.mark.parametrize(
    "text", ["list(range(n))", "(n, n) * n", "n ** n", "own(n)", "n.sort()", "n.pop()", "n[0](n)"]
)
def test_what_takes_long_or_has_effects_is_not_evaluated(text: str) -> None:
    from orchestrion_repair.alternatives import _pure

    assert not _pure(text, frozenset({"own"}))
    assert _pure("len(n) * 2 + max(n)", frozenset({"own"}))


@given_bench(bug(TOTAL.replace("> 0", "< 0")))
async def test_the_tests_rule_out_edits_that_cannot_mend_them(bench: Bench) -> None:
    before = len(bench.seen["order"])
    await bench.act("tests")
    assert len(bench.seen["order"]) < before


@pytest.mark.parametrize(
    ("end", "cost"),
    [
        ("    try: spin()\n    except: pass\n" * 9 + "    while start == start: last = 1\n", 3),
        ("    try: spin()\n    except: pass\n" * 60, 6),
    ],
    ids=["stopped and run without probes", "all that stops it is caught: all tests again"],
)
def test_looking_ends_by_a_count_and_never_by_a_clock(end: str, cost: float) -> None:
    async def work(bench: Bench) -> None:
        output = await bench.act("tests")
        report: Any = output.data
        assert [result["error"] for result in report["results"]] == ["OutOfSteps"] * 3
        assert not any(int(bits, 16) for bits in report.get("same", ()))
        assert output.usage.cost == cost

    looks = "n, " * 150
    code = f"def spin(n=1):\n    try: last = {looks}\n    except: pass\n    spin()\n"
    code += f"def total(values, start):\n{end}"
    looking = probed(program(code, "total"))
    assert looking is not None
    assert looking.code.count(probes.BEFORE) * 2_000 > probes.MOST_LOOKS
    on_bench(bug(code), work)
