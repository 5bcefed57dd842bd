"""From an agent's output to a ballot: which answer is meant, and when two answers are equal.

Also ballots and results as the JSON that an ensemble's turn records. Normalising never drops a
short answer: "A" is an answer, not an article.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from math import fsum, isfinite
from typing import Annotated, Any, Literal

from attrs import asdict, frozen

from orchestrion import Meta, Turn, refuse_idle
from orchestrion_ensemble.interfaces import Ballot, Result

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


@frozen
class Reading:
    """How outputs become ballots.

    The data of an output may be a mapping with any of `answer`, `ranking` (best first),
    `probabilities` (by answer) and `confidence` (0 to 1); otherwise the content is the answer.
    An empty content, an `answer` of None, and the answers in `abstain` are abstentions.

    Args:
        normalise: when two answers are equal: `exact`; `text`: ignoring case, white space,
            quotes around, punctuation at the end, and brackets around a single word; `number`: as
            decimals rounded to `decimals`, the last number of a sentence; `choice`: one of
            `choices`, alone or after "answer is".
        decimals: places that numbers are rounded to.
        choices: the possible answers, for `choice`; empty means any single word or letter.
        abstain: answers that decline, e.g. "I don't know", compared as `text`.
        renormalise: whether to accept probabilities that do not sum to 1.
    """

    normalise: Normal = "text"
    decimals: Annotated[int, Meta(ge=0, le=20)] = 6
    choices: tuple[str, ...] = ()
    abstain: tuple[str, ...] = ()
    renormalise: bool = False

    def __attrs_post_init__(self) -> None:
        if self.normalise != "number":
            refuse_idle(self, ("decimals",), f"with `normalise: {self.normalise}`")
        if self.normalise != "choice":
            refuse_idle(self, ("choices",), f"with `normalise: {self.normalise}`")

    def ballot(self, voter: str, turn: Turn) -> Ballot:
        """Return a member's turn as a ballot; an unreadable output makes it `invalid`."""
        if turn.status != "completed":
            return Ballot(
                voter, "failed" if turn.status == "failed" else "cancelled", error=turn.error
            )
        try:
            return self._read(voter, turn)
        except (ValueError, TypeError, ArithmeticError) as error:
            return Ballot(voter, "invalid", text=turn.output.content, error=str(error))

    def _read(self, voter: str, turn: Turn) -> Ballot:
        content = turn.output.content
        data = turn.output.data if isinstance(turn.output.data, dict) else {}
        probabilities = self._probabilities(data.get("probabilities"))
        ranking = self._ranking(data.get("ranking"))
        raw = data.get("answer", content)
        answer = self.normal(raw)
        if "answer" not in data and not content:
            answer = _implied(ranking, probabilities)
        if raw is None:
            # `answer: null` abstains, whatever else the member gives.
            ranking, probabilities = (), None
        confidence = _confidence(data.get("confidence"))
        is_cast = answer is not None or ranking or probabilities is not None
        text = content or ("" if raw is None else _text(raw)) or answer or ""
        status: Literal["cast", "abstained"] = "cast" if is_cast else "abstained"
        return Ballot(voter, status, answer, text, ranking, probabilities, confidence)

    def normal(self, raw: Any) -> str | None:
        """Return the answer in the form in which equal answers are equal; None abstains."""
        if raw is None:
            return None
        text = _text(raw)
        if not text.strip() or _plain(text) in map(_plain, self.abstain):
            return None
        if self.normalise == "exact":
            return text
        if self.normalise == "number":
            return _number(text, self.decimals)
        if self.normalise == "choice":
            return _choice(text, self.choices)
        return _plain(text)

    def _probabilities(self, raw: Any) -> dict[str, float] | None:
        if raw is None:
            return None
        if not isinstance(raw, Mapping):
            raise ValueError(f"probabilities must be a mapping, got {type(raw).__name__}")
        by_answer: dict[str, float] = {}
        for name, value in checked_probabilities(raw, self.renormalise).items():
            answer = self.normal(name)
            if answer is None or answer in by_answer:
                raise ValueError(f"probabilities: {name!r} is not an answer, or is named twice")
            by_answer[answer] = value
        return by_answer

    def _ranking(self, raw: Any) -> tuple[str, ...]:
        if raw is None:
            return ()
        if isinstance(raw, str) or not isinstance(raw, Sequence):
            raise ValueError(f"a ranking must be a list, got {type(raw).__name__}")
        answers = [self.normal(answer) for answer in raw]
        if None in answers or len(set(answers)) < len(answers):
            raise ValueError(f"a ranking must name each answer once, got {list(raw)}")
        return tuple(answer for answer in answers if answer is not None)


def checked_probabilities(
    probabilities: Mapping[str, float], renormalise: bool = False
) -> dict[str, float]:
    """Return a distribution over answers.

    Raises:
        ValueError: a value is NaN, negative or infinite; the sum is zero; or the sum differs from
            1 by more than 1e-6 and `renormalise` is not set.
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


def _implied(ranking: tuple[str, ...], probabilities: Mapping[str, float] | None) -> str | None:
    """Return the answer that a ranking or probabilities imply; equal probabilities imply none."""
    if ranking:
        return ranking[0]
    if probabilities is None:
        return None
    top = max(probabilities.values())
    best = [answer for answer, value in probabilities.items() if value == top]
    return best[0] if len(best) == 1 else None


def _confidence(raw: Any) -> float | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not 0 <= raw <= 1:
        raise ValueError(f"a confidence must be a number from 0 to 1, got {raw!r}")
    return float(raw)


def _text(raw: Any) -> str:
    return raw if isinstance(raw, str) else json.dumps(raw, sort_keys=True, ensure_ascii=False)


def _plain(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    # A leading dot or bracket may be part of the answer: .5 is not 5, and (0, 1) is not [0, 1].
    bare = folded.lstrip(QUOTES).rstrip(ENDS)
    word = BRACKETED.fullmatch(bare)
    # An answer of punctuation only is kept as it is.
    return (word[1] or word[2] if word else bare) or folded


def _number(text: str, decimals: int) -> str | None:
    whole = text.strip().strip("$€£%*`\"'()").rstrip(".,;:!?")
    numbers = [whole] if whole and NUMBER.fullmatch(whole) else NUMBERS.findall(text)
    if not numbers:
        return None
    try:
        value = Decimal(numbers[-1].replace(",", ""))
        if value.adjusted() > DIGITS:
            return str(value.normalize(WIDE))
        # Equality within a distance is not transitive; equality of rounded values is.
        rounded = value.quantize(Decimal(1).scaleb(-decimals), context=WIDE)
    except InvalidOperation:
        return None
    return format(rounded.normalize(WIDE), "f") if rounded else "0"


def _choice(text: str, choices: Sequence[str]) -> str | None:
    choices_by_text = {_plain(choice): choice for choice in choices}

    def choice_of(words: str) -> str | None:
        plain = _plain(words)
        if choices_by_text:
            return choices_by_text.get(plain)
        return plain if plain and len(plain.split()) == 1 else None

    whole = choice_of(text)
    if whole is not None:
        return whole
    marked = {choice_of(match) for match in MARKED.findall(text)} - {None}
    # Several different answers after "answer is" count as none.
    return marked.pop() if len(marked) == 1 else None


# ------------------------------------------------------------------ records


def _as_json(record: Any, attribute: Any, value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def ballot_to(ballot: Ballot) -> dict[str, Any]:
    """Return a ballot as JSON, without empty values; `text` only if it differs from the answer."""
    data = asdict(ballot, value_serializer=_as_json)
    if ballot.text == (ballot.answer or ""):
        del data["text"]
    return {
        name: value
        for name, value in data.items()
        if name == "answer" or not (value is None or value in ("", []))
    }


def ballot_from(data: Mapping[str, Any]) -> Ballot:
    """Return the ballot that `ballot_to` wrote."""
    ranking = tuple(data.get("ranking", ()))
    return Ballot(**{"text": data["answer"] or "", **data, "ranking": ranking})


def result_to(result: Result, ballots: Sequence[Ballot]) -> dict[str, Any]:
    """Return the result with its ballots as JSON."""
    data = asdict(result, value_serializer=_as_json)
    del data["used"]  # `coverage` says it
    if result.probabilities is None:
        del data["probabilities"]
    return {**data, "ballots": [ballot_to(ballot) for ballot in ballots]}
