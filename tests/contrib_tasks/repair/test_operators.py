"""The operators: each family undoes its kind of mistake, and every candidate is a program."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orchestrion_repair.counts import Counts, restores, restoring
from orchestrion_repair.operators import FAMILIES, candidates
from orchestrion_repair.operators.kinds import element, fits, kind_of_value, kinds_of_arguments
from orchestrion_repair.suite import bugs

from tests.contrib_tasks.repair.support import TOTAL

SAMPLE = bugs()[::37]

MISTAKES = [
    ("comparison", "return x < y", "return x <= y"),
    ("comparison", "return x is y", "return x == y"),
    ("comparison", "return 0 < x < y", "return 0 < x <= y"),
    ("comparison", "return x == 0", "return x <= 1"),
    ("operand", "x = 1\n    return abs(x - 2)", "x = 1\n    return abs(x ** 2 - 2)"),
    ("condition", "while True:\n        x = y", "while x:\n        x = y"),
    ("extend", "if y.z is x:\n        return 1", "if y is None or y.z is x:\n        return 1"),
    ("variable", "x.left = 1\n    return y.right", "x.left = 1\n    return y.left"),
    ("constant", "'Up to 26.'\n    return x % 25", "'Up to 26.'\n    return x % 26"),
    ("graft", "x = []\n    y[0] = x[1]", "x = []\n    x[1] = x[1]"),
    ("wrap", "x = []\n    return x[-1]", "x = []\n    return sum(x)"),
    ("wrap", "x = []\n    return x", "x = []\n    return [x]"),
    ("return", "x = []\n    return x", "x = []\n    return [y]"),
    ("off-by-one", "return range(x)", "return range(x + 1)"),
    ("off-by-one", "return x + 1", "return x"),
    ("off-by-one", "return y[2]", "return y[1]"),
    ("off-by-one", "return y[-1]", "return y[-2]"),
    ("arithmetic", "return x + y", "return x - y"),
    ("arithmetic", "return x - y", "return y - x"),
    ("arithmetic", "return x // y * 2", "return x // y"),
    ("arithmetic", "x += 1\n    return x", "x -= 1\n    return x"),
    ("arithmetic", "x = y\n    return x", "x += y\n    return x"),
    ("arithmetic", "x ^= 1\n    return x", "x &= 1\n    return x"),
    ("arithmetic", "x -= 2\n    return x", "x //= 2\n    return x"),
    ("arithmetic", "x **= 2\n    return x", "x *= 2\n    return x"),
    ("arithmetic", "x <<= 1\n    return x", "x >>= 1\n    return x"),
    ("condition", "return x and y", "return x or y"),
    ("condition", "x += 1\n    return True", "x += 1\n    return x == 0"),
    ("condition", "return x and y", "return y"),
    ("condition", "if x:\n        return y", "if not x:\n        return y"),
    ("extend", "if y[0] > 1:\n        return x", "if y and y[0] > 1:\n        return x"),
    ("variable", "return x", "return y"),
    ("variable", "z = [x]\n    return y[0] + x", "z = [x]\n    return z[0] + x"),
    ("constant", "z = 1\n    return z + x", "z = 0\n    return z + x"),
    ("constant", "return True", "return False"),
    ("constant", "return 'yes'", "return 'Yes'"),
    ("constant", "return 'a,b'", "return ''"),
    ("constant", "z = 'no'\n    return z + '('", "z = 'no'\n    return z + '['"),
    ("constant", "'Give \"odd\".'\n    return 'even'", "'Give \"odd\".'\n    return 'odd'"),
    ("argument", "return divmod(x, y)", "return divmod(y, x)"),
    ("argument", "return [x, y]", "return [y, x]"),
    ("argument", "return sorted(y)", "return sorted(y, reverse=True)"),
    ("argument", "return min(y)", "return min(y, key=abs)"),
    ("argument", "return sorted(y)", "return sorted(y, key=len)"),
    ("argument", "return 1 if x else 2", "return 2 if x else 1"),
    ("function", "return min(x, y)", "return max(x, y)"),
    ("function", "y.append(x)\n    return y", "y.extend(x)\n    return y"),
    ("unwrap", "return abs(x)", "return x"),
    ("unwrap", "return -x", "return x"),
    ("wrap", "return y", "return sorted(y)"),
    ("wrap", "return x", "return not x"),
    ("wrap", "return y", "return sorted(y, key=len)"),
    ("operand", "z = 1\n    return x * z", "z = 1\n    return (x + z) * z"),
    ("operand", "return x * 3", "return x * 3 / 2"),
    ("graft", "z = len(y)\n    return y[0] + x", "z = len(y)\n    return len(y) + x"),
    ("slice", "return y[1:]", "return y[:1]"),
    ("slice", "return y", "return y[:x]"),
    ("slice", "for z in y: print(z)", "for z in y[x:]: print(z)"),
    ("slice", "return [z for z in y]", "return [z for z in y][1:]"),
    ("slice", "return y[x]", "return y[-x]"),
    ("guard", "return y[0]", "if not y:\n        return None\n    return y[0]"),
    ("guard", "y[0] += 1\n    return y", "if y:\n        y[0] += 1\n    return y"),
    ("insert", "for z in y:\n        x += z", "for z in y:\n        x += z\n    return x"),
    ("delete", "x = 0\n    return x", "return x"),
    ("delete", "if x:\n        y = 1\n    return y", "y = 1\n    return y"),
    ("move", "x = y\n    y = x\n    return x", "y = x\n    x = y\n    return x"),
    ("move", "for z in y:\n        x()\n        z()", "for z in y:\n        x()\n    z()"),
    ("return", "return x", "return y"),
    ("control", "for z in y:\n        if z: break", "for z in y:\n        if z: continue"),
    ("control", "if x:\n        x = y", "while x:\n        x = y"),
]  # fmt: skip


def program(body: str) -> str:
    return f"def f(x, y):\n    {body}\n"


@pytest.mark.parametrize(("family", "wrong", "right"), MISTAKES)
def test_a_family_undoes_its_kind_of_mistake(family: str, wrong: str, right: str) -> None:
    code = program(wrong)
    kinds = [("number", "list"), ("number", "number"), ("", "")]
    found = [c for arguments in kinds for c in candidates(code, "f", arguments)[1]]
    mended = [c for c in found if restores(c.apply(code), program(right))]
    assert mended, [c.apply(code) for c in found if c.family == family]
    # Two families may have the same edit; the first keeps it.
    assert min(FAMILIES.index(c.family) for c in mended) <= FAMILIES.index(family)


def test_every_family_is_tried_above() -> None:
    assert {family for family, _, _ in MISTAKES} == set(FAMILIES)


@pytest.mark.parametrize("one", SAMPLE, ids=lambda one: one.id)
def test_every_candidate_is_another_program(one: object) -> None:
    code = one.code  # type: ignore[attr-defined]
    _, found = candidates(code)
    programs = [candidate.apply(code) for candidate in found]
    assert len(set(programs)) == len(programs)
    assert code not in programs
    for text in programs[::7]:
        ast.parse(text)


def test_a_candidate_changes_the_statement_it_is_about() -> None:
    _, found = candidates(TOTAL)
    (swap,) = [c for c in found if c.family == "comparison" and c.text == "value >= 0"]
    assert swap.line == 4
    assert swap.apply(TOTAL) == TOTAL.replace("> 0", ">= 0")


def test_letters_of_several_bytes_do_not_shift_an_edit() -> None:
    code = 'def f(x):\n    y = "äöü€😀"; z = x < 1\n    return z\n'
    _, found = candidates(code)
    assert code.replace("x < 1", "x <= 1") in [c.apply(code) for c in found]


@pytest.mark.parametrize("code", ["def f(x", "", "x = " + "(" * 500 + ")" * 500, "\0", "é é"])
def test_what_is_no_program_has_no_candidates(code: str) -> None:
    assert candidates(code)[1] == ()


@settings(max_examples=40)
@given(st.text(max_size=80))
def test_any_text_is_taken(text: str) -> None:
    candidates(text)


def test_candidates_and_their_traits_do_not_depend_on_the_order_of_sets() -> None:
    ask = (
        "from orchestrion_repair.ranking import program\n"
        "from orchestrion_repair.suite import bugs\n"
        "from orchestrion_repair.traits import Reader\n"
        "for bug in bugs()[::520]:\n"
        "    edits = program(bug.code, bug.entry_point)\n"
        "    reader = Reader(edits.source)\n"
        "    print([(edit, *reader.traits(edit)) for edit in edits.candidates])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", ask],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]


# ---------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "none"), (True, "bool"), (1, "number"), ("a", "str"), ([], "list"),
        ([1], "list:number"), ([["a"]], "list:list:str"), ({"a": [1]}, "dict:list:number"),
    ],
)  # fmt: skip
def test_kinds_tell_elements(value: object, kind: str) -> None:
    assert kind_of_value(value) == kind


def test_kinds_of_arguments_come_from_the_case_that_tells_most() -> None:
    assert kinds_of_arguments([([], None), ([1], "a"), ([2.5],)]) == ("list:number", "str")


def test_unknown_fits_anything_and_numbers_fit_truth() -> None:
    assert fits("", "list")
    assert fits("number", "bool")
    assert fits("list:str", "list")
    assert not fits("str", "list")
    assert element("str") == "str"


# ---------------------------------------------------------------- rates


def test_an_edit_that_restores_the_solution_is_counted() -> None:
    wrong = TOTAL.replace("> 0", ">= 0")
    edits = candidates(wrong)[1]
    counts = Counts.of(edits, restoring(edits, wrong, TOTAL))
    assert {kind[0]: hits for kind, hits in counts.right.items()} == {"comparison": 1}
    assert sum(counts.total.values()) == len(edits)


def test_kinds_that_were_right_more_often_have_higher_rates_and_none_is_zero() -> None:
    wrong = TOTAL.replace("> 0", ">= 0")
    edits = candidates(wrong)[1]
    own = Counts.of(edits, restoring(edits, wrong, TOTAL))
    [right] = own.right
    counts = Counts()
    counts.add(own)
    counts.add(Counts.of(edits, [edits[-1].number]))
    rates = counts.rates()
    assert max(rates[kind] for kind in own.total) == max(rates.values()) < 1
    assert min(rates.values()) > 0
    # Without the problem, its own repair says nothing.
    assert counts.without(own).rates()[right] < rates[right]


def test_a_flag_is_set_anew_and_a_statement_leaves_two_blocks() -> None:
    right = """\
def passes(items):
    number, swapped = 0, True
    while swapped:
        swapped = False
        for i in range(1, len(items)):
            if items[i - 1] > items[i]:
                items[i - 1], items[i] = items[i], items[i - 1]
                swapped = True
        number += 1
    return number
"""
    for wrong, kind in (
        (right.replace("        swapped = False\n", ""), ("insert", "reset-before")),
        (right.replace("        number +=", "                number +="), ("move", "out-further")),
    ):
        edits = candidates(wrong)[1]
        found = {edits[n][1:3] for n in restoring(edits, wrong, right)}
        assert kind in found
