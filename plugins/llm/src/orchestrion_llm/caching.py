"""Prompt caching in the Messages API: the prefixes of requests that the service is asked to keep.

Writing a prefix costs more than sending it, reading it much less. So a prefix is marked from its
second request on, and only by one request at a time until the service keeps it; the others would
all pay for writing. Marks are no part of a call's record: its answer is the same without them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from attrs import define

from orchestrion import JSON

_SHORTEST = 4096
"""Bytes of the shortest prefix that is marked; no model keeps less than 1,024 tokens."""
_KEPT = 290.0
"""Seconds since its last use that a prefix is taken to be kept; a little less than the vendor's."""
_MOST = 20_000
"""Prefixes that are remembered."""
_MARK: JSON = {"type": "ephemeral"}
_MARKED = ("text", "image", "document", "tool_use", "tool_result")
"""The blocks that can have a mark."""


@define
class _Prefix:
    kept_until: float = 0.0
    writing: bool = False


class PromptCache:
    """Marks prefixes that requests have in common: tools and system text, and conversations."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, _Prefix] = OrderedDict()

    def marked(self, body: Mapping[str, JSON]) -> tuple[Mapping[str, JSON], list[_Prefix]]:
        """Return a request with marks, and what `ended` needs to know after it."""
        prefixes = _prefixes(body)
        repeated = [
            place
            for place, (name, size) in prefixes.items()
            if name in self._known and size >= _SHORTEST
        ]
        marks: list[_Prefix] = []
        # Tools and system text are read even where the rest is new.
        for place in sorted({repeated[0], repeated[-1]} if repeated else ()):
            prefix = self._known[prefixes[place][0]]
            if not prefix.writing:
                prefix.writing = self._clock() >= prefix.kept_until
                body = _with_mark(body, place)
                marks.append(prefix)
        for name, _ in prefixes.values():
            self._known.setdefault(name, _Prefix())
            self._known.move_to_end(name)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return body, marks

    def ended(self, marks: Sequence[_Prefix], kept: bool) -> None:
        """Note the end of a marked request: `kept` if the service read or wrote its cache."""
        for prefix in marks:
            prefix.writing = False
            if kept:
                prefix.kept_until = self._clock() + _KEPT


def _prefixes(body: Mapping[str, JSON]) -> dict[int, tuple[bytes, int]]:
    """Return the digest and the bytes of each prefix by its place: -1 for tools and system text."""
    head = msgspec.json.encode([body["model"], body.get("tools"), body.get("system")])
    name, size = blake2b(head, digest_size=16).digest(), len(head)
    prefixes = {-1: (name, size)}
    for i, message in enumerate(body["messages"]):
        data = msgspec.json.encode(message)
        name, size = blake2b(name + data, digest_size=16).digest(), size + len(data)
        prefixes[i] = (name, size)
    return prefixes


def _with_mark(body: Mapping[str, JSON], place: int) -> Mapping[str, JSON]:
    """Return the request with a mark at the end of a prefix, if there can be one."""
    if place >= 0:
        messages: list[Any] = list(body["messages"])
        messages[place] = {**messages[place], "content": _marked(messages[place]["content"])}
        return {**body, "messages": messages}
    if body.get("system"):
        return {**body, "system": _marked(body["system"])}
    if body.get("tools"):
        return {
            **body,
            "tools": [*body["tools"][:-1], {**body["tools"][-1], "cache_control": _MARK}],
        }
    return body


def _marked(content: JSON) -> JSON:
    blocks: list[Any] = content
    if isinstance(content, str):
        blocks = [{"type": "text", "text": content}]
    if not blocks or blocks[-1]["type"] not in _MARKED or blocks[-1].get("text") == "":
        return content
    return [*blocks[:-1], {**blocks[-1], "cache_control": _MARK}]
