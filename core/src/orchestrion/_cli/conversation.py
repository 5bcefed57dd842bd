"""Show an episode: its turns, and the requests to models and tools with their answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrion._cli.display import columns, wrapped
from orchestrion._errors import UsageError
from orchestrion._records import Episode
from orchestrion._store import RunReader, StoredCall
from orchestrion._store.conversations import turns_with_names


def places_of(episode: Episode, turn: int | None = None) -> list[tuple[str, Sequence[str]]]:
    """Return where calls were made in an episode, with their names; nested teams included."""
    if turn is not None and not 1 <= turn <= len(episode.turns):
        raise UsageError(f"episode {episode.id} has no turn {turn}; it has {len(episode.turns)}")
    places: list[tuple[str, Sequence[str]]] = [
        (name, item.output.calls)
        for name, item in turns_with_names(episode.trajectory)
        if turn is None or int(name.partition(" ")[0]) == turn
    ]
    return places if turn is not None else [*places, ("judged", episode.calls)]


def episode_lines(episode: Episode) -> list[str]:
    """Return the lines that show an episode with its turns."""
    reward = "missing" if episode.reward is None else f"{episode.reward.total:.4g}"
    lines = [
        f"{episode.id}  {episode.status}  reward {reward}  {episode.error}".rstrip(),
        f"problem {episode.problem.id}",
        *_indented(episode.problem.text),
    ]
    for turn in episode.turns:
        option = f":{turn.option}" if turn.option else ""
        calls = f", {len(turn.output.calls)} calls" if turn.output.calls else ""
        lines += ["", f"{turn.index + 1} {turn.agent}{option}: {turn.status}{calls}"]
        lines += _indented(turn.error or turn.output.content)
    return wrapped(lines, columns())


def talk_lines(store: RunReader, places: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return the lines that show the calls at some places of an episode."""
    lines: list[str] = []
    for place, names in places:
        if names:
            lines += ["", f"=== {place}"]
            lines += call_lines(store.calls(names))
    return lines or ["no calls were made here"]


def call_lines(calls: Sequence[StoredCall]) -> list[str]:
    """Return the lines that show calls; messages of the call before are only counted."""
    lines: list[str] = []
    before: list[Any] = []
    for call in calls:
        cached = " (from a cache)" if call.kind == "cached" else ""
        lines += ["", f"--- {call.who}, {call.service}{cached}"]
        if call.messages is None:
            lines += _part("asked", call.asked)
        else:
            messages, others = call.messages
            same = len(before) if before and messages[: len(before)] == before else 0
            lines += [] if same else [line for k, v in others.items() for line in _part(k, v)]
            lines += [f"[{same} messages as before]"] if same else []
            lines += [line for message in messages[same:] for line in _message(message)]
            before = messages
        lines += _answer(call)
    return wrapped(lines, columns())


def _message(message: Any) -> list[str]:
    if not isinstance(message, Mapping):
        return _part("message", message)
    role = str(message.get("role") or message.get("type") or "message")
    rest = {k: v for k, v in message.items() if k not in ("role", "content")}
    lines = _part(role, message.get("content"))
    return lines + [
        line for k, v in rest.items() if k != "type" for line in _part(f"{role}.{k}", v)
    ]


def _answer(call: StoredCall) -> list[str]:
    answer = call.answer
    if call.kind == "failed":
        return _part("failed", answer)
    if call.kind not in ("answer", "cached"):
        return [f"no answer: {call.kind}"]
    if not isinstance(answer, Mapping) or "text" not in answer:
        return _part("answer", answer)
    lines = _part("answer", answer["text"])
    for name in ("tool_calls", "stop", "reason", "error"):
        if answer.get(name) and answer[name] != "end":
            lines += _part(f"answer.{name}", answer[name])
    return lines


def _part(name: str, value: Any) -> list[str]:
    """Return lines for a named value: text and blocks of text as text, others as JSON."""
    if value is None or value == "":
        return []
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return [line for item in value for line in _block(name, item)]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\n" not in text and len(text) <= 60:
        return [f"[{name}] {text}"]
    return [f"[{name}]", *_indented(text)]


def _block(name: str, block: Mapping[str, Any]) -> list[str]:
    kind, text = block.get("type"), block.get("text")
    if isinstance(text, str) and kind in ("text", "input_text", "output_text"):
        return _part(name, text)
    return _part(f"{name}.{kind}" if kind else name, json.dumps(block, ensure_ascii=False))


def _indented(text: str) -> Iterator[str]:
    for line in text.splitlines():
        # A lone surrogate cannot be encoded.
        yield f"  {line}".rstrip().encode(errors="replace").decode()
