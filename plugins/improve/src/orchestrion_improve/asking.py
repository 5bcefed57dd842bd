"""Asking a model for JSON: read strictly, asked once more if it cannot be used, never guessed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from attrs import frozen

from orchestrion import JSON, CallError, Key, Model, Session

__all__ = ["Reply", "UnusableError", "ask", "fields_of", "read_object"]

T = TypeVar("T")
SHOWN = 2000
FENCE = "```"


class UnusableError(Exception):
    """An answer cannot be used; the text says why, for the model to read."""


@frozen
class Reply(Generic[T]):
    """What came of asking.

    Args:
        value: what was read; None if no answer could be used.
        unusable: how many answers could not be.
        failed: whether the call itself failed.
    """

    value: T | None
    unusable: int = 0
    failed: bool = False


async def ask(
    model: Model,
    session: Session,
    key: Key,
    messages: Sequence[Mapping[str, JSON]],
    read: Callable[[str], T],
    max_tokens: int,
) -> Reply[T]:
    """Ask, and once more if the answer cannot be used.

    Args:
        model: whom.
        session: whose calls these are.
        key: of this question.
        messages: the question.
        read: makes a value of the text; raises `UnusableError`.
        max_tokens: of an answer.

    Raises:
        CallError: the request itself is wrong, so that asking again would not help.
    """
    asked = list(messages)
    for attempt in range(2):
        name = key.child("call", attempt)
        request = {"messages": asked, "max_tokens": max_tokens}
        try:
            answer = await model.complete(request, name, session.calls(name))
        except CallError as error:
            if error.fault == "permanent":
                raise
            return Reply(None, attempt, True)
        text, stop = str(answer.data["text"]), answer.data.get("stop", "end")
        try:
            if stop != "end":
                raise UnusableError(f"the answer was {_ENDS.get(stop, stop)}")
            return Reply(read(text), attempt)
        except UnusableError as error:
            asked = [
                *messages,
                {"role": "assistant", "content": text[:SHOWN] or "(nothing)"},
                {
                    "role": "user",
                    "content": f"That cannot be used: {error}. Answer again, with the JSON object "
                    "that was asked for and nothing else.",
                },
            ]
    return Reply(None, 2)


_ENDS = {"length": "cut off: be brief", "refused": "a refusal", "tools": "a call of a tool"}


def read_object(text: str, names: Sequence[str]) -> dict[str, Any]:
    """A text that is one JSON object with just these names; one fence around it is allowed.

    Raises:
        UnusableError: it is something else.
    """
    body = text.strip()
    if body.startswith(FENCE) and body.endswith(FENCE) and "\n" in body:
        body = body[body.index("\n") : -len(FENCE)].strip()
    try:
        data = json.loads(body, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"it is not JSON ({error})") from None
    return fields_of(data, names, "the answer")


def fields_of(data: Any, names: Sequence[str], what: str) -> dict[str, Any]:
    """An object with just these names.

    Raises:
        UnusableError: it is something else.
    """
    if not isinstance(data, dict):
        raise UnusableError(f"{what} is not an object")
    if wrong := sorted(set(data) - set(names)):
        raise UnusableError(f"{what} has {wrong[0]!r}, which nobody asked for")
    if missing := [name for name in names if name not in data]:
        raise UnusableError(f"{what} lacks {missing[0]!r}")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
