"""Checks that compare an answer with what a row expects; each returns a share from 0 to 1."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import re2

from orchestrion import RunError, UsageError, load_function, note_line

Check = Callable[[str, Any, Mapping[str, Any]], float]
"""Takes the answer, what the row expects, and the whole row."""

# Two patterns keep the time linear: the first finds candidates, the second checks them.
NUMERIC = re.compile(r"(?<![\w.])[-+]?[.0-9][.,0-9]*(?:[eE][-+]?[0-9]+)?")
NUMBER = re.compile(r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
LARGEST = Decimal("1e9999")
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces around each word: Thai, Lao, Tibetan, Burmese, Khmer,
Japanese, Chinese, Korean."""
MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
"""Other characters that people and models write for a minus."""


def compiled(pattern: str, ignore_case: bool = False) -> Any:
    """Return a pattern of RE2, which takes linear time; raise ValueError if it is invalid."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"{pattern!r:.80} is not a pattern of RE2: {reason}") from None


def plain(text: str, ignore_case: bool) -> str:
    """Return a text with single spaces, in one Unicode form, and optionally in lower case."""
    text = " ".join(unicodedata.normalize("NFC", text).split())
    return text.casefold() if ignore_case else text


def exact(answer: str, expected: Any, row: Mapping[str, Any], *, ignore_case: bool) -> float:
    """Return 1 if the answer is the expected text, or one of a list of them."""
    wanted = {plain(text, ignore_case) for text in texts(expected)}
    return float(plain(answer, ignore_case) in wanted)


def contains(answer: str, expected: Any, row: Mapping[str, Any], *, ignore_case: bool) -> float:
    """Return 1 if the answer contains the expected text, or one of a list, as whole words.

    Where words are written without spaces between them, any place in the answer counts.
    """
    given = plain(answer, ignore_case)
    return float(any(as_words(plain(text, ignore_case)).search(given) for text in texts(expected)))


def as_words(text: str) -> re.Pattern[str]:
    """Return a pattern of a text that no letters or digits of spaced scripts continue."""
    letter = rf"[^\W{UNSPACED}]"
    before = "" if re.match(f"[{UNSPACED}]", text) else f"(?<!{letter})"
    after = "" if re.match(f"[{UNSPACED}]", text[-1:]) else f"(?!{letter})"
    return re.compile(before + re.escape(text) + after)


def matches(answer: str, expected: Any, row: Mapping[str, Any], *, ignore_case: bool) -> float:
    """Return 1 if the whole answer matches the expected pattern, or one of a list of them."""
    given = answer.strip()
    patterns = (compiled(pattern, ignore_case) for pattern in texts(expected))
    return float(any(pattern.fullmatch(given) for pattern in patterns))


def number(answer: str, expected: Any, row: Mapping[str, Any], *, tolerance: float) -> float:
    """Return 1 if the last number of the answer is the expected one, or one of a list of them."""
    numerals = [text.rstrip(".,") for text in NUMERIC.findall(answer.translate(MINUS))]
    last = next((text for text in reversed(numerals) if text.strip("+-")), "")
    if not NUMBER.fullmatch(last):
        return 0.0
    try:
        given = decimal(last)
    except ValueError:  # such as an exponent beyond all bounds
        return 0.0
    return float(any(near(given, decimal(text), tolerance) for text in texts(expected)))


def fields(answer: str, expected: Any, row: Mapping[str, Any], *, tolerance: float) -> float:
    """Return the share of the expected fields that the answer's JSON object has right."""
    given, wanted = answered(answer), as_object(expected)
    right = [name in given and same(given[name], wanted[name], tolerance) for name in wanted]
    return sum(right) / len(right)


def answered(answer: str) -> Mapping[str, Any]:
    """Return the object that an answer is, or that is in its last such fenced block; else {}."""
    blocks = answer.split("```")[1::2]
    for text in (answer, *(re.sub(r"(?i)^\s*json\b", "", block) for block in reversed(blocks))):
        with suppress(ValueError, RecursionError):
            value = json.loads(text, parse_float=any_decimal)
            if isinstance(value, dict):
                return value
    return {}


def same(given: Any, wanted: Any, tolerance: float) -> bool:
    """Return whether two JSON values are equal; numbers within the tolerance."""
    if isinstance(wanted, bool) or isinstance(given, bool):
        return given is wanted
    if isinstance(wanted, int | float | Decimal):
        return isinstance(given, int | float | Decimal) and near(
            Decimal(str(given)), Decimal(str(wanted)), tolerance
        )
    if isinstance(wanted, list):
        return (
            isinstance(given, list)
            and len(given) == len(wanted)
            and all(same(g, w, tolerance) for g, w in zip(given, wanted, strict=True))
        )
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and set(given) == set(wanted)
            and all(same(given[name], wanted[name], tolerance) for name in wanted)
        )
    return bool(given == wanted)


def near(given: Decimal, wanted: Decimal, tolerance: float) -> bool:
    """Return whether two finite numbers differ by no more than the tolerance."""
    if not (given.is_finite() and wanted.is_finite()):
        return False
    try:
        return abs(given - wanted) <= Decimal(str(tolerance))
    except ArithmeticError:  # one of them is beyond all bounds
        return False


def texts(expected: Any) -> list[str]:
    """Return the accepted texts: one, or each of a list."""
    values: Sequence[Any] = expected if isinstance(expected, list) else [expected]
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def decimal(text: str) -> Decimal:
    """Return the exact value of a number; raise ValueError if the text is none."""
    try:
        value = Decimal(text.translate(MINUS).replace(",", "").strip())
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    if not value.is_finite():
        raise ValueError(f"{text!r} is not a finite number")
    return value


def any_decimal(text: str) -> Decimal:
    """Return the exact value of a number; NaN if its exponent is beyond all bounds."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def as_object(expected: Any) -> dict[str, Any]:
    """Return the fields of an expected object, also where CSV holds it as text."""
    try:
        text = isinstance(expected, str)
        value = json.loads(expected, parse_float=any_decimal) if text else expected
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if not isinstance(value, dict) or not value:
        raise ValueError("must be a JSON object with at least one field")
    return value


def own(path: str, where: str) -> Check:
    """Return the user's own check, `module:function`; `where` is the setting that names it.

    Raises:
        UsageError: it cannot be imported, or is not a plain function.
    """
    function = load_function(path, where, given=3)
    if iscoroutinefunction(function):
        raise UsageError(f"{where}: {path} must be a plain function of answer, expected and row")

    def call(answer: str, expected: Any, row: Mapping[str, Any]) -> float:
        try:
            value = function(answer, expected, row)
        except (Exception, SystemExit) as error:
            note_line(error, function)
            raise
        if isinstance(value, bool | int | float) and 0 <= value <= 1:
            return float(value)
        raise RunError(f"{where}: {path} returned {value!r}; return True, False, or 0 to 1")

    return call


NAMES: Mapping[str, Callable[..., float]] = {
    "exact": exact,
    "contains": contains,
    "regex": matches,
    "number": number,
    "json": fields,
}
WITH_TOLERANCE = ("number", "json")


def make_check(name: str, ignore_case: bool, tolerance: float, where: str) -> Check:
    """Return the check with a name, or a path `module:function`, and these settings."""
    if name not in NAMES:
        return own(name, where)
    if name in WITH_TOLERANCE:
        return partial(NAMES[name], tolerance=tolerance)
    return partial(NAMES[name], ignore_case=ignore_case)


def check_expected(name: str, expected: Any) -> None:
    """Raise ValueError if a check cannot compare with this."""
    if name == "json":
        value = as_object(expected)
        try:
            solvable = same(value, value, 0.0)
        except RecursionError:
            raise ValueError("is nested too deep") from None
        if not solvable:
            raise ValueError("has a number such as NaN or Infinity, which no answer can equal")
    elif ":" not in name:
        if isinstance(expected, list) and None in expected:
            raise ValueError(f"element {expected.index(None) + 1} of the list is null")
        accepted = texts(expected)
        if not accepted or not all(text.strip() for text in accepted):
            raise ValueError("is empty")
        for text in accepted:
            if name == "number" and decimal(text).copy_abs() > LARGEST:
                raise ValueError(f"{text!r} is beyond all numbers that can be compared")
            if name == "regex":
                compiled(text)
