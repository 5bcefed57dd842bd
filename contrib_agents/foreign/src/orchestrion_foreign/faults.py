"""Says what kind of fault an exception of a foreign framework is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from orchestrion_llm import Place, of_answer

from orchestrion import CallError, Fault, Usage, hidden

_LONGEST = 1000
_NETWORK = {"APIConnectionError", "ModelConnectionError", "TransportError"}
"""Names of base classes of network errors: of the vendors' SDKs, Pydantic AI and httpx."""


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
            known = _of_service(status, cause, service)
            fault, wait = known.fault, known.retry_after
            break
        names = {base.__name__ for base in type(cause).__mro__}
        if isinstance(cause, ConnectionError | TimeoutError) or names & _NETWORK:
            fault = "transient"
            break
    text = " ".join(hidden(_text(error)).split())[:_LONGEST]
    description = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return CallError(f"{service}: {description}", fault, wait, spent)


def _of_service(status: int, cause: BaseException, service: str) -> CallError:
    """Return what the answer of a model's service stands for, as the SDK's error has it."""
    code = getattr(cause, "code", None)
    message = _text(cause).encode(errors="replace").decode()  # half of a surrogate pair
    body = {"error": {"code": code if isinstance(code, str) else None, "message": message}}
    headers: Any = getattr(getattr(cause, "response", None), "headers", None)
    known = headers if isinstance(headers, Mapping) else {}
    return of_answer(Place("", service, "", ""), status, known, msgspec.json.encode(body))


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
