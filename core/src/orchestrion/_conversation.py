"""Read a conversation as a problem and the turns that a team has taken on it.

Messages are mappings in the form of OpenAI's chat completions, or objects with the same fields,
such as those of LangChain.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orchestrion._errors import UsageError
from orchestrion._records import Output, Turn
from orchestrion._suggest import did_you_mean

_ROLES = {"human": "user", "ai": "assistant"}
_IGNORED = ("tool", "function")
_KNOWN = ("system", "developer", "user", "assistant", *_IGNORED)


def problem_and_turns(state: Any, agents: Collection[str]) -> tuple[str, list[Turn]]:
    """Return the text of the problem, and the turns that were taken on it.

    The last message of the user is the problem, after earlier messages as lines `role: text`. What
    agents said after it are turns, each with its agent's name in `name`. Messages that only call
    tools, and the tools' own, are no turns.

    Args:
        state: a text, messages, or something with `messages`: a mapping or an object.
        agents: names of the team.

    Raises:
        UsageError: there is no message of the user, one has no text or an unknown role, or a turn
            has no agent of the team.
    """
    if isinstance(state, str):
        return state, []
    messages = state if isinstance(state, Sequence) else _get(state, "messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        kind = type(state).__name__
        raise UsageError(f"a {kind} has no list `messages`; give a text, or messages")
    places = reversed(range(len(messages)))
    last = next((place for place in places if _role(messages[place], place) == "user"), None)
    if last is None:
        raise UsageError("no message is the user's, so there is no problem")
    turns: list[Turn] = []
    for place in range(last + 1, len(messages)):
        message = messages[place]
        if _role(message, place) == "assistant" and not _get(message, "tool_calls"):
            agent = _agent(message, place, agents)
            content = Output(_text(message, place))
            turns.append(Turn(len(turns), agent, output=content, decision=len(turns)))
    return _problem(messages[: last + 1]), turns


def _problem(messages: Sequence[Any]) -> str:
    """Return the last message, after those before it as labelled lines, as `serve` does."""
    *earlier, last = [_text(message, place) for place, message in enumerate(messages)]
    labelled = [
        f"{_role(messages[place], place)}: " + "\n  ".join(text.splitlines())
        for place, text in enumerate(earlier)
    ]
    return "\n".join([*labelled, "", last]) if labelled else last


def _get(message: Any, name: str) -> Any:
    if isinstance(message, Mapping):
        return message.get(name)
    return getattr(message, name, None)


def _role(message: Any, place: int) -> str:
    role = _get(message, "role") or _get(message, "type")
    role = _ROLES.get(role, role)
    if role not in _KNOWN:
        raise UsageError(f"messages[{place}]: {role!r:.80} is no role of a message")
    return str(role)


def _agent(message: Any, place: int, agents: Collection[str]) -> str:
    name = _get(message, "name")
    if not name:
        raise UsageError(f"messages[{place}] has no name; set it to the agent that wrote it")
    if name not in agents:
        close = did_you_mean(name, agents)
        raise UsageError(
            f"messages[{place}] is by {name!r:.80}, which is not in the team{close}; "
            f"its agents: {', '.join(agents)}"
        )
    return str(name)


def _text(message: Any, place: int) -> str:
    content = _get(message, "content")
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, Sequence) else [content]:
        text = part if isinstance(part, str) else _get(part, "text")
        if not isinstance(text, str):
            raise UsageError(f"messages[{place}]: a part of its content is no text")
        texts.append(text)
    return "\n".join(texts)
