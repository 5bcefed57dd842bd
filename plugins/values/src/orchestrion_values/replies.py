"""What in an agent's replies may say what to do next, such as a reviewer's verdict.

Sources: kernel ridge regression on the words of replies, its variance by the evidence (Rasmussen
and Williams 2006, 2.2 and 5.4), cross-fitted over problems; scores are parted into two groups as
in Otsu (1979).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import log
from typing import NamedTuple

import numpy as np

from orchestrion import Turn
from orchestrion.runs import as_data
from orchestrion_values.arrays import Floats, Ints, Mask

WORD = re.compile(r"[^\W_]+")
ENDS = 40
"""Of a longer reply, so many words at its beginning and at its end are read."""
LARGEST = 10
"""The largest whole number of a reply's data that is read; beyond it are counts and times."""
LONG = 40
"""The characters of a word that are read."""
FAILED = "_failed"
"""Stands for the reply of a turn that failed; no word has this form."""
RECURRING, SHARE = 3, 0.05
"""The least number of problems, and the least share of replies, with a word and without it."""
FEW, MOST = 6, 2
"""With up to so many recurring words of an agent each may be a cue; so many cues are kept."""
SURE = 6.0
"""A cue that explains so much, in variances of the outcome, is no chance."""
MARGIN = 4.0
"""A score is taken unless one word explains so much more, in variances of the outcome."""
SHOWN = 6
"""So many words of a score are shown."""
FOLDS = 8
"""The problems are parted into so many folds: a reply is scored by those of the other folds."""
VARIANCES = (0.03, 0.1, 0.3, 1.0)
"""The possible variances of a word's weight, in units of that of the outcome."""


class Cue(NamedTuple):
    """A yes-or-no question to a reply.

    Args:
        weights: of words.
        cut: a reply whose words weigh more in all has it.
    """

    weights: Mapping[str, float]
    cut: float

    @property
    def words(self) -> list[str]:
        """Return the word, or those that weigh most: each with its sign, heaviest first."""
        if len(self.weights) == 1:
            return list(self.weights)
        heaviest = sorted(self.weights.items(), key=lambda item: -abs(item[1]))[:SHOWN]
        return [f"{'+' if weight > 0 else '-'}{word}" for word, weight in heaviest]

    def fits(self, words: set[str]) -> bool:
        """Return whether a reply with these words has it."""
        return sum(weight for word, weight in self.weights.items() if word in words) > self.cut


Cues = Mapping[str, Sequence[Cue]]
"""The cues of each agent's replies."""


def words_of(turn: Turn) -> str:
    """Return the words of a reply that are read, separated by spaces.

    Each text, true, false and number of points in its `data` is one word: "verdict_pass".
    """
    if turn.status != "completed":
        return FAILED
    words = [word[:LONG] for word in WORD.findall(turn.output.content.lower())]
    if len(words) > 2 * ENDS:
        words = words[:ENDS] + words[-ENDS:]
    data = turn.output.data
    if data is not None:
        data = as_data(data)  # or a member of an enumeration would read as no stored run has it
    stated = [
        "_".join(WORD.findall(f"{key} {value}".lower()))[:LONG]
        for key, value in (data.items() if isinstance(data, Mapping) else ())
        if isinstance(value, str | bool) or (isinstance(value, int) and 0 <= value <= LARGEST)
    ]
    return " ".join(dict.fromkeys([*words, *filter(None, stated[:ENDS])]))


def signature(reply: str, cues: Sequence[Cue]) -> str:
    """Return for each cue whether the reply has it, as text of 0 and 1."""
    present = set(reply.split())
    return "".join("1" if cue.fits(present) else "0" for cue in cues)


def telling(
    replies: Sequence[str], problems: Sequence[str], outcomes: Floats
) -> tuple[list[Cue], list[str]]:
    """Return the cues of one agent's replies, and the signature of each reply.

    A cue is one word, or a score of all words if that explains the outcomes about as well. Words
    recur on several problems, so they are no answers. Of many words, and after a cue that is no
    chance, only such count that explain more than a random one of as many.

    A score takes part in the signature of a reply as the other problems give it, or the replies
    from which it was fitted would look clearer than new ones.

    Args:
        replies: n of them, by `words_of`.
        problems: their names [n].
        outcomes: of the episodes that ended right after the reply, above what was expected
            [n]; not a number for others.
    """
    n, ended = len(replies), ~np.isnan(outcomes)
    words = _recurring(replies, problems)
    y = np.where(ended, outcomes, 0.0)
    y[ended] -= y[ended].mean() if ended.any() else 0.0
    y /= float(np.sqrt(y @ y / max(1, ended.sum()))) or 1.0
    many, least = len(words) > FEW, log(max(1, len(words)))
    scored = _scored(words, y, ended, problems) if many else None
    groups, cues, explained = np.zeros(n, np.int64), list[Cue](), 0.0

    def between(has: Mask) -> float:
        parts = (2 * groups + has)[ended]
        counts, sums = np.bincount(parts), np.bincount(parts, y[ended])
        return float((sums**2 / np.maximum(counts, 1)).sum())

    while words and len(cues) < MOST:
        gains = {word: between(has) - explained for word, has in words.items()}
        best = max(gains, key=lambda word: gains[word])
        gain, cue = gains[best], Cue({best: 1.0}, 0.5)
        if scored is not None and between(scored[1]) > max(gain - MARGIN, least):
            cue, has = scored
            gain = between(has)
        else:
            has = words.pop(best)
        scored = None
        if many and gain < least:
            break
        many, explained = many or gain >= SURE, explained + gain
        groups = 2 * groups + has
        cues.append(cue)
    return cues, [f"{group:0{len(cues)}b}" if cues else "" for group in groups.tolist()]


def _scored(
    words: Mapping[str, Mask], y: Floats, ended: Mask, problems: Sequence[str]
) -> tuple[Cue, Mask] | None:
    """Return a score of all words as a cue, and which replies have it as other problems give it.

    Args:
        words: which replies have them [n].
        y: standardised outcomes, where `ended` [n].
        ended: whether the reply has an outcome [n].
        problems: of the replies [n].
    """
    has = np.stack(list(words.values()), axis=1).astype(np.float64)
    folds = np.unique(problems, return_inverse=True)[1] % FOLDS
    if len(np.unique(folds[ended])) < 2:
        return None
    x = has - has[ended].mean(axis=0)

    def solved(rows: Mask, variance: float) -> tuple[Floats, Floats]:
        covariance = variance * x[rows] @ x[rows].T + np.eye(int(rows.sum()))
        return covariance, np.linalg.solve(covariance, y[rows])

    def misfit(variance: float) -> float:
        """Return twice the negative logarithm of the likelihood, but for a constant."""
        covariance, left = solved(ended, variance)
        noise = float(y[ended] @ left) / len(left) + 1e-4
        return float(np.linalg.slogdet(covariance)[1]) + len(left) * log(noise)

    variance = min(VARIANCES, key=misfit)

    def weights_by(rows: Mask) -> Floats:
        result: Floats = variance * x[rows].T @ solved(rows, variance)[1]
        return result

    crossed = np.zeros(len(y))
    for fold in np.unique(folds):
        crossed[folds == fold] = x[folds == fold] @ weights_by(ended & (folds != fold))
    high = crossed > _cut(crossed)
    if not SHARE <= high.mean() <= 1 - SHARE:
        return None
    weights = weights_by(ended)
    return Cue(dict(zip(words, weights.tolist(), strict=True)), _cut(has @ weights)), high


def _cut(scores: Floats) -> float:
    """Return the number that parts scores into the two groups that differ most."""
    ordered = np.sort(scores)
    n, below = len(ordered), np.arange(1, len(ordered))
    sums = np.cumsum(ordered)[:-1]
    between = (sums - below * ordered.mean()) ** 2 / (below * (n - below))
    at = int(np.where(np.diff(ordered) > 1e-12, between, -1.0).argmax())
    return float(ordered[at] + ordered[at + 1]) / 2


def _recurring(replies: Sequence[str], problems: Sequence[str]) -> dict[str, Mask]:
    """Return the words that several problems have and lack, and which replies have them [n]."""
    names: Ints = np.unique(problems, return_inverse=True)[1]
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
