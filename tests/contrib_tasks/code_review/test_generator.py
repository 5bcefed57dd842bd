"""Composed problems: blocks that do what they say, and the same problems from the same key."""

from __future__ import annotations

from orchestrion_code_review.blocks import ENDS, STEPS, computed
from orchestrion_code_review.challenge import LEVELS, builtin
from orchestrion_code_review.generator import challenge_in, challenge_of, compose, generate

from orchestrion import Key

BLOCKS = (*STEPS, *ENDS)


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


def test_a_problem_is_found_by_its_words_in_a_prompt_the_last_one_and_composed_ones_first() -> None:
    first, second = generate(2, Key(6))
    known, other = builtin()[3], builtin()[7]
    prompt = "Solve this.\n" + "\n".join(known.text.upper().split())
    assert challenge_in(prompt) == known
    assert challenge_in(f"{prompt} Then: {other.text}") == other
    assert challenge_in(f"{first.text} {second.text} {other.text}\n") == second
    assert challenge_in(f"> {first.text}\n> Now write it.") == first
    assert challenge_in(first.text.replace("First ", "First juggle, then ") + " ") is None
    assert challenge_in("Write a poem.") is challenge_of("composed/evens.unknown") is None
