"""Composed problems: blocks that do what they say, and the same problems from the same key."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate, pairwise
from operator import mul
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from orchestrion_code_review.blocks import ENDS, STEPS, computed
from orchestrion_code_review.challenge import LEVELS
from orchestrion_code_review.generator import compose, generate

from orchestrion import Key

BLOCKS = (*STEPS, *ENDS)
NUMBERS = st.lists(st.integers(-20, 20), max_size=10)
MEANINGS: dict[str, Callable[[list[int]], Any]] = {
    "evens": lambda items: [n for n in items if not n % 2],
    "odds": lambda items: [n for n in items if n % 2 != 0],
    "positive": lambda items: [n for n in items if n >= 1],
    "small": lambda items: [n for n in items if abs(n) < 6],
    "squares": lambda items: [n**2 for n in items],
    "absolute": lambda items: [max(n, -n) for n in items],
    "add-index": lambda items: [items[i] + i for i in range(len(items))],
    "remainder": lambda items: [n - n // 7 * 7 for n in items],
    "ascending": lambda items: sorted(items, reverse=True)[::-1],
    "descending": lambda items: sorted(items)[::-1],
    "reversed": lambda items: list(reversed(items)),
    "distinct": lambda items: sorted(set(items), key=items.index),
    "alternate": lambda items: [n for i, n in enumerate(items) if i % 2 == 0],
    "without-first": lambda items: [n for i, n in enumerate(items) if i],
    "at-most-four": lambda items: [n for i, n in enumerate(items) if i < 4],
    "running-sum": lambda items: list(accumulate(items)),
    "differences": lambda items: [b - a for a, b in pairwise(items)],
    "list": lambda items: items,
    "sum": lambda items: [0, *accumulate(items)][-1],
    "product": lambda items: reduce(mul, items, 1),
    "largest": lambda items: sorted(items)[-1] if items else None,
    "spread": lambda items: sorted(items)[-1] - sorted(items)[0] if items else 0,
    "count": lambda items: sum(n not in items[:i] for i, n in enumerate(items)),
    "text": lambda items: "-".join(f"{n}" for n in items),
}


@given(items=NUMBERS)
def test_each_block_computes_what_it_says(items: list[int]) -> None:
    for block in BLOCKS:
        value, meant = computed([block.right], items), MEANINGS[block.name](list(items))
        assert (type(value), value) == (type(meant), meant), block.name


def test_the_mistake_of_each_block_makes_a_difference() -> None:
    lists = [[3, -4, 0, 5, -5, 3, 12, 6, 1], [7, -7, 2], []]
    for block in BLOCKS:
        results = [(computed([block.right], one), computed([block.wrong], one)) for one in lists]
        assert any(right != wrong for right, wrong in results), block.name


def test_equal_keys_give_equal_problems_and_more_of_them_begin_alike() -> None:
    assert generate(20, Key(3)) == generate(20, Key(3))
    assert generate(30, Key(3))[:20] == generate(20, Key(3))
    assert generate(20, Key(4)) != generate(20, Key(3))


def test_problems_are_different_and_of_all_levels() -> None:
    made = generate(60, Key(1))
    assert len({one.id for one in made}) == 60
    assert len({one.solution for one in made}) == 60
    assert {one.level for one in made} == set(LEVELS)


def test_a_problem_depends_on_its_blocks_alone() -> None:
    one = generate(5, Key(1))[4]
    names = one.id.removeprefix("composed/").split(".")
    blocks = {block.name: block for block in (*STEPS, *ENDS)}
    assert compose([blocks[name] for name in names]) == one


def test_the_words_say_every_step_in_order() -> None:
    for one in generate(12, Key(2)):
        blocks = {block.name: block for block in (*STEPS, *ENDS)}
        said = [blocks[name].says for name in one.id.removeprefix("composed/").split(".")]
        places = [one.text.index(words) for words in said]
        assert places == sorted(places)
