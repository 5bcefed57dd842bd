"""Says what kind of fault an exception of a foreign framework is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from orchestrion import CallError, Fault, Usage, hidden

_LONGEST = 1000
_NETWORK = {"APIConnectionError", "ModelConnectionError", "TransportError"}
"""Names of base classes of network errors: of the vendors' SDKs, Pydantic AI and httpx."""
_TRANSIENT = (408, 409, 425)


def failed(error: Exception, service: str, spent: Usage | None) -> CallError:
    """Return the failed call that an exception stands for.

    By the status of a model's service, if one stands behind it, or an error of the network, the run
    is tried again; any other exception is the foreign agent's own, and final.

    Args:
        error: what the framework raised.
        service: whom the call asks.
        spent: what the run took before, if anything.
    """
    fault: Fault = "permanent"
    wait: float | None = None
    for cause in _causes(error):
        status = getattr(cause, "status_code", None)
        if type(status) is int:
            fault, wait = _of_status(status, cause), _retry_after(cause)
            break
        names = {base.__name__ for base in type(cause).__mro__}
        if isinstance(cause, ConnectionError | TimeoutError) or names & _NETWORK:
            fault = "transient"
            break
    text = " ".join(hidden(_text(error)).split())[:_LONGEST]
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return CallError(f"{service}: {said}", fault, wait, spent)


def _of_status(status: int, error: BaseException) -> Fault:
    if status in (401, 402, 403) or getattr(error, "code", None) == "insufficient_quota":
        return "quota"
    if status == 429:
        return "rate_limit"
    if status in (503, 529):
        return "overload"
    return "transient" if status in _TRANSIENT or status >= 500 else "permanent"


def _retry_after(error: BaseException) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("retry-after"))
    except (TypeError, ValueError, AttributeError):
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it; of a group, the first of its errors."""
    cause: BaseException | None = error
    for _ in range(12):
        if cause is None:
            return
        yield cause
        inner = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else None
        cause = inner or cause.__cause__ or cause.__context__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the `__str__` of a foreign exception may raise itself
        return ""
