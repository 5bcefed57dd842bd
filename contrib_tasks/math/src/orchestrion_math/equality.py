"""Compare two answers: by text, by number, by parts, and last by symbols.

As in the grading of MATH, an answer that is a number must be given as a number: "3+4" does not
answer 3+4. Brackets matter: an open interval is not a closed one. Tuples have an order; sets,
unions and lists have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

_GONE = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|big|Big|bigg|Bigg)(?![a-zA-Z])"
    r"|(?<!\\)\\[!,;:> ]|\\q?quad(?![a-zA-Z])|\\?\$|\\?%"
    r"|\^\s*\{?\s*\\(?:circ|degree)\s*\}?|\\degree|°|~"
)
_WORDS = r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|rm|operatorname)\s*\{([^{}]*)\}"
# "base four", "million" and "and a half" are part of a number, and no unit.
_NO_NUMBER = (
    r"(?!.*\b(?i:base|dozen|hundred|thousand|million|billion|trillion|half|halves"
    r"|(?:third|fourth|fifth|sixth|eighth|tenth)s?)\b)"
)
_UNIT = re.compile(rf"(?<=[\d.)}}\]]){_NO_NUMBER}\s*(?:{_WORDS}\s*)(?:\^\s*\{{?\d\}}?)?$")
_UNKNOWNS = r"(?!cc)(?:[abc]{2,3}|[pqr]{2,3}|[uvw]{2,3}|[xyz]{2,3}|mn)(?![a-zA-Z])"  # no units
_PLAIN_UNIT = re.compile(
    rf"{_NO_NUMBER}(?:(?:(?<=\d)|(?<=illion)|(?<=thousand)|(?<=hundred)|(?<=dozen))"
    rf"\s+(?!{_UNKNOWNS})[a-zA-Z]{{2,}}|(?<=\}})\s+(?:[ckm]m|ft|[a-zA-Z]{{4,}}))\.?"
    r"(?:\s+[a-zA-Z]+\.?)*$"
)
_NAMED = re.compile(r"^([a-zA-Z](?:\([a-zA-Z]\))?)\s*(?:=|\\in(?![a-zA-Z]))\s*(?![^=]*=)")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,] )\b\d{1,3}(?: \d{3})+\b(?! ?[\d/])")
_MIXED = re.compile(r"(?<=\d) (\d+)/(\d+)(?![\d/])")
_EMPTY = re.compile(r"\\emptyset(?![a-zA-Z])|∅|\\\{ ?\\\}")
_SHORT_FRAC = re.compile(r"\\frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\w))")
_SHORT_ROOT = re.compile(r"\\sqrt\s*(\w)")
_BASED = re.compile(r"\(?([-+]?[\dA-Z.]*\d[\dA-Z.]*)\)?_\{?(\d+)\}?")
_ANY_BASE = re.compile(r"\d[)}]*_")
_PLUS_MINUS = re.compile(r"\\pm(?![a-zA-Z]) ?")
# No word and no Roman number is spelt like this, nor an order of three points, such as ABC.
_PRODUCT = re.compile(
    r"[a-df-hj-np-tv-z]{2}|[b-df-hj-np-tv-xz]{3}|[abc]{3}|[xyz]{3}"
    r"|(?![CDLMVX]{2})[A-HJ-NP-TV-Z]{2}"
)
_SIGN = r"([-+]?)"
_PLAIN = re.compile(rf"{_SIGN}(\d+\.?\d*|\.\d+)")
_RATIO = re.compile(rf"{_SIGN}(?:(\d+)?\\frac\{{(-?\d+)\}}\{{(-?\d+)\}}|(\d+)/(\d+))")


def normal(text: str) -> str:
    """Return an answer without what the graders of GSM8K and MATH ignore.

    These are signs of money and percent, units, degrees, spacing, sizes of brackets, forms of
    fractions and of the empty set, a leading "x =" and separators of thousands.
    """
    return _named(text)[1]


def _named(text: str) -> tuple[str, str]:
    """Return the x of a leading "x =", "" without one, and the normal form of what it leads."""
    text = " ".join(text.split()).strip().rstrip(".").strip()
    text = text.replace("{,}", ",").replace("−", "-").replace("\\cdot", "\\times")  # noqa: RUF001
    text = text.replace("±", "\\pm ")
    text = re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", _GONE.sub("", text))
    text = _UNIT.sub("", text.strip())
    text = re.sub(_WORDS, r"\1", text).strip()
    text = _PLAIN_UNIT.sub("", text)
    named = _NAMED.match(text)
    text = _NAMED.sub("", text)
    text = _SHORT_FRAC.sub(lambda m: f"\\frac{{{m[1] or m[2]}}}{{{m[3] or m[4]}}}", text)
    text = _SHORT_ROOT.sub(r"\\sqrt{\1}", text)
    text = _EMPTY.sub(r"\\varnothing", text)
    text = _MIXED.sub(r"\\frac{\1}{\2}", text)
    text = _SPACED_THOUSANDS.sub(lambda m: m[0].replace(" ", ""), text)
    # The space between a command and letters after it has to stay, and that between two numbers.
    text = re.sub(r"(\\[a-zA-Z]+) (?=[a-zA-Z])|(?<=[\d.]) (?=\.?\d)", "\\1\0", text)
    text = text.replace(" ", "").replace("\0", " ")
    text = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
    return named[1] if named else "", text


def number(text: str) -> Fraction | None:
    """Return the value of a normal form that is a number: whole, decimal, fraction or mixed."""
    if match := _PLAIN.fullmatch(text):
        return Fraction(match[1] + match[2].rstrip("."))
    match = _RATIO.fullmatch(text)
    if match is None:
        return None
    sign, whole, over, under, a, b = match.groups()
    over, under = int(over or a), int(under or b)
    if under == 0 or (whole and (over < 0 or under < 0)):
        return None
    value = int(whole or 0) + Fraction(over, under)
    return -value if sign == "-" else value


LONGEST = 500
"""The most characters of an answer; a longer one is compared as text."""

Symbolic = Callable[[str, str], bool]

_OPEN, _CLOSED = "([{", ")]}"


def same(given: str, wanted: str, symbolic: Symbolic) -> bool:
    """Return whether the given answer is the wanted one.

    Args:
        given: the answer of an agent.
        wanted: the right answer.
        symbolic: compares two expressions if nothing simpler decides.
    """
    if len(given) > LONGEST or len(wanted) > LONGEST:
        return given.strip() == wanted.strip() != ""
    (name, value), (wanted_name, wanted_value) = _named(given), _named(wanted)
    if name and wanted_name and name != wanted_name:
        return False  # z = 2x + 1 is another line than y = 2x + 1
    return _same(value, wanted_value, symbolic)


def _same(given: str, wanted: str, symbolic: Symbolic) -> bool:
    if not given or not wanted:
        return False
    if given == wanted:
        return True
    (digits, base), (right_digits, right_base) = _in_base(given), _in_base(wanted)
    if right_base:
        # Who is asked for a number in a base often leaves the base out.
        return digits == right_digits and base in ("", right_base)
    if base == "10":
        given = digits
    right = number(wanted)
    if right is not None:
        if right.denominator == 1 and ("/" in given or "frac" in given):
            return False
        return number(given) == right
    if number(given) is not None and not _has_value(wanted):
        return False
    kind, parts = _parts(wanted)
    other, mine = _parts(given)
    if kind or other:
        return kind == other and _all_same(mine, parts, kind, symbolic)
    product = _PRODUCT.fullmatch(wanted) is not None
    if wanted.isalpha() and len(wanted) > 1 and (given.isalpha() or not product):
        reordered = product and sorted(given) == sorted(wanted)
        return reordered or given.casefold() == wanted.casefold()
    # The library reads 21_3 as 21.
    return not (_ANY_BASE.search(given) or _ANY_BASE.search(wanted)) and symbolic(given, wanted)


def _in_base(text: str) -> tuple[str, str]:
    """Return the digits and the base of a number such as 21_3; else the text, and no base."""
    match = _BASED.fullmatch(text)
    return (match[1], match[2]) if match else (text, "")


def _has_value(text: str) -> bool:
    """Return whether a text may be a number in another form, such as a root or 2^{10}."""
    return not re.search(r"(?<![\\a-zA-Z])[a-zA-Z]", text) and not _parts(text)[0]


def _all_same(given: Sequence[str], wanted: Sequence[str], kind: str, symbolic: Symbolic) -> bool:
    if len(given) != len(wanted):
        return False
    if kind in ("list", "union", "{}"):
        left = list(given)
        for part in wanted:
            equal = next((other for other in left if _same(other, part, symbolic)), None)
            if equal is None:
                return False
            left.remove(equal)
        return True
    return all(_same(other, part, symbolic) for other, part in zip(given, wanted, strict=True))


def _parts(text: str) -> tuple[str, Sequence[str]]:
    """Return the kind of a compound answer and its parts; "" for a single expression."""
    united = _split(text, "\\cup")
    if len(united) > 1:
        return "union", united
    listed = _split(text, ",")
    if len(listed) > 1:
        return "list", _both_signs(_unnamed(listed))
    braces = re.fullmatch(r"\\\{(.*)\\\}", text)
    if braces:
        return "{}", _both_signs(_split(braces[1], ","))
    both = _both_signs([text])
    if len(both) > 1:
        return "list", both
    if len(text) > 1 and text[0] in "([" and text[-1] in ")]":
        inner = _split(text[1:-1], ",")
        if len(inner) > 1:
            return text[0] + text[-1], inner
    return "", ()


def _unnamed(parts: list[str]) -> list[str]:
    """Return the parts of a list without the "x =" that all of them have."""
    names = [_NAMED.match(part) for part in parts]
    name = names[0] and names[0][0]
    if name and all(other and other[0] == name for other in names):
        return [part.removeprefix(name) for part in parts]
    return parts


def _both_signs(parts: list[str]) -> list[str]:
    """Return the parts of a list, with two instead of each that has one ±."""
    both = []
    for part in parts:
        if len(_PLUS_MINUS.findall(part)) == 1 and "\\mp" not in part:
            plus = re.sub(r"(?<![^({])\+", "", _PLUS_MINUS.sub("+", part))
            both += [plus, _PLUS_MINUS.sub("-", part)]
        else:
            both.append(part)
    return both


def _split(text: str, by: str) -> list[str]:
    """Return the parts between separators outside of brackets."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        if text[i] in _OPEN:
            depth += 1
        elif text[i] in _CLOSED:
            depth -= 1
        elif depth == 0 and text.startswith(by, i):
            parts.append(text[start:i].strip())
            start = i + len(by)
            i = start - 1
        i += 1
    return [*parts, text[start:].strip()]
