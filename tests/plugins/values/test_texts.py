"""Texts as numbers."""

from __future__ import annotations

import numpy as np
import pytest
from orchestrion_values.arrays import pack, unpack
from orchestrion_values.texts import Texts, _look, fit_texts

SUMS = [f"What is {i} plus {i * 7 % 11}? Add the numbers." for i in range(30)]
POEMS = [f"write a poem about the {word} and the sea" for word in "abcdefghijklmnopqrstuvwxyzäöüß"]


def fitted() -> Texts:
    return fit_texts(SUMS + POEMS, ["sums"] * 30 + ["poems"] * 30, 7)


def test_similar_texts_are_near_and_categories_can_be_guessed() -> None:
    texts = fitted()
    new = texts.numbers(["What is 101 plus 5? Add the numbers.", "write a poem about the moon"])
    assert np.linalg.norm(new, axis=1) == pytest.approx([1, 1])
    assert texts.categories == ("poems", "sums")
    guessed = texts.guessed(new)
    assert guessed.sum(axis=1) == pytest.approx([1, 1])
    assert guessed[0, 1] > 0.8
    assert guessed[1, 0] > 0.8
    near = new @ texts.numbers(SUMS + POEMS).T
    assert near[0].argmax() < 30 <= near[1].argmax()
    few = fit_texts(SUMS + POEMS[:5], ["sums"] * 30 + ["poems"] * 5, 7)
    nothing = np.zeros((1, len(few.weights) - 1))
    assert few.guessed(nothing)[0, 1] > 0.8, "most texts are sums"


def test_what_is_saved_makes_the_same_numbers() -> None:
    texts = fitted()
    arrays, data = texts.save()
    back = Texts.load(unpack(pack(arrays)), data)
    shown = ["What is 3 plus 4?", "", "ein Gedicht"]
    assert back.numbers(shown).tolist() == texts.numbers(shown).tolist()
    assert (
        back.guessed(texts.numbers(shown)).tolist() == texts.guessed(back.numbers(shown)).tolist()
    )


def test_a_text_has_the_same_numbers_alone_and_in_a_batch() -> None:
    texts = fitted()
    together = texts.numbers(SUMS[:5])
    for text, row in zip(SUMS[:5], together, strict=True):
        assert texts.numbers([text])[0] == pytest.approx(row, abs=1e-12)


@pytest.mark.parametrize("given", [[""], ["a", "a"], ["?", "!"], ["one text"]])
def test_few_or_empty_texts_are_no_error(given: list[str]) -> None:
    texts = fit_texts(given, [None] * len(given), 1)
    assert np.isfinite(texts.numbers([*given, "another"])).all()
    assert texts.guessed(texts.numbers(given)).shape == (len(given), 0)


def test_the_look_of_a_text_is_counted() -> None:
    length, words, of_a_word, digits, capitals, signs, *rest = _look("Is 2+2 = 4?\n")
    assert (length, words) == pytest.approx((np.log1p(12), np.log1p(4)))
    assert (of_a_word, digits, capitals, signs) == pytest.approx((3, 3 / 12, 1 / 12, 3 / 12))
    begins, ends, marks, plain = rest[:2], rest[2:5], rest[5:-1], rest[-1]
    assert begins == [1.0, 0.0]  # a capital, a small letter
    assert ends == [1.0, 0.0, 0.0]  # a question mark, a full stop, a letter or digit
    assert marks == pytest.approx([np.log1p(1), np.log1p(1), *[0.0] * 7])
    assert plain == 1.0
    assert _look("So.")[6:11] == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert _look("so")[6:11] == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert _look("é")[-1] == 0.0
