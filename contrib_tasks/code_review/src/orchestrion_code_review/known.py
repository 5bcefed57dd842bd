"""Find the problems that come with this task: by their id, or by their words in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from orchestrion_code_review.blocks import ENDS, STEPS
from orchestrion_code_review.challenge import Challenge
from orchestrion_code_review.generator import compose
from orchestrion_code_review.suite_files import builtin

__all__ = ["challenge_in", "challenge_of"]

_PREFIX = "composed/"
_WORD = re.compile(r"[^\W_]+")
# What `generator` writes; quotes and line breaks of a prompt may stand between its words.
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
    """Return the last of these problems that a text shows; None if it shows none.

    Case, punctuation and line breaks make no difference. A composed problem comes first.
    """
    name = _composed_in(text) or _builtin_in(text)
    return challenge_of(name) if name else None


def _composed_in(text: str) -> str:
    """Return the id of the last composed problem that a text shows, from its sentences."""
    sentences = _COMPOSED.findall(text)
    if not sentences:
        return ""
    steps, end = sentences[-1]
    names = [_blocks_by_words().get(_words(part)) for part in (*steps.split(", then "), end)]
    return _PREFIX + ".".join(name or "" for name in names) if all(names) else ""


def _builtin_in(text: str) -> str:
    """Return the id of the built-in problem whose words stand last in a text."""
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
    """Return a text as words alone, with a blank on either side, so that phrases can be found."""
    return f" {' '.join(_WORD.findall(text.lower()))} "
