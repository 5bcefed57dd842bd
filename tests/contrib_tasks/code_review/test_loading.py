"""Problems of one's own, and of public collections in their published forms."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from orchestrion_code_review.challenge import Challenge, Test, split_of
from orchestrion_code_review.check_suite import main
from orchestrion_code_review.judging import Judgement, judge
from orchestrion_code_review.loading import from_text, load, read_challenge
from orchestrion_code_review.task import CodeReview, problem_of, text_of
from orchestrion_sandbox import Limits

from orchestrion import Key, OpenContext, UsageError
from tests.contrib_tasks.code_review.support import box, in_loop

HUMANEVAL: dict[str, Any] = {
    "task_id": "Mine/0",
    "prompt": (
        "from typing import List\n\n\ndef helper(n: int) -> int:\n    return n + 1\n\n\n"
        "def bump(numbers: List[int]) -> List[int]:\n"
        '    """ Add one to each.\n    >>> bump([1, 2])\n    [2, 3]\n    """\n'
    ),
    "entry_point": "bump",
    "canonical_solution": "    return [helper(n) for n in numbers]\n",
    "test": (
        "\n\nMETADATA = {'author': 'me'}\n\n\ndef check(candidate):\n"
        "    assert candidate([]) == []\n"
        "    assert candidate([5, 0]) == [6, 1]\n"
        "    assert len(candidate([1] * 50)) == 50\n"
    ),
}
MBPP: dict[str, Any] = {
    "task_id": 7,
    "prompt": "Write a function that gives the items both tuples have.",
    "code": "def shared(a, b):\n    return tuple(set(a) & set(b))",
    "test_imports": [],
    "test_list": [
        "assert set(shared((3, 4), (5, 4))) == {4}",
        "assert shared((1,), (1,)) == (1,)",
        "assert shared((1,), (2,)) == ()",
    ],
}
QUIXBUGS: dict[str, Any] = {
    "name": "bits",
    "buggy": 'def bits(n):\n    return 1\n\n\n"""\nHow many bits of n are set.\n"""\n',
    "correct": "def bits(n):\n    return bin(n).count('1')\n",
    "cases": [[[1], 1], [[7], 3], [[0], 0]],
    "pytest": None,
    "node": None,
}
OWN: dict[str, Any] = {
    "id": "half",
    "text": "Return half of an even number; raise ValueError for others.",
    "entry_point": "half",
    "visible": [[[4], 2]],
    "hidden": [[[8], 4], {"call": [0], "want": 0}],
    "solution": "def half(n: int) -> int:\n    return n // 2\n",
    "wrong": ["def half(n: int) -> float:\n    return n / 3\n"],
    "level": "basic",
    "reference": {"turns": 1},
    "split": "validation",
}


def challenge(row: dict[str, Any]) -> Challenge:
    found, left_out = read_challenge(str(row.get("task_id", row.get("name", "own"))), row)
    assert left_out == ()
    return found


def judged(one: Challenge, *programs: str) -> list[Judgement]:
    async def run() -> list[Judgement]:
        hidden = evolve(one, examples=())
        return [await judge(box(), code, hidden, Limits()) for code in programs]

    return in_loop(run())


@pytest.mark.parametrize("row", [HUMANEVAL, MBPP, QUIXBUGS, OWN], ids=["he", "mbpp", "quix", "own"])
def test_the_solution_of_a_row_passes_and_a_wrong_program_fails(row: dict[str, Any]) -> None:
    one = challenge(row)
    wrong = f"def {one.entry_point}(*args):\n    return 'no'\n"
    right, *others = judged(one, one.solution, wrong, *one.wrong)
    assert right.judged.passed
    assert not any(other.judged.passed for other in others)


def test_humaneval_shows_the_examples_of_its_docstring_and_hides_every_test() -> None:
    one = challenge(HUMANEVAL)
    assert [test.text for test in one.examples] == ["assert (bump([1, 2])) == ([2, 3])"]
    assert len(one.tests) == 3
    cases = [test.case("bump", one.names) for test in one.tests]
    assert [case is None for case in cases] == [False, False, True]


def test_humaneval_statements_find_the_helpers_of_the_prompt() -> None:
    row = {**HUMANEVAL, "test": "def check(candidate):\n    assert candidate([1]) == [helper(1)]\n"}
    one = challenge(row)
    wrong = one.solution.replace("return [helper(n)", "return [n")
    right, bad = judged(one, one.solution, wrong)
    assert right.judged.passed
    assert not bad.judged.passed


def test_mbpp_without_examples_shows_its_first_test() -> None:
    one = challenge(MBPP)
    assert [test.text for test in one.examples] == MBPP["test_list"][:1]
    assert [test.text for test in one.tests] == MBPP["test_list"][1:]
    assert "items both tuples have" in text_of(one)


def test_the_function_under_test_is_the_one_that_tests_call() -> None:
    code = "def helper(n):\n    return n\n\n\ndef asked(n):\n    return helper(n)\n"
    tests = ["assert asked(1) == 1", "assert asked(2) == 2"]
    row = {"name": "x", "entry_point": "helper", "code": code, "test_list": tests}
    assert challenge(row).entry_point == "asked"


def test_numbers_of_json_are_equal_as_in_python() -> None:
    one = challenge({**OWN, "hidden": [[[4], 2], [[6], [3]]]})
    assert [test.equal for test in one.tests] == ["items", "items"]
    [as_float] = judged(challenge(OWN), "def half(n):\n    return n / 2\n")
    assert as_float.judged.passed


def test_a_quixbugs_row_has_its_bug_as_a_wrong_solution_and_its_words_from_the_end() -> None:
    one = challenge(QUIXBUGS)
    assert one.wrong == (QUIXBUGS["buggy"],)
    assert one.text == "How many bits of n are set."


def test_a_program_beside_its_cases_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "third.py").write_text("def third(n):\n    return n // 3\n")
    (tmp_path / "third.json").write_text("[[3], 1]\n[[9], 3]\n[[10], 3]\n")
    [one] = load(tmp_path).challenges
    assert (one.entry_point, len(one.examples), len(one.tests)) == ("third", 1, 2)


def test_a_row_of_its_own_says_everything(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(OWN))
    [one] = load(file).challenges
    assert (one.level, one.reference.turns, split_of(one)) == ("basic", 1, "validation")
    assert one.examples == (Test("half(4) == 2", "items", 1e-9),)


def test_rows_that_cannot_be_used_are_left_out_with_their_reasons(tmp_path: Path) -> None:
    fixture = "def test_half(tmp_path):\n    assert half(2) == 1\n"
    row = {"name": "half", "correct": OWN["solution"], "pytest": fixture, "buggy": OWN["solution"]}
    broken = {**OWN, "id": "broken", "solution": "def half(:"}
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join([json.dumps(broken), "{oops", json.dumps(OWN), json.dumps(row)]))
    found = load(file)
    assert [one.id for one in found.challenges] == ["half"]
    first, second, fourth = sorted(found.skipped, key=lambda reason: reason[reason.index("line") :])
    assert "line 1, broken: the solution is not Python" in first
    assert "line 2" in second
    assert "line 4" in fourth
    assert "fixture" in fourth


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": "hard"}, "level is 'hard'"),
        ({"split": "dev"}, "split is 'dev'"),
        ({"solution": "def half(:"}, "the solution is not Python"),
        ({"visible": []}, "no visible cases"),
        ({"wrong": "no list"}, "'wrong' is text"),
        ({"reference": {"seconds": 3}}, "'reference' has other fields"),
        ({"reference": {"turns": -1}}, "reference.turns is -1"),
        ({"solution": "", "entry_point": ""}, "neither an 'entry_point' nor a solution"),
    ],
)
def test_what_is_malformed_is_an_error_that_names_the_place(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(OWN | changes))
    with pytest.raises(UsageError, match=message) as error:
        load(file)
    assert "line 1" in str(error.value)


def test_statements_find_what_the_solution_imports() -> None:
    code = "import sys\nimport json\n\n\ndef size(value):\n    return sys.getsizeof(value)\n"
    tests = ["assert size(1) == sys.getsizeof(1)", "assert size(2) == sys.getsizeof(2)"]
    one = challenge({"task_id": 596, "prompt": "Give the size.", "code": code, "test_list": tests})
    assert one.prelude.split() == ["import", "sys"]
    [found] = judged(one, one.solution)
    assert found.judged.passed


SLOW = {
    **OWN,
    "id": "slow",
    "solution": "def half(n):\n    while n > 4:\n        pass\n    return n // 2\n",
}


def test_problems_that_their_own_solution_does_not_solve_are_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = {**OWN, "id": "unknown", "hidden": ["assert half(8) == nothing.four"]}
    claims = '    """Halve.\n    >>> half(2)\n    7\n    >>> half(4)\n    2\n    """\n'
    shown = {
        **{k: v for k, v in OWN.items() if k not in ("visible", "hidden")},
        "id": "shown",
        "solution": f"def half(n: int) -> int:\n{claims}    return n // 2\n",
        "cases": [[[8], 4], [[0], 0]],
    }
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, [OWN, SLOW, unknown, shown])))

    async def names() -> dict[str, int]:
        task = CodeReview(suite=str(file), measures=[], cpu_seconds=1)
        async with task.open(OpenContext("task", Key(1))) as opened:
            return {one.id: len(one.examples) for one in opened.challenges}

    assert asyncio.run(names()) == {"half": 1, "shown": 1}
    told = capsys.readouterr()
    told_text = told.out + told.err
    assert "slow: its solution does not pass: 'half(8) == 4': OutOfTime" in told_text
    assert "unknown: its solution does not pass" in told_text
    assert "NameError" in told_text
    assert "shown: its solution does not give the example" in told_text

    file.write_text(json.dumps(unknown))
    with pytest.raises(UsageError, match="unknown: its solution does not pass"):
        asyncio.run(names())


def test_free_input_is_a_row_a_path_or_words(tmp_path: Path) -> None:
    found = from_text(json.dumps(OWN))
    assert found is not None
    assert found.entry_point == "half"
    file = tmp_path / "one.json"
    file.write_text(json.dumps([OWN]))
    assert from_text(str(file)) == found
    assert from_text("Write a function that halves numbers.") is None
    with pytest.raises(UsageError, match="not JSON"):
        from_text("{oops")


def test_preludes_and_solutions_are_never_public() -> None:
    one = challenge({**HUMANEVAL, "test": "SECRET = 12345\n" + str(HUMANEVAL["test"])})
    public = problem_of(one).public()
    assert "12345" in str(problem_of(one).hidden)
    assert "12345" not in repr(public)
    assert "[helper(n) for" not in repr(public)


def test_a_check_says_what_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, [HUMANEVAL, MBPP, QUIXBUGS, OWN])))
    assert main([str(file)]) == 0
    assert "4 of 4 solutions pass, 2 of 2 wrong solutions fail" in capsys.readouterr().out
    broken = {**OWN, "solution": OWN["wrong"][0], "wrong": [OWN["solution"]]}
    file.write_text(json.dumps(broken))
    assert main([str(file)]) == 1
    said = capsys.readouterr().out
    assert "half: its solution does not pass: 'half(8) == 4': gave 2.66" in said
    assert "half: wrong solution 1 passes every test" in said
    assert main([]) == main([str(tmp_path / "nowhere")]) == 2
