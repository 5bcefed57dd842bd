"""What counts as one small edit of the syntax tree."""

from __future__ import annotations

import pytest
from orchestrion_repair.one_edit import one_edit, shape

BODY = """
def f(xs, n):
    best = 0
    for x in xs:
        if x > n and x < 9:
            best = max(best, x)
            n -= 1
    return best + n
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x > n", "x >= n"),
        ("best = 0", "best = 1"),
        ("best + n", "n + best"),
        ("max(best, x)", "max(x, best)"),
        ("max(best, x)", "min(best, x)"),
        ("max(best, x)", "x"),
        ("best + n", "best + n + 1"),
        ("x > n and x < 9", "x > n"),
        ("x > n and x < 9", "x > n or x < 9"),
        ("x > n and x < 9", "x > n and x < 9 and best"),
        ("            n -= 1\n", ""),
        ("            n -= 1\n", "        n -= 1\n"),
        ("n -= 1", "n = 1"),
        ("for x in xs:", "for x in xs[1:]:"),
        ("    return best", "    n += 1\n    return best"),
        ("    best = 0\n    for", "    for"),
    ],
)
def test_small_changes_are_one_edit_in_both_directions(old: str, new: str) -> None:
    changed = BODY.replace(old, new)
    assert changed != BODY
    assert one_edit(BODY, changed)
    assert one_edit(changed, BODY)


@pytest.mark.parametrize(
    ("pairs"),
    [
        [("x > n", "x >= n"), ("best = 0", "best = 1")],
        [("max(best, x)", "x"), ("n -= 1", "n += 1")],
        [("            best = max(best, x)\n            n -= 1\n", "            pass\n")],
        [("    best = 0\n", ""), ("best + n", "n")],
    ],
)
def test_changes_in_two_places_are_not(pairs: list[tuple[str, str]]) -> None:
    changed = BODY
    for old, new in pairs:
        changed = changed.replace(old, new)
    assert not one_edit(BODY, changed)


def test_guarding_statements_or_freeing_them_is_one_edit() -> None:
    free = "def f(a):\n    if a:\n        a = 1\n        b = 2\n    return a\n"
    bare = "def f(a):\n    a = 1\n    b = 2\n    return a\n"
    assert one_edit(free, bare)
    assert one_edit(bare, free)


def test_asking_twice_gives_the_same_answer() -> None:
    moved = BODY.replace("            n -= 1\n", "").replace("    return", "    n -= 1\n    return")
    assert [one_edit(BODY, moved) for _ in range(3)] == [True, True, True]


def test_shape_ignores_layout_and_comments() -> None:
    assert shape("x = (1)  # one") == shape("x=1")
    assert shape("x = 1") != shape("x = 2")
