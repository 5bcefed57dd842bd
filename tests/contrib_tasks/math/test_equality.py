"""What counts as the same answer, and what a hostile one can do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_math.equality import LONGEST, normal, number, same
from orchestrion_math.grader import Grader

from orchestrion import RunError


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    grader = Grader(seconds=20)
    yield grader
    grader.close()


def no_symbols(given: str, wanted: str) -> bool:
    raise AssertionError(f"{given} and {wanted} need no algebra")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1,000", "1000"),
        ("70000", "70,000"),
        (r"\$18", "18"),
        ("18 dollars", "18"),
        ("18.", "18"),
        ("18.00", "18"),
        (r"50\%", "50"),
        (r"5\text{ cm}^2", "5"),
        (r"90^\circ", "90"),
        (r"\frac12", "0.5"),
        (".5", r"\dfrac{1}{2}"),
        ("1/2", r"\frac{2}{4}"),
        (r"3\frac{1}{2}", "7/2"),
        ("x = 5", "5"),
        (r"x\in[1,2]", "[1,2]"),
        (r"\text{Evelyn}", "Evelyn"),
        ("evelyn", r"\text{Evelyn}"),
        (r"( 3, \frac{\pi}{2})", r"\left( 3, \frac{\pi}{2} \right)"),
        ("1, 2", "2,1"),
        (r"\{3, 1\}", r"\{1,3\}"),
        (r"(2,3]\cup(-\infty,1)", r"(-\infty,1) \cup (2,3]"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        ("21_{3}", "21_3"),
        ("(21)_3", "21_{3}"),
        ("21", "21_3"),
        ("1A", "1A_{16}"),
        ("21_{10}", "21"),
        ("22_3, 21_3", "21_3,22_3"),
        ("yx", "xy"),
        ("BA", "AB"),
        ("zxy", "xyz"),
        ("x = 1, x = 2", "1,2"),
        ("2,1", "x=1,x=2"),
        ("5 ± 2", r"5 \pm 2"),
        (r"\pm 3", "3,-3"),
        ("-3,3", r"x = \pm 3"),
        (r"2, \pm\frac12", r"-\frac{1}{2},2,\frac{1}{2}"),
        (r"\{\pm 2\}", r"\{-2,2\}"),
        (r"\pm\sqrt2", r"\sqrt{2},-\sqrt{2}"),
        (r"1+\sqrt2,1-\sqrt2", r"1 \pm \sqrt{2}"),
        (r"(\pm 1, 2)", "(1,2),(-1,2)"),
        (r"5\sqrt{2} cm", r"5\sqrt{2}"),
        ("6 lb", "6"),
        ("6 cc", "6"),
        ("6 xy", "6xy"),
        ("f(x) = 2x+1", "f(x)=2x+1"),
        ("1 1/2", "1.5"),
        ("-2 3/4 cups", "-2.75"),
        ("10 000 km", "10000"),
        (r"\emptyset", r"\varnothing"),
        (r"\{ \}", "∅"),
        (r"3\text{ million dollars}", "3 million"),
    ],
)
def test_writings_of_one_answer_are_equal(given: str, wanted: str) -> None:
    assert same(given, wanted, no_symbols)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", "7"),
        ("8", "7"),
        ("-7", "7"),
        ("PASS", "7"),
        ("3+4", "7"),
        ("14/2", "7"),
        (r"\sqrt{49}", "7"),
        ("7 or 8", "7"),
        ("7, 8", "7"),
        ("0.333333", r"\frac{1}{3}"),
        ("0.5", "50"),
        ("(1,2)", "[1,2]"),
        ("(2,1)", "(1,2)"),
        ("(1,2,3)", "(1,2)"),
        (r"\{1\}", r"\{1,1\}"),
        ("1,1", "1,2"),
        ("5x", "5"),
        ("B", "A"),
        ("5", "x+5"),
        (r"\text{yes}", r"\text{no}"),
        ("21_4", "21_3"),
        ("21_{10}", "21_3"),
        ("7", "21_3"),
        ("21_3", "21"),
        ("2516_8", "2516"),
        (r"21 \text{ base four}", "21_3"),
        ("on", "no"),
        ("(on)", "no"),
        ("act", "cat"),
        ("BAC", "ABC"),
        ("LX", "XL"),
        ("3", r"\pm 3"),
        (r"\pm 3", "3"),
        (r"\pm 3", "3,3"),
        (r"\pm 1 \pm 2", "3,-3"),
        ("x=2,y=1", "1,2"),
        ("x=2,y=1", "x=1,y=2"),
        ("z=2x+1", "y=2x+1"),
        ("6 xy", "6"),
        ("6", "6 ab"),
        ("1 1/2", r"\frac{11}{2}"),
        ("2 3", "23"),
        ("1.5 2", "1.52"),
        ("3 million", "3"),
        (r"3\text{ Billion}", "3"),
        ("3 hundred dollars", "3"),
        ("3 and a half", "3"),
        ("2 thirds", "2"),
        (r"\emptyset", "0"),
    ],
)
def test_other_answers_are_not(given: str, wanted: str) -> None:
    assert not same(given, wanted, lambda *_: False)


@given(st.fractions(max_denominator=999), st.integers(1, 9))
def test_a_number_is_itself_however_it_is_written(value: Fraction, factor: int) -> None:
    over, under = value.numerator, value.denominator
    assert same(
        f"\\frac{{{over * factor}}}{{{under * factor}}}", f"{over}/{under}", no_symbols
    ) == (under > 1)
    assert same(f"{over:,}", str(over), no_symbols)
    assert number(normal(f"{over}/{under}")) == value


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_can_be_compared(given: str, wanted: str) -> None:
    same(given, wanted, lambda *_: False)
    assert same(wanted, wanted, lambda *_: False) or not normal(wanted)


@pytest.mark.parametrize(
    ("given", "wanted", "equal"),
    [
        ("-q + p", "p - q", True),
        (r"2\sqrt{2}", r"\sqrt{8}", True),
        (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}", True),
        ("(x+1)^2", "x^2+2x+1", True),
        ("1024", "2^{10}", True),
        ("(x+1)^2", "x^2+1", False),
        ("1.41", r"\sqrt{2}", False),
        ("PASS", r"\sqrt{2}", False),
        (r"x\cdot y", "xy", True),
        (r"a \times b", "ab", True),
        ("ab", r"b\cdot a", True),
        (r"x\cdot z", "xy", False),
        ("21_3+1", "22_3", False),
        ("21_4+x", "x+21_3", False),
        (r"\frac{-1\pm\sqrt5}{2}", r"\frac{-1-\sqrt5}{2},\frac{-1+\sqrt5}{2}", True),
        (r"\pm\sqrt2", r"\pm\sqrt3", False),
        (r"2\sqrt2=\sqrt8", r"\sqrt{8}", True),
        (r"f(2) = 2\sqrt2 = \sqrt8", r"\sqrt{8}", True),
        (r"\sqrt{3}=\sqrt{2}", r"\sqrt{2}", False),
        (r"x=\sqrt{3}=\sqrt{2}", r"\sqrt{2}", False),
        ("x^2=(x+1)^2", "(x+1)^2", False),
        (r"a=1;b=\sqrt{2}", r"\sqrt{2}", False),
        ("A", "a", False),
        ("E", "e", False),
        ("(A)", "A", True),
        ("X+1", "x+1", False),
        ("2t", "2s", False),
    ],
)
def test_expressions_are_compared_by_algebra(
    grader: Grader, given: str, wanted: str, equal: bool
) -> None:
    assert same(given, wanted, grader.equal) is equal


@pytest.mark.parametrize(
    "given",
    [
        "__import__('os').system('touch made-by-an-answer')",
        "exec(\"open('made-by-an-answer','w')\")",
        r"\input{/etc/passwd}",
        "}{$$" * 40,
        "(" * 120,
        "[1]\n[2]",
    ],
)
def test_an_answer_is_never_run(
    grader: Grader, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not same(given, r"\sqrt{2}", grader.equal)
    assert not list(tmp_path.iterdir())


def test_an_expression_without_end_costs_its_seconds_and_nothing_else() -> None:
    grader = Grader(seconds=1)
    try:
        assert grader.equal(r"2\sqrt{2}", r"\sqrt{8}") in (True, False)  # started
        before = time.process_time()
        assert not same("9^{9^{9}}", r"\sqrt{2}", grader.equal)
        assert time.process_time() - before < 0.5, "the work is done elsewhere"
        grader.seconds = 20
        assert same("x+y", "y+x", grader.equal), "and the next one is compared as ever"
    finally:
        grader.close()


def test_a_process_that_does_not_start_or_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grader = Grader()
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", "/bin/true")
        with pytest.raises(RunError, match="does not start; try `python -m orchestrion_math"):
            grader.equal("x", "y")
        patch.setattr("orchestrion_math.grader.PATIENCE", 0.01)
        patch.setattr("sys.executable", "/bin/cat")
        with pytest.raises(RunError, match=r"does not start|no word for 0\.01 s"):
            grader.equal("x", "y")
    try:
        assert grader.equal("x+y", "y+x"), "the next one starts another"
    finally:
        grader.close()


def test_what_is_very_long_is_compared_as_text() -> None:
    long = "9" * (LONGEST + 1)
    assert same(long, long, no_symbols)
    assert not same(long, "7", no_symbols)
