"""Read answers, and compare them as SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250) does."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from orchestrion import Turn

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """Return a text in lower case, without punctuation, English articles and extra spaces.

    A text that consists of articles is not changed: the letter "A" is an answer.
    """
    bare = text.lower().translate(_MARKS)
    return " ".join(_ARTICLES.sub(" ", bare).split()) or " ".join(bare.split())


def exact(given: str, wanted: Sequence[str]) -> bool:
    """Return whether the answer is one of the wanted ones, and not empty."""
    answer = normal(given)
    return bool(answer) and any(answer == normal(right) for right in wanted)


def f1(given: str, wanted: Sequence[str]) -> float:
    """Return the best overlap of words with a wanted answer; "yes" and "no" overlap with none."""
    return max((_f1(normal(given), normal(right)) for right in wanted), default=0.0)


def _f1(answer: str, right: str) -> float:
    whole = {"yes", "no", "noanswer"}
    if answer != right and (answer in whole or right in whole):
        return 0.0
    left, other = answer.split(), right.split()
    common = sum((Counter(left) & Counter(other)).values())
    return 2 * common / (len(left) + len(other)) if common else 0.0


def value_of(turn: Turn) -> str:
    """Return the `value` in the data of a turn, or else its text; "" for a turn that failed."""
    data = turn.output.data
    value = data.get("value") if isinstance(data, dict) else turn.output.content
    return value.strip() if isinstance(value, str) and turn.status == "completed" else ""
