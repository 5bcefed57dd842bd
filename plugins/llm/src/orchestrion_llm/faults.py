"""Classify faults by status, headers and body, or by the name of an error.

    | response | fault |
    | --- | --- |
    | 429 | rate_limit, with the hint of the service |
    | quota or billing, in whatever status it comes; 402; 401 and 403 | quota: the run pauses |
    | 503, 529, "overloaded" | overload |
    | 408, 409, 425, other 5xx, connection, DNS, a broken connection | transient |
    | an answer that cannot be used | malformed |
    | 3xx, other 4xx, a certificate that does not verify | permanent |

A refusal is not a fault: see `DeclinedError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import msgspec
from attrs import frozen

from orchestrion import CallError, hidden, hidden_bytes
from orchestrion_llm.wire import ErrorBody, ServiceError

_LONGEST = 300
_QUOTA_CODES = re.compile(
    r"insufficient_quota|billing|credit_balance|spend_limit|usage_limit|quota_exceeded|payment"
)
_QUOTA_WORDS = re.compile(
    r"usage limits?\b|credit balance|exceeded your current quota|insufficient (quota|funds|credit)"
    r"|billing (hard )?limit|spend(ing)? limit|payment required",
    re.I,
)
_OVERFLOW_CODES = re.compile(r"context_length_exceeded|context_window_exceeded|request_too_large")
_OVERFLOW_WORDS = re.compile(
    r"prompt is too long|maximum context length|context (window|length|size)"
    r"|too many (input )?tokens|input (is too long|length)",
    re.I,
)
_REFUSAL_CODES = re.compile(r"content_filter|content_policy|moderation_blocked")
_NUMBER = re.compile(r"\d*\.?\d+|\d+\.", re.ASCII)
_STATUS_OF = {
    # names of errors inside an answer or a stream, with the status they correspond to
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "billing_error": 402,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "overloaded_error": 529,
    "overloaded": 529,
    "server_overloaded": 503,
    "timeout_error": 504,
}


class DeclinedError(CallError):
    """Raised if a content filter before the model declined the request."""


class ContextOverflowError(CallError):
    """Raised if the prompt does not fit into the model's context; nothing was cut."""


@frozen
class Place:
    """What error messages name.

    Args:
        path: of the model in the config.
        service: its name in limits and journal.
        model: its name at the service.
        key_env: the environment variable of the key, or "".
    """

    path: str
    service: str
    model: str
    key_env: str


class _Body(msgspec.Struct):
    error: ErrorBody | str | None = None
    message: str | None = None
    detail: str | None = None


def of_answer(place: Place, status: int, headers: Mapping[str, str], body: bytes) -> CallError:
    """Return the fault of an answer whose status is an error."""
    codes, text = _read(body)
    return _classified(place, status, codes, text, headers)


def of_error(place: Place, error: ServiceError) -> CallError:
    """Return the fault of an error inside an answer, by the corresponding status."""
    kind = error.kind.lower()
    known = int(kind) if re.fullmatch(r"[45]\d\d", kind) else 500
    status = _STATUS_OF.get(kind, known)
    return _classified(place, status, kind, _clean(str(error)), {})


def _classified(
    place: Place, status: int, codes: str, text: str, headers: Mapping[str, str]
) -> CallError:
    description = f"{place.service}: {status} {text}".rstrip()
    used_up = _QUOTA_CODES.search(codes) or _QUOTA_WORDS.search(text)
    if status == 402 or (status in (400, 403, 429) and used_up):
        return CallError(f"{description}; the account is used up", "quota")
    if status == 429:
        return CallError(description, "rate_limit", hint(headers))
    if status in (401, 403):
        where = f"the key in {place.key_env}" if place.key_env else "requests without a key"
        return CallError(f"{description}; the service does not accept {where}", "quota")
    if status in (503, 529) or "overloaded" in codes:
        return CallError(description, "overload", hint(headers))
    if status in (408, 409, 425) or status >= 500:
        return CallError(description, "transient", hint(headers))
    return _permanent(place, status, codes, text, description, headers)


def _permanent(
    place: Place, status: int, codes: str, text: str, description: str, headers: Mapping[str, str]
) -> CallError:
    if 300 <= status < 400:
        return CallError(
            f"{description}; redirects are not followed (to {_host(headers.get('location', ''))}): "
            f"correct {place.path}.base_url",
            "permanent",
        )
    if _REFUSAL_CODES.search(codes):
        return DeclinedError(description, "permanent")
    if status == 413 or _OVERFLOW_CODES.search(codes) or _OVERFLOW_WORDS.search(text):
        return ContextOverflowError(
            f"{description}; the prompt does not fit into the context of {place.model} "
            f"({place.path}.model)",
            "permanent",
        )
    if status == 404:
        return CallError(
            f"{description}; is {place.model} ({place.path}.model) the name of a model there, and "
            f"{place.path}.base_url the address of its API?",
            "permanent",
        )
    return CallError(
        f"{description}; asked of {place.model}: see the settings of {place.path}", "permanent"
    )


def _host(location: str) -> str:
    """Return the host of a redirect, if it can be read."""
    try:
        host = urlsplit(location).hostname
    except ValueError:
        host = None
    return _clean(host or "another address")


def _read(body: bytes) -> tuple[str, str]:
    """Return the names of an error, and its message; from any body, including HTML."""
    try:
        read = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", _clean(hidden_bytes(body)[:4000].decode("utf-8", "replace"))
    inner = read.error if isinstance(read.error, ErrorBody) else ErrorBody(message=read.error)
    codes = f"{inner.type or ''} {inner.code or ''}".lower()
    return codes, _clean(inner.message or read.message or read.detail or "")


def _clean(text: str) -> str:
    """Return a short line without markup, control characters and secrets."""
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>|<[^>]*>", " ", hidden(text))
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def hint(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait by the headers: in milliseconds, in seconds, or as a date."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    until = _date(text)
    if until is None:
        return None
    # By the clock of the service.
    now = _date(headers.get("date", "")) or datetime.now(UTC)
    left = (until - now).total_seconds()
    return left if left > 0 else None


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) and number > 0 else None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def described(error: BaseException) -> str:
    """Return a short description of a connection's error, by its innermost cause."""
    causes = list(_causes(error))
    text = next((str(cause) for cause in reversed(causes) if str(cause)), "")
    return _clean(f"{type(causes[-1]).__name__}: {text}" if text else type(causes[-1]).__name__)


def caused_by(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Return whether an error is of one of these kinds, or was caused by such a one."""
    return any(isinstance(cause, kinds) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(12):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__
