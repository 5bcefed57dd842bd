"""Texts as fixed numbers of features, by hashing (Weinberger et al. 2009)."""

from __future__ import annotations

import re
from functools import lru_cache
from math import copysign, log
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from orchestrion_encoders.interfaces import Floats

WORD = re.compile(r"\w+")
STATED = re.compile(
    r"([^\W\d]\w*)(?:\s*[:=]|\s+(?:is|of|at|costs?|about))?\s+([-+]?\d+(?:\.\d+)?)(%?)"
)
"""A word and the number stated of it: "code 0.9", "price: .02", "accuracy of 85%"."""
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?%?")
REMEMBERED = 4096


def _place(token: str, width: int) -> tuple[int, float]:
    code = crc32(token.encode())
    return code % width, 1.0 if (code >> 16) & 1 else -1.0


@lru_cache(REMEMBERED)
def hashed_words(text: str, width: int, ngrams: int = 1) -> Floats:
    """Return a text as a signed bag of its runs of 1 to `ngrams` words [width], of length 1.

    Not to be changed: equal texts share one array.
    """
    row = np.zeros(width)
    words = WORD.findall(text.lower())
    for size in range(1, ngrams + 1):
        for start in range(len(words) - size + 1):
            place, sign = _place(" ".join(words[start : start + size]), width)
            row[place] += sign
    norm = float(np.sqrt(row @ row))
    if norm > 0:
        row /= norm
    row.flags.writeable = False
    return row


@lru_cache(REMEMBERED)
def hashed_numbers(text: str, width: int) -> Floats:
    """Return the numbers that a text states of words, each at the place of its word [width].

    Numbers up to 1 stay as they are, larger ones grow with their logarithm. Not to be changed.
    """
    row = np.zeros(width)
    for word, number, percent in STATED.findall(text.lower()):
        place, sign = _place(word, width)
        value = float(number) / (100 if percent else 1)
        row[place] += sign * (value if abs(value) <= 1 else copysign(1 + log(abs(value)), value))
    row.flags.writeable = False
    return row


def unstated(text: str) -> str:
    """Return a text without the words it states numbers of, and without numbers.

    As words they would tell similar agents apart by what is the least alike in them.
    """
    return NUMBER.sub(" ", STATED.sub(" ", text.lower()))
