"""Problems from folders and files, in our own and in public forms."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_repair.bug import Bug, Case
from orchestrion_repair.loaders import bug_from_text, load_path

from orchestrion import UsageError
from tests.contrib_tasks.repair.support import outcomes

RIGHT = "def twice(x):\n    return x * 2\n"
WRONG = "def twice(x):\n    return x * x\n"
CASES = [[[0], 0], [[1], 2], [[2], 4], [[3], 6]]
OWN = {"name": "twice", "code": WRONG, "entry_point": "twice", "cases": CASES}


def lines(path: Path, *rows: Any) -> Path:
    file = path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return file


def only(path: Path) -> Bug:
    [bug] = load_path(path).bugs
    return bug


def passes(bug: Bug, code: str) -> list[bool]:
    """Which cases a program passes, visible ones first."""
    found = outcomes(code, bug.visible + bug.hidden, bug.entry_point, prelude=bug.prelude)
    return [outcome.passed for outcome in found]


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        load_path(path, **options)
    return str(error.value)


# ---------------------------------------------------------------- our own rows


def test_every_second_test_is_hidden_beginning_with_the_second(tmp_path: Path) -> None:
    bug = only(lines(tmp_path, OWN))
    assert [case.args for case in bug.visible] == [(0,), (2,)]
    assert [case.args for case in bug.hidden] == [(1,), (3,)]
    assert bug.split == "test"
    assert bug.group == "twice"
    assert passes(bug, bug.code) == [True, True, False, False]


def test_equal_tests_count_once(tmp_path: Path) -> None:
    bug = only(lines(tmp_path, {**OWN, "cases": [CASES[0], CASES[0], CASES[1]]}))
    assert (len(bug.visible), len(bug.hidden)) == (1, 1)


def test_a_row_may_say_everything_itself(tmp_path: Path) -> None:
    row = {
        "id": "t-1",
        "name": "twice, wrongly",
        "code": WRONG,
        "entry_point": "twice",
        "visible": [{"call": [1], "want": 2}, "assert twice(2) == four"],
        "hidden": [{"assert": "assert twice(3) == 6"}],
        "prelude": "four = 4",
        "split": "train",
        "kind": "wrong variable",
        "group": "twice",
        "category": "numbers",
        "solution": RIGHT,
    }
    bug = only(lines(tmp_path, row))
    assert bug == Bug(
        id="t-1",
        name="twice, wrongly",
        entry_point="twice",
        code=WRONG,
        visible=(Case((1,), 2), Case(statement="assert twice(2) == four")),
        hidden=(Case(statement="assert twice(3) == 6"),),
        kind="wrong variable",
        group="twice",
        split="train",
        category="numbers",
        prelude="four = 4",
        solution=RIGHT,
    )
    assert passes(bug, bug.solution) == [True, True, True]
    assert passes(bug, bug.code) == [False, True, False]


def test_a_list_of_rows_and_a_file_that_starts_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text("\ufeff" + json.dumps([OWN, {**OWN, "name": "other"}]), "utf-8")
    assert [bug.id for bug in load_path(file).bugs] == ["twice", "other"]


def test_problems_of_one_name_get_ids_of_their_own(tmp_path: Path) -> None:
    bugs = load_path(lines(tmp_path, OWN, {**OWN, "code": RIGHT}, OWN)).bugs
    assert [bug.id for bug in bugs] == ["twice", "twice#2", "twice#3"]


# ---------------------------------------------------------------- splits


def named(name: str, **more: Any) -> dict[str, Any]:
    cases = [[[n], f"{name}{n}"] for n in range(2)]
    return {"name": name, "code": f"def f(x):\n    return {name!r}", "cases": cases, **more}


def test_fractions_place_whole_groups_and_depend_on_no_order(tmp_path: Path) -> None:
    rows = [named(f"p{n // 2}", code=f"def f(x):\n    return {n}") for n in range(40)]
    shares: Any = {"train": 0.5, "validation": 0.25, "test": 0.25}
    bugs = load_path(lines(tmp_path, *rows), shares).bugs
    splits = {bug.group: bug.split for bug in bugs}
    assert len(splits) == 20
    assert all(bug.split == splits[bug.group] for bug in bugs)
    counts = [list(splits.values()).count(split) for split in ("train", "validation", "test")]
    assert counts == [10, 5, 5]
    again = load_path(lines(tmp_path, *reversed(rows)), shares).bugs
    assert {bug.group: bug.split for bug in again} == splits


def test_a_split_of_the_row_wins_over_fractions_for_its_whole_group(tmp_path: Path) -> None:
    rows = [named("a"), named("a", split="validation"), named("b")]
    bugs = load_path(lines(tmp_path, *rows), {"train": 1.0}).bugs
    assert [bug.split for bug in bugs] == ["validation", "validation", "train"]


def test_variants_of_one_function_may_not_be_in_two_splits(tmp_path: Path) -> None:
    rows = [named("a", split="train"), named("a", split="test")]
    message = refused(lines(tmp_path, *rows))
    assert "line 2, a: is in the split test, but" in message
    assert "line 1, a" in message


@pytest.mark.parametrize("fractions", [{"train": 0.5}, {"train": 1.5, "test": -0.5}, {"dev": 1.0}])
def test_fractions_that_are_no_shares_are_refused(tmp_path: Path, fractions: Any) -> None:
    assert "fractions" in refused(lines(tmp_path, OWN), fractions=fractions)


# ---------------------------------------------------------------- public forms


def test_quixbugs_rows_with_cases(tmp_path: Path) -> None:
    row = {
        "name": "twice",
        "buggy": WRONG + '\n\n"""\nDouble\n"""\n',
        "correct": RIGHT,
        "pytest": (
            "import pytest\nfrom load_testdata import load_json_testcases\n\n"
            "if pytest.use_correct:\n    from correct_python_programs.twice import twice\n"
            "else:\n    from python_programs.twice import twice\n\n"
            "testdata = load_json_testcases(twice.__name__)\n\n"
            "@pytest.mark.parametrize('input_data,expected', testdata)\n"
            "def test_twice(input_data, expected):\n"
            "    assert twice(*input_data) == expected\n"
        ),
        "cases": [*CASES, [4, 8]],
        "node": None,
    }
    bug = only(lines(tmp_path, row))
    assert bug.visible == (Case((0,), 0), Case((2,), 4), Case((4,), 8))
    assert all(passes(bug, bug.solution))


def test_quixbugs_rows_whose_test_does_more_than_compare(tmp_path: Path) -> None:
    row = {
        "name": "half",
        "buggy": "def half(x):\n    yield x / 3\n",
        "correct": "def half(x):\n    yield x / 2 + 1e-9\n",
        "pytest": (
            "import pytest\nfrom load_testdata import load_json_testcases\n"
            "from python_programs.half import half\n"
            "testdata = load_json_testcases(half.__name__)\n"
            "@pytest.mark.parametrize('input_data,expected', testdata)\n"
            "def test_half(input_data, expected):\n"
            "    if input_data == [7]:\n        pytest.skip('slow')\n"
            "    assert next(half(*input_data)) == pytest.approx(expected, abs=0.01)\n"
        ),
        "cases": [[[1], 0.5], [[7], 99], [[3], 1.5]],
        "node": None,
    }
    bug = only(lines(tmp_path, row))
    assert bug.visible[0].statement.startswith("try:\n    test_half(input_data=[1], expected=0.5)")
    assert passes(bug, bug.solution) == [True, True, True]
    assert passes(bug, bug.code) == [False, False, True]


def test_quixbugs_rows_with_linked_nodes(tmp_path: Path) -> None:
    row = {
        "name": "length",
        "buggy": "from node import Node\n\ndef length(n):\n    return 0 if n is None else 1\n",
        "correct": "def length(n):\n    return 0 if n is None else 1 + length(n.successor)\n",
        "pytest": (
            "import pytest\nfrom node import Node\nfrom python_programs.length import length\n\n"
            "def test1():\n    a = Node('a')\n    assert length(Node('b', a)) == 2\n\n"
            "def test2():\n    assert length(Node('c')) == 1\n"
        ),
        "cases": None,
        "node": (
            "class Node:\n    def __init__(self, value=None, successor=None):\n"
            "        self.value, self.successor = value, successor\n"
        ),
    }
    bug = only(lines(tmp_path, row))
    assert passes(bug, bug.solution) == [True, True]
    assert passes(bug, bug.code) == [False, True]


HUMANEVAL = {
    "task_id": "Mini/0",
    "prompt": (
        "import math\n\ndef even(x):\n    return x % 2 == 0\n\n\n"
        'def largest_even(xs):\n    """ Largest even number, or -1.\n    """\n'
    ),
    "entry_point": "largest_even",
    "canonical_solution": "    return max((x for x in xs if even(x)), default=-1)\n",
    "test": (
        "METADATA = {}\n\ndef check(candidate):\n    assert candidate([1, 2, 4]) == 4\n"
        "    assert candidate([3]) == -1\n    assert candidate([]) == -1\n"
        "    assert candidate([8, 6]) == 8\n"
    ),
}


@pytest.mark.parametrize(
    "buggy",
    [
        {"buggy": "    return max((x for x in xs if even(x)), default=0)\n"},
        {"buggy_solution": "  return max((x for x in xs if even(x)), default=0)\n"},
        {"buggy": "def largest_even(xs):\n    return max(filter(even, xs), default=0)\n"},
    ],
)
def test_humaneval_rows_with_a_body_or_a_whole_function(tmp_path: Path, buggy: Any) -> None:
    bug = only(lines(tmp_path, {**HUMANEVAL, **buggy, "bug_type": "value misuse"}))
    assert (bug.id, bug.entry_point, bug.kind) == ("Mini/0", "largest_even", "value misuse")
    assert passes(bug, bug.solution) == [True, True, True, True]
    assert passes(bug, bug.code) == [True, False, False, True]


def test_mbpp_rows(tmp_path: Path) -> None:
    row = {
        "task_id": 11,
        "text": "Write a function that doubles.",
        "code": RIGHT.replace("\n", "\r\n"),
        "buggy": WRONG,
        "test_setup_code": "one = 1",
        "test_list": ["assert twice(one) == 2", "assert twice(2) == 4", "assert twice(3) == 6"],
    }
    bug = only(lines(tmp_path, row))
    assert (bug.id, bug.entry_point) == ("11", "twice")
    assert passes(bug, bug.solution) == [True, True, True]
    assert passes(bug, bug.code) == [False, False, True]


def test_rows_that_cannot_be_used_are_left_out_and_said(tmp_path: Path) -> None:
    pytest_only = {"name": "p", "buggy": WRONG, "pytest": "def test_a(tmp_path): pass"}
    rows = [
        OWN,
        {**OWN, "name": "single", "cases": CASES[:1]},
        {**pytest_only, "cases": None},
        {"name": "nothing", "buggy": WRONG, "cases": None, "pytest": None},
    ]
    found = load_path(lines(tmp_path, *rows))
    assert [bug.name for bug in found.bugs] == ["twice"]
    said = [line.split("rows.jsonl, ")[1] for line in found.skipped]
    assert said == [
        "line 2, single: it has one test only, and nothing would be left to hide",
        "line 3, p: no test is usable: test_a: needs the fixture 'tmp_path'",
        "line 4, nothing: its cases are null, and it has no 'pytest' source",
    ]


def test_a_collection_of_which_nothing_is_usable_is_an_error(tmp_path: Path) -> None:
    message = refused(lines(tmp_path, {**OWN, "cases": CASES[:1]}))
    assert "no problem could be loaded" in message
    assert "one test only" in message


# ---------------------------------------------------------------- folders


def write(path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return path


TEST_FILE = (
    "import pytest\nfrom buggy import twice\n\n"
    "@pytest.mark.parametrize('x, y', [(0, 0), (1, 2)])\n"
    "def test_small(x, y):\n    assert twice(x) == y\n\n"
    "def test_big():\n    assert twice(50) == 100\n\n"
    "def test_fixture(tmp_path):\n    assert tmp_path\n"
)


def test_a_folder_of_problems_in_every_form(tmp_path: Path) -> None:
    helper = "def aid(x):\n    return x\n\n" + WRONG
    folder = write(
        tmp_path,
        {
            "a/buggy.py": WRONG,
            "a/tests.json": json.dumps(CASES),
            "a/correct.py": RIGHT,
            "b/buggy.py": helper,
            "b/test_twice.py": TEST_FILE,
            "c/buggy.py": helper,
            "c/tests.json": json.dumps({"visible": CASES[:1], "hidden": CASES[1:]}),
            "c/problem.json": '{"entry_point": "twice", "split": "train", "kind": "typo"}',
            "d.py": WRONG,
            "d.json": "".join(f"{json.dumps(case)}\n" for case in CASES),
            "e.py": WRONG,
            "test_e.py": "from e import twice\nassert twice(1) == 2\nassert twice(2) == 4\n",
            "more.jsonl": json.dumps({**OWN, "name": "g"}),
            "empty/readme.txt": "nothing",
            ".hidden/buggy.py": "not python at all (",
        },
    )
    found = load_path(folder)
    bugs = {bug.name: bug for bug in found.bugs}
    assert list(bugs) == ["a", "b", "c", "d", "e", "g"]
    assert {bug.entry_point for bug in bugs.values()} == {"twice"}
    assert (bugs["a"].solution, bugs["c"].kind, bugs["c"].split) == (
        RIGHT,
        "typo",
        "train",
    )
    for bug in bugs.values():
        assert all(passes(bug, RIGHT)), bug.name
        assert not all(passes(bug, bug.code)), bug.name
    assert [line.rsplit("/", 1)[1] for line in found.skipped] == [
        "buggy.py, b: left out test_fixture: needs the fixture 'tmp_path'",
        "empty: it has no buggy.py",
    ]


def test_a_folder_that_is_one_problem_and_a_program_with_its_tests(tmp_path: Path) -> None:
    write(tmp_path, {"one/buggy.py": WRONG, "one/tests.json": json.dumps(CASES)})
    write(tmp_path, {"two.py": WRONG, "two.json": json.dumps(CASES)})
    assert only(tmp_path / "one").name == "one"
    assert only(tmp_path / "two.py").name == "two"


def test_one_case_alone_on_its_line_is_one_case(tmp_path: Path) -> None:
    write(tmp_path, {"a/buggy.py": WRONG, "a/tests.json": "[[3], 6]\n"})
    assert "one test only" in refused(tmp_path / "a")


# ---------------------------------------------------------------- what is malformed


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{not json}", "line 2: is not JSON"),
        ("[1, 2]", "line 2: is a list; expected an object"),
        ("[" * 100_000, "line 2: is nested too deeply"),
        ({"name": "n", "cases": CASES}, "line 2, n: has no program; expected the field 'code'"),
        ({**OWN, "code": 7}, "'code' is a number; expected text"),
        ({**OWN, "code": "def twice(x) return"}, "the program is not Python, line 1"),
        ({**OWN, "code": "x = '\\u0000"}, "the program is not Python"),
        (
            {**OWN, "code": "def once(x): pass"},
            "does not define the entry point 'twice'; it defines",
        ),
        ({**OWN, "cases": []}, "has no tests"),
        ({**OWN, "cases": "x"}, "'cases' is text; expected a list of cases"),
        ({**OWN, "cases": [[1]]}, "'cases', case 1 is none of [arguments, wanted]"),
        ({**OWN, "cases": [CASES[0], "twice(1)"]}, "'cases', case 2 has no assert"),
        ({**OWN, "cases": [{"assert": "assert ("}]}, "'cases', case 1 is not Python"),
        ({**OWN, "visible": CASES}, "has no hidden cases; expected both"),
        ({**OWN, "split": "dev"}, "split is 'dev'; expected train, validation, test"),
        ({**OWN, "kind": 3}, "'kind' is a number; expected text"),
        ({"name": "n", "code": WRONG}, "has no tests; expected 'cases'"),
        ({**HUMANEVAL}, "has no 'buggy'"),
        ({**HUMANEVAL, "buggy": "    return 1", "entry_point": None}, "has no 'entry_point'"),
        ({**HUMANEVAL, "buggy": "    return 1", "test": "def check("}, "'test' is not Python"),
        (
            {"name": "n", "code": WRONG + RIGHT.replace("twice", "two"), "cases": CASES},
            "has no 'entry_point', and it defines twice, two",
        ),
    ],
)
def test_what_is_malformed_is_named_with_file_and_line(
    tmp_path: Path, line: Any, says: str
) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(OWN)}\n{text}\n", "utf-8")
    message = refused(file)
    assert says in message
    assert f"{file}, line 2" in message


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a/buggy.py": WRONG}, "has no tests; expected tests.json or test_*.py beside it"),
        ({"a.py": WRONG}, "has no tests; expected a.json or test_a.py beside it"),
        ({"a/buggy.py": WRONG, "a/tests.json": "{}"}, "tests.json is an object; expected a list"),
        ({"a/buggy.py": WRONG, "a/tests.json": "[[1],"}, "tests.json is not JSON"),
        ({"a/buggy.py": WRONG, "a/tests.json": "[[1], 2]\n[2"}, "tests.json line 2 is not JSON"),
        ({"a/buggy.py": WRONG, "a/test_a.py": "def ("}, "test_a.py is not Python, line 1"),
        ({"a/buggy.py": WRONG, "a/test_a.py": "x = 1"}, "has no tests"),
        ({"a/buggy.py": "def (", "a/tests.json": json.dumps(CASES)}, "not Python, line 1"),
        ({"a/buggy.py": WRONG, "a/tests.json": "[]", "a/problem.json": "7"}, "problem.json is a"),
        ({"readme.md": "hello"}, "expected sub-folders with buggy.py"),
    ],
)
def test_what_is_malformed_in_a_folder_is_named(
    tmp_path: Path, files: dict[str, str], says: str
) -> None:
    message = refused(write(tmp_path, files))
    assert says in message
    assert str(tmp_path) in message


def test_two_test_files_for_one_program_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"a/buggy.py": WRONG, "a/test_1.py": TEST_FILE, "a/test_2.py": TEST_FILE})
    assert "has 2 test files; put the tests into one" in refused(tmp_path)


def test_all_that_is_malformed_is_said_at_once(tmp_path: Path) -> None:
    rows = [{**OWN, "name": f"n{n}", "cases": []} for n in range(30)]
    message = refused(lines(tmp_path, *rows))
    assert "30 malformed" in message
    assert message.count("has no tests") == 20
    assert "and 10 more" in message


def test_a_path_that_is_not_there_and_a_file_that_is_no_text(tmp_path: Path) -> None:
    assert "no such file or folder" in refused(tmp_path / "nowhere")
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in refused(tmp_path / "rows.jsonl")
    (tmp_path / "rows.json").write_text('{"a": 1}', "utf-8")
    assert "is an object; expected a list of rows" in refused(tmp_path / "rows.json")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([WRONG]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    "name id code buggy entry_point cases visible hidden pytest node test test_list prompt split "
    "kind group prelude solution correct test_imports canonical_solution import".split()
)


@given(st.dictionaries(FIELDS, ANY), st.booleans())
def test_any_row_is_loaded_left_out_or_refused_in_words(row: dict[str, Any], based: bool) -> None:
    text = json.dumps({**OWN, **row} if based else row)
    with contextlib.suppress(UsageError):
        assert bug_from_text(text).visible


# ---------------------------------------------------------------- free input


def test_a_pasted_source_brings_its_tests_along() -> None:
    bug = bug_from_text(
        "import math\n\n"
        "def twice(x):\n"
        '    """Double.\n\n    >>> y = 4\n    >>> twice(y)\n    8\n    >>> twice(0.5)\n    1.0\n'
        '    """\n    return x * x  # wrong\n\n\n'
        "assert twice(2) == 4\n\n"
        "def test_three():\n    assert twice(3) == math.floor(6)\n"
    )
    assert bug.entry_point == "twice"
    assert "assert" not in bug.code
    assert "# wrong" in bug.code
    assert (len(bug.visible), bug.hidden) == (4, ())
    assert passes(bug, RIGHT + "import math\n") == [True, True, True, True]
    assert passes(bug, bug.code) == [True, False, False, False]


def test_a_path_or_a_row_will_do_as_well(tmp_path: Path) -> None:
    write(tmp_path, {"a/buggy.py": WRONG, "a/tests.json": json.dumps(CASES)})
    write(tmp_path, {"b.py": f"{WRONG}\nassert twice(1) == 2\nassert twice(3) == 6\n"})
    assert bug_from_text(str(tmp_path / "a")).name == "a"
    assert len(bug_from_text(f"{tmp_path / 'b.py'}\n").visible) == 2
    assert bug_from_text(json.dumps(OWN)).name == "twice"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("please repair my code", "is no path or JSON, and is not Python"),
        (WRONG, "has no tests; expected asserts"),
        ("assert 1 + 1 == 2\n\n", "has no 'entry_point', and it defines no function"),
        ("{}", "has no program"),
        ("missing.jsonl", "no such file"),
    ],
)
def test_free_input_that_is_no_problem_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        bug_from_text(text)


def test_free_input_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has 2 problems; expected one"):
        bug_from_text(str(lines(tmp_path, OWN, OWN)))
