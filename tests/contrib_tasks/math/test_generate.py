"""Generated problems: right answers, splits that are apart, and a teacher as wrong as it says."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_math.generate import Arithmetic, MathTeacher, generate, solve

from orchestrion import Answer, CallError, Key, UsageError

SIZES = {"train": 40, "validation": 10, "test": 20}


def answers(settings: Arithmetic) -> dict[str, str]:
    return {
        one.text: one.hidden["answer"] for found in generate(settings).values() for one in found
    }


def by_hand(numbers: list[str], signs: list[str]) -> int:
    """Products are drawn together first; then what is left is added up."""
    values = [int(one) for one in numbers]
    while "*" in signs:
        at = signs.index("*")
        values[at : at + 2] = [values[at] * values[at + 1]]
        del signs[at]
    return values[0] + sum(v if s == "+" else -v for s, v in zip(signs, values[1:], strict=True))


@given(
    operators=st.sampled_from(["+", "-", "+-", "+-*"]),
    digits=st.integers(2, 4),
    steps=st.integers(1, 3),
    negative=st.booleans(),
    seed=st.integers(0, 9),
)
def test_answers_are_right_and_sizes_as_stated(
    operators: str, digits: int, steps: int, negative: bool, seed: int
) -> None:
    settings = Arithmetic(
        "symbols", operators, digits, steps, negative, train=9, validation=3, test=5, seed=seed
    )
    found = answers(settings)
    assert len(found) == 17, "no two are alike"
    for text, answer in found.items():
        numbers = re.findall(r"\d+", text)
        assert len(numbers) == steps + 1
        assert all(len(one) <= digits for one in numbers)
        assert set(re.sub(r"\d", "", text)) <= set(operators)
        assert int(answer) == by_hand(numbers, re.findall(r"[-+*]", text))
        assert negative or int(answer) >= 0


def test_a_story_tells_the_same_arithmetic() -> None:
    told = "Ada has 5 pens. Ada gets 2 more. Then Ada makes it 3 times as many. "
    assert solve(told + "Then Ada gives 1 away. How many pens does Ada have now?") == 20
    found = answers(Arithmetic("story", "+-*", digits=1, steps=3, **SIZES))  # type: ignore[arg-type]
    assert all(solve(text) == int(answer) >= 0 for text, answer in found.items())


def test_equal_seeds_give_equal_problems_and_more_training_moves_no_test() -> None:
    small = generate(Arithmetic(**SIZES))  # type: ignore[arg-type]
    large = generate(Arithmetic(**{**SIZES, "train": 80}))  # type: ignore[arg-type]
    other = generate(Arithmetic(**SIZES, seed=1))  # type: ignore[arg-type]
    assert small["test"] == large["test"] != other["test"]
    assert small["train"] == large["train"][:40]
    default = generate(Arithmetic())
    assert {split: len(problems) for split, problems in default.items()} == {
        "train": 2048,
        "validation": 128,
        "test": 512,
    }
    assert [problems[0].text for problems in default.values()] == ["99+65", "24+24", "62-47"]


def test_padded_numbers_have_every_digit_at_its_place() -> None:
    settings = Arithmetic(digits=3, steps=2, padded=True, train=50, validation=0, test=0)
    for problem in generate(settings)["train"]:
        assert re.fullmatch(r"\d{3}[-+]\d{3}[-+]\d{3}", problem.text)
        numbers, signs = re.split("[-+]", problem.text), re.findall("[-+]", problem.text)
        assert problem.hidden["answer"] == str(by_hand(numbers, signs))


def test_padding_a_story_is_refused() -> None:
    with pytest.raises(ValueError, match="story"):
        Arithmetic(form="story", padded=True)


def test_too_few_different_problems_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"only .* different problems"):
        generate(Arithmetic("symbols", "+", digits=1, train=90, validation=10, test=1))


@pytest.mark.parametrize("operators", ["", "/", "++"])
def test_unknown_operators_are_refused(operators: str) -> None:
    with pytest.raises(ValueError, match="want some of"):
        Arithmetic("symbols", operators)


def ask(prompt: str, teacher: MathTeacher, times: int = 1000) -> list[str]:
    async def go() -> list[Answer]:
        request = {"messages": [{"role": "user", "content": prompt}]}
        return [await teacher.complete(request, Key(n), None) for n in range(times)]  # type: ignore[arg-type]

    return [one.data["text"] for one in asyncio.run(go())]


def test_the_teacher_is_as_wrong_as_it_says() -> None:
    teacher = MathTeacher(reverse=True, wrong_answer=0.4, wrong_verdict=0.2)

    def rate(prompt: str, right: str) -> float:
        return sum(one == right for one in ask(prompt, teacher)) / 1000

    assert rate("S58+7=", "56") == pytest.approx(0.6, abs=0.06)
    assert rate("V58+7=56?", "y") == pytest.approx(0.8, abs=0.06)
    assert rate("V2:58+7=65?", "n") == pytest.approx(0.8, abs=0.06)
    assert set(ask("S58+7=", MathTeacher(wrong_answer=0))) == {"65"}
    assert all(len(one) == 2 for one in ask("S58+7=", MathTeacher(wrong_answer=1)))
    assert "65" not in ask("S58+7=", MathTeacher(wrong_answer=1))


@pytest.mark.parametrize("prompt", ["58+7=", "Shello=", "S58+7", ""])
def test_the_teacher_refuses_what_is_no_generated_problem(prompt: str) -> None:
    with pytest.raises(CallError, match="math-teacher"):
        ask(prompt, MathTeacher(), 1)
