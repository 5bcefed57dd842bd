"""From an agent's output to a ballot: which answer is meant, and whether two are the same.

Normalising never drops a short answer: "A" is an answer, not an article.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from math import fsum, isfinite
from typing import Any, Literal

from attrs import frozen

from orchestrion import Turn
from orchestrion_ensemble.interfaces import Ballot

__all__ = ["Normal", "Reading", "checked_probabilities"]

Normal = Literal["exact", "text", "number", "choice"]

NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
)
MARKED = re.compile(
    r"\banswer(?:\s+is|\s*:|\s*=)+\s*\**\(?([^\s().,;:*]+)\)?\**(?=\s*(?:$|[.,;:\n]))", re.I
)
DIGITS = 60
WIDE = Context(prec=2 * DIGITS)
QUOTES = " \t\n\"'`*"
ENDS = QUOTES + ".,;:!?"
BRACKETED = re.compile(r"[(\[]?(\w+)[)\]]|[(\[](\w+)")


def checked_probabilities(
    probabilities: Mapping[str, float], renormalise: bool = False
) -> dict[str, float]:
    """A distribution over answers.

    Raises:
        ValueError: one is NaN, negative or infinite, or the sum is off by more than 1e-6 and
            `renormalise` is not set, or it is zero.
    """
    values = {str(name): float(value) for name, value in probabilities.items()}
    if not values or not all(isfinite(value) and value >= 0 for value in values.values()):
        raise ValueError(f"probabilities must be finite and not negative, got {values}")
    total = fsum(values.values())
    if total == 0 or not isfinite(total):
        raise ValueError(f"probabilities sum to {total}")
    if abs(total - 1) > 1e-6:
        if not renormalise:
            raise ValueError(f"probabilities sum to {total:.9g}, not to 1")
        values = {name: value / total for name, value in values.items()}
    return values


@frozen
class Reading:
    """How outputs are read.

    The data of an output may be a mapping with any of `answer`, `ranking` (best first),
    `probabilities` (by answer) and `confidence` (0 to 1); otherwise the content is the answer.
    An empty content, an `answer` of None, and the answers in `abstain` are abstentions.

    Args:
        normalise: when two answers are the same: `exact`; `text`: but for case, white space,
            quotes around, punctuation at the end, and brackets around a single word; `number`: as
            decimals rounded to `decimals`, the last number of a sentence; `choice`: one of
            `choices`, alone or after "answer is".
        decimals: for `number`.
        choices: for `choice`; empty means any single word or letter.
        abstain: answers that decline, as they read when normalised as text.
        renormalise: whether probabilities may sum to something else than 1.
    """

    normalise: Normal = "text"
    decimals: int = 6
    choices: tuple[str, ...] = ()
    abstain: tuple[str, ...] = ()
    renormalise: bool = False

    def ballot(self, voter: str, turn: Turn) -> Ballot:
        """A member's turn as a ballot; what cannot be read makes it `invalid`, never an error."""
        if turn.status != "completed":
            status: Any = "failed" if turn.status == "failed" else "cancelled"
            return Ballot(voter, status, error=turn.error)
        try:
            return self._read(voter, turn)
        except (ValueError, TypeError, ArithmeticError) as error:
            return Ballot(voter, "invalid", text=turn.output.content, error=str(error))

    def _read(self, voter: str, turn: Turn) -> Ballot:
        data = turn.output.data if isinstance(turn.output.data, dict) else {}
        probabilities = self._probabilities(data.get("probabilities"))
        ranking = self._ranking(data.get("ranking"))
        said = data.get("answer", turn.output.content)
        answer = self.normal(said)
        if "answer" not in data and not turn.output.content:
            answer = _implied(ranking, probabilities)
        if answer is None and "answer" in data and said is None:
            ranking, probabilities = (), None
        confidence = _confidence(data.get("confidence"))
        speaks = answer is not None or ranking or probabilities is not None
        text = turn.output.content or ("" if said is None else _text(said)) or answer or ""
        return Ballot(
            voter,
            "cast" if speaks else "abstained",
            answer,
            text,
            ranking,
            probabilities,
            confidence,
        )

    def normal(self, said: Any) -> str | None:
        """The answer in the form in which equal answers are equal; None abstains."""
        if said is None:
            return None
        text = _text(said)
        if not text.strip() or self._declines(text):
            return None
        if self.normalise == "exact":
            return text
        if self.normalise == "number":
            return _number(text, self.decimals)
        if self.normalise == "choice":
            return _choice(text, self.choices)
        return _plain(text)

    def _declines(self, text: str) -> bool:
        return bool(self.abstain) and _plain(text) in {_plain(one) for one in self.abstain}

    def _probabilities(self, given: Any) -> dict[str, float] | None:
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise ValueError(f"probabilities must be a mapping, got {type(given).__name__}")
        named: dict[str, float] = {}
        for name, value in checked_probabilities(given, self.renormalise).items():
            answer = self.normal(name)
            if answer is None or answer in named:
                raise ValueError(f"probabilities: {name!r} is no answer, or named twice")
            named[answer] = value
        return named

    def _ranking(self, given: Any) -> tuple[str, ...]:
        if given is None:
            return ()
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ValueError(f"a ranking must be a list, got {type(given).__name__}")
        ranked = [self.normal(one) for one in given]
        if None in ranked or len(set(ranked)) < len(ranked):
            raise ValueError(f"a ranking names each answer once, got {list(given)}")
        return tuple(one for one in ranked if one is not None)


def _implied(ranking: tuple[str, ...], probabilities: Mapping[str, float] | None) -> str | None:
    """The answer of a member that only ranks or only gives probabilities; equal ones imply none."""
    if ranking:
        return ranking[0]
    if probabilities is None:
        return None
    top = max(probabilities.values())
    best = [answer for answer, value in probabilities.items() if value == top]
    return best[0] if len(best) == 1 else None


def _confidence(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= 1:
        raise ValueError(f"a confidence is a number from 0 to 1, got {given!r}")
    return float(given)


def _text(said: Any) -> str:
    return said if isinstance(said, str) else json.dumps(said, sort_keys=True, ensure_ascii=False)


def _plain(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    # A leading dot or bracket may be part of the answer: .5 is not 5, and (0, 1) is not [0, 1].
    bare = folded.lstrip(QUOTES).rstrip(ENDS)
    word = BRACKETED.fullmatch(bare)
    # Where only punctuation was said, it is the answer.
    return (word[1] or word[2] if word else bare) or folded


def _number(text: str, decimals: int) -> str | None:
    whole = text.strip().strip("$€£%*`\"'()").rstrip(".,;:!?")
    found = [whole] if whole and NUMBER.fullmatch(whole) else NUMBERS.findall(text)
    if not found:
        return None
    try:
        value = Decimal(found[-1].replace(",", ""))
        if value.adjusted() > DIGITS:
            return str(value.normalize(WIDE))
        # Grouping by distance is not transitive; by a rounded value it is.
        rounded = value.quantize(Decimal(1).scaleb(-decimals), context=WIDE)
    except InvalidOperation:
        return None
    return format(rounded.normalize(WIDE), "f") if rounded else "0"


def _choice(text: str, choices: Sequence[str]) -> str | None:
    known = {_plain(choice): choice for choice in choices}

    def one(said: str) -> str | None:
        plain = _plain(said)
        if known:
            return known.get(plain)
        return plain if plain and len(plain.split()) == 1 else None

    alone = one(text)
    if alone is not None:
        return alone
    marked = {one(match) for match in MARKED.findall(text)} - {None}
    # Several different answers marked as the answer are none.
    return marked.pop() if len(marked) == 1 else None
