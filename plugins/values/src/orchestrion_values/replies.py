"""Which words of an agent's replies may say what to do next, such as a reviewer's verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import log

import numpy as np

from orchestrion import Turn
from orchestrion_values.arrays import Floats, Ints, Mask

WORD = re.compile(r"[^\W_]+")
ENDS = 6
"""Of a longer reply, so many words at its beginning and at its end are read."""
LONG = 40
"""The characters of a word that are read."""
FAILED = "_failed"
"""Stands for the reply of a turn that failed; no word has this form."""
RECURRING, SHARE = 4, 0.08
"""The least number of problems, and the least share of replies, with a word and without it."""
FEW, MOST = 6, 2
"""With up to so many recurring words of an agent each may be kept; so many are."""

Words = Mapping[str, tuple[str, ...]]
"""The kept words of each agent."""


def words_of(turn: Turn) -> str:
    """Return the words of a reply that are read, separated by spaces."""
    if turn.status != "completed":
        return FAILED
    words = [word[:LONG] for word in WORD.findall(turn.output.content.lower())]
    if len(words) > 2 * ENDS:
        words = words[:ENDS] + words[-ENDS:]
    return " ".join(dict.fromkeys(words))


def signature(reply: str, words: Sequence[str]) -> str:
    """Return for each word whether the reply has it, as text of 0 and 1."""
    present = set(reply.split())
    return "".join("1" if word in present else "0" for word in words)


def telling(replies: Sequence[str], problems: Sequence[str], returns: Floats) -> tuple[str, ...]:
    """Return the words of one agent's replies that tell the most of how episodes go on.

    They recur on several problems, so they are no answers. With many such words, only those count
    that explain more of the returns than the best of as many random ones would.

    Args:
        replies: n of them, by `words_of`.
        problems: their names [n].
        returns: the sum of rewards from each reply on [n].
    """
    candidates = _recurring(replies, problems)
    least = 0.0 if len(candidates) <= FEW else 2 * log(len(candidates))
    variance = float(returns.var()) or 1.0
    groups, explained = np.zeros(len(replies), np.int64), 0.0
    chosen: list[str] = []
    while candidates and len(chosen) < MOST:
        sums = {word: _between(2 * groups + has, returns) for word, has in candidates.items()}
        best = max(sums, key=lambda word: sums[word])
        if (sums[best] - explained) / variance < least:
            break
        explained = sums[best]
        groups = 2 * groups + candidates.pop(best)
        chosen.append(best)
    return tuple(chosen)


def _recurring(replies: Sequence[str], problems: Sequence[str]) -> dict[str, Mask]:
    """Return the words that several problems have and lack, and which replies have them [n]."""
    names = np.unique(problems, return_inverse=True)[1]
    rows: dict[str, list[int]] = {}
    for i, reply in enumerate(replies):
        for word in reply.split():
            rows.setdefault(word, []).append(i)
    result: dict[str, Mask] = {}
    parts: set[bytes] = set()
    for word, at in rows.items():
        if not SHARE <= len(at) / len(replies) <= 1 - SHARE:
            continue
        has = np.zeros(len(replies), np.bool_)
        has[at] = True
        fewest = min(len(np.unique(names[has])), len(np.unique(names[~has])))
        # Of words that always or never come together, one is enough.
        if fewest >= RECURRING and not {has.tobytes(), (~has).tobytes()} & parts:
            parts.add(has.tobytes())
            result[word] = has
    return result


def _between(groups: Ints, returns: Floats) -> float:
    """Return the sum of squares between groups."""
    counts, sums = np.bincount(groups), np.bincount(groups, returns - returns.mean())
    return float((sums**2 / np.maximum(counts, 1)).sum())
