"""Composed problems: some steps over a list of numbers, and an end.

Equal keys give equal problems. A problem depends on its blocks alone, and its split on its name,
however many problems are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from attrs import evolve

from orchestrion import Key
from orchestrion_code_review.blocks import ENDS, STEPS, Block, computed
from orchestrion_code_review.challenge import (
    LEVELS,
    REFERENCES,
    Challenge,
    Level,
    Test,
    builtin,
)

LONGEST = 4
TESTS = 14
_COMPLEXITY = 5


def generate(count: int, key: Key) -> tuple[Challenge, ...]:
    """Return different problems, of each level in turn.

    Args:
        count: number of problems.
        key: for random draws.
    """
    made: dict[str, Challenge] = {}
    draw = 0
    while len(made) < count:
        blocks = _draw(LEVELS[len(made) % len(LEVELS)], key.child("blocks", draw))
        draw += 1
        challenge = compose(blocks)
        if challenge is not None:
            made.setdefault(challenge.id, challenge)
    return tuple(made.values())


def _draw(level: Level, key: Key) -> tuple[Block, ...]:
    """Return different steps, as many as the level has, and an end."""
    random = key.random()
    few = {"basic": 1, "intermediate": 2, "advanced": 3}[level]
    number = few if few < LONGEST - 1 else random.randint(few, LONGEST)
    return (*random.sample(STEPS, number), random.choice(ENDS))


def compose(blocks: Sequence[Block]) -> Challenge | None:
    """Return the problem of these blocks; None if a mistake in a step changes no result."""
    name = ".".join(block.name for block in blocks)
    inputs = _inputs(Key(0).child("composed", name))
    right = [block.right for block in blocks]
    wanted = [computed(right, numbers) for numbers in inputs]
    wrong = []
    for place, block in enumerate(blocks):
        sources = [*right[:place], block.wrong, *right[place + 1 :]]
        if [computed(sources, numbers) for numbers in inputs[2:]] != wanted[2:]:
            wrong.append(_source(sources, block=blocks[-1]))
        elif place < len(blocks) - 1:
            return None
    if not wrong or len({repr(item) for item in wanted}) < len(wanted) // 2:
        return None
    tests = [
        Test(f"transform({numbers!r}) == {value!r}")
        for numbers, value in zip(inputs, wanted, strict=True)
    ]
    level = LEVELS[min(len(blocks) - 2, 2)]
    return Challenge(
        id=f"composed/{name}",
        text=_text_of(blocks),
        entry_point="transform",
        examples=tuple(tests[:2]),
        tests=tuple(tests[2:]),
        level=level,
        category="composed",
        solution=_source(right, block=blocks[-1]),
        wrong=tuple(dict.fromkeys(wrong)),
        reference=evolve(REFERENCES[level], complexity=_COMPLEXITY),
        group=name,
    )


def _inputs(key: Key) -> list[list[int]]:
    """Return lists of numbers; the first two are for examples, and the third is empty."""
    random = key.random()
    lists = [[random.randint(-9, 12) for _ in range(random.randint(3, 9))] for _ in range(TESTS)]
    doubled = [[*numbers, *numbers[:2]] for numbers in lists[8:11]]
    return [*lists[:2], [], [random.randint(1, 9)], *lists[4:8], *doubled, *lists[11:]]


def _source(lines: Sequence[str], block: Block) -> str:
    """Return a program of these expressions, each on the result of the one before."""
    *steps, end = lines
    if end == "items":  # nothing is left to do: the last step is what is returned
        end = steps.pop()
    rows = [f"    items = {line}\n" for line in steps]
    start = "import math\n\n\n" if "math." in "".join(lines) else ""
    head = f"def transform(items: list[int]) -> {block.gives}:\n"
    return f"{start}{head}{''.join(rows)}    return {end}\n"


def _text_of(blocks: Sequence[Block]) -> str:
    *steps, end = [block.says for block in blocks]
    first, *rest = steps
    then = "".join(f", then {step}" for step in rest)
    return f"Take a list of whole numbers. First {first}{then}. At last {end}."


# ---------------------------------------------------------------- problems by their id or words


_PREFIX = "composed/"
_WORD = re.compile(r"[^\W_]+")
# The text of `_text_of`; a prompt may add quotes and line breaks between its words.
_COMPOSED = re.compile(r"Take a list of whole numbers\. First (.+?)\. At last (.+?)\.\s", re.S)


@lru_cache(maxsize=10_000)
def challenge_of(name: str) -> Challenge | None:
    """Return the built-in or composed problem of this id; None if there is none."""
    if not name.startswith(_PREFIX):
        return next((challenge for challenge in builtin() if challenge.id == name), None)
    known = {block.name: block for block in (*STEPS, *ENDS)}
    parts = name.removeprefix(_PREFIX).split(".")
    return compose([known[part] for part in parts]) if known.keys() >= set(parts) else None


def challenge_in(text: str) -> Challenge | None:
    """Return the last built-in or composed problem in a text; None if there is none.

    Case, punctuation and line breaks make no difference. A composed problem comes first.
    """
    name = _composed_in(text) or _builtin_in(text)
    return challenge_of(name) if name else None


def _composed_in(text: str) -> str:
    """Return the id of the last composed problem in a text; "" if there is none."""
    sentences = _COMPOSED.findall(text)
    if not sentences:
        return ""
    steps, end = sentences[-1]
    names = [_blocks_by_words().get(_words(part)) for part in (*steps.split(", then "), end)]
    return _PREFIX + ".".join(name or "" for name in names) if all(names) else ""


def _builtin_in(text: str) -> str:
    """Return the id of the last built-in problem in a text; "" if there is none."""
    words = _words(text)
    positions = [(words.rfind(statement), name) for statement, name in _builtin_by_words()]
    position, name = max(positions, default=(-1, ""))
    return name if position >= 0 else ""


@cache
def _blocks_by_words() -> dict[str, str]:
    return {_words(block.says): block.name for block in (*STEPS, *ENDS)}


@cache
def _builtin_by_words() -> Sequence[tuple[str, str]]:
    return [(_words(challenge.text), challenge.id) for challenge in builtin()]


def _words(text: str) -> str:
    """Return the words of a text, with a space on either side, so that phrases can be found."""
    return f" {' '.join(_WORD.findall(text.lower()))} "
