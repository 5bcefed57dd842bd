"""Composed problems: some steps over a list of numbers, and an end.

Wanted values are what the blocks' functions give one after the other, never what some source
gives. Equal keys give equal problems; a problem depends on its blocks alone, not on how many
others were drawn, and its split on its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrion import Key
from orchestrion_code_review.blocks import ENDS, STEPS, Block
from orchestrion_code_review.challenge import (
    LEVELS,
    REFERENCES,
    Challenge,
    Level,
    Reference,
    Test,
)

__all__ = ["compose", "generate"]

LONGEST = 4
TESTS = 14
_COMPLEXITY = 5


def generate(count: int, key: Key) -> tuple[Challenge, ...]:
    """So many different problems.

    Args:
        count: how many; levels take turns.
        key: which ones.
    """
    made: dict[str, Challenge] = {}
    draw = 0
    while len(made) < count:
        blocks = _drawn(LEVELS[len(made) % len(LEVELS)], key.child("blocks", draw))
        draw += 1
        challenge = compose(blocks)
        if challenge is not None:
            made.setdefault(challenge.id, challenge)
    return tuple(made.values())


def _drawn(level: Level, key: Key) -> tuple[Block, ...]:
    """Steps of a level, no two alike, and an end."""
    random = key.random()
    few = {"basic": 1, "intermediate": 2, "advanced": 3}[level]
    number = few if few < LONGEST - 1 else random.randint(few, LONGEST)
    return (*random.sample(STEPS, number), random.choice(ENDS))


def compose(blocks: Sequence[Block]) -> Challenge | None:
    """The problem of these blocks; None if too little depends on some block."""
    name = ".".join(block.name for block in blocks)
    inputs = _inputs(Key(0).child("composed", name))
    wanted = [_through(blocks, numbers) for numbers in inputs]
    wrong = []
    for place, block in enumerate(blocks):
        forms = [one.wrong if i == place else one.right for i, one in enumerate(blocks)]
        got = [_run([form.does for form in forms], numbers) for numbers in inputs]
        if got[2:] != wanted[2:]:
            wrong.append(_source([form.source for form in forms], block=blocks[-1]))
        elif block.wrong.source != block.right.source and place < len(blocks) - 1:
            return None  # a mistake there would go unnoticed
    if not wrong or len({repr(one) for one in wanted}) < len(wanted) // 2:
        return None
    tests = [
        Test(f"transform({numbers!r}) == {value!r}")
        for numbers, value in zip(inputs, wanted, strict=True)
    ]
    level = LEVELS[min(len(blocks) - 2, 2)]
    standard = REFERENCES[level]
    return Challenge(
        id=f"composed/{name}",
        text=_words(blocks),
        entry_point="transform",
        examples=tuple(tests[:2]),
        tests=tuple(tests[2:]),
        level=level,
        category="composed",
        solution=_source([block.right.source for block in blocks], block=blocks[-1]),
        wrong=tuple(dict.fromkeys(wrong)),
        reference=Reference(standard.turns, standard.tokens, standard.usd, _COMPLEXITY),
        group=name,
    )


def _inputs(key: Key) -> list[list[int]]:
    """Lists of numbers, the third empty: the first two are examples."""
    random = key.random()
    lists = [[random.randint(-9, 12) for _ in range(random.randint(3, 9))] for _ in range(TESTS)]
    doubled = [[*numbers, *numbers[:2]] for numbers in lists[8:11]]
    return [*lists[:2], [], [random.randint(1, 9)], *lists[4:8], *doubled, *lists[11:]]


def _through(blocks: Sequence[Block], numbers: Sequence[int]) -> Any:
    return _run([block.right.does for block in blocks], numbers)


def _run(functions: Sequence[Any], numbers: Sequence[int]) -> Any:
    value: Any = list(numbers)
    for function in functions:
        value = function(value)
    return value


def _source(lines: Sequence[str], block: Block) -> str:
    """A program of these expressions, each on the result of the one before."""
    *steps, end = lines
    if end == "items":  # nothing is left to do: the last step is what is returned
        end = steps.pop()
    rows = [f"    items = {line}\n" for line in steps]
    start = "import math\n\n\n" if "math." in "".join(lines) else ""
    head = f"def transform(items: list[int]) -> {block.gives}:\n"
    return f"{start}{head}{''.join(rows)}    return {end}\n"


def _words(blocks: Sequence[Block]) -> str:
    *steps, end = [block.says for block in blocks]
    first, *rest = steps
    then = "".join(f", then {one}" for one in rest)
    return f"Take a list of whole numbers. First {first}{then}. At last {end}."
