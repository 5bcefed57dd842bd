"""Show a model episodes, ask it for JSON, and read its answer strictly.

An answer that cannot be used is asked for once more, with the reason; it is never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, TypeVar

from attrs import frozen
from orchestrion_beam.interfaces import Group, make_group

from orchestrion import (
    JSON,
    CallError,
    Episode,
    Key,
    Model,
    Session,
    Trajectory,
    Turn,
    Usage,
    ceiling_of,
    json_object,
    times,
)

T = TypeVar("T")
SHOWN_CHARACTERS = 2000
"""Of an unusable answer, when the model is asked again."""
BYTES_OF_CHARACTER = 4
FRAME_CHARACTERS = 20_000
"""Most characters of a question beside its episodes, and of an answer that is shown again."""
PROBLEM_CHARACTERS, TURN_CHARACTERS, MOST_TURNS = 1200, 700, 16
ENDS = {"length": "cut off: be brief", "refused": "a refusal", "tools": "a call of a tool"}


# ---------------------------------------------------------------------------------- the asking


class UnusableError(Exception):
    """An answer cannot be used; the text gives the reason, for the model to read."""


async def ask(
    model: Model,
    session: Session,
    key: Key,
    system: str,
    question: str,
    read: Callable[[str], T],
    max_tokens: int,
    counts: Counter[str],
) -> T | None:
    """Ask a model, and once more if the answer cannot be used; return None if that fails too.

    Args:
        model: the model to ask.
        session: makes the calls.
        key: the key of this question.
        system: the system message.
        question: the user message.
        read: makes a value of the answer's text; raises `UnusableError`.
        max_tokens: most tokens of an answer.
        counts: counts answers that are `unusable`, and questions whose call `failed`.

    Raises:
        CallError: the request itself is wrong, so that asking again would not help.
    """
    first: list[JSON] = [
        {"role": "system", "content": system},
        {"role": "user", "content": question},
    ]
    messages = first
    for attempt in range(2):
        name = key.child("call", attempt)
        request = {"messages": messages, "max_tokens": max_tokens}
        try:
            answer = await model.complete(request, name, session.calls(name))
        except CallError as error:
            if error.fault == "permanent":
                raise
            counts["failed"] += 1
            return None
        text, stop = str(answer.data["text"]), answer.data.get("stop", "end")
        try:
            if stop != "end":
                raise UnusableError(f"the answer was {ENDS.get(stop, stop)}")
            return read(text)
        except UnusableError as error:
            counts["unusable"] += 1
            messages = [
                *first,
                {"role": "assistant", "content": text[:SHOWN_CHARACTERS] or "(nothing)"},
                {
                    "role": "user",
                    "content": f"That cannot be used: {error}. Answer again, with the JSON object "
                    "that was asked for and nothing else.",
                },
            ]
    return None


def most_asked(model: Model, characters: int, questions: int) -> Usage | None:
    """Return the most that questions use; None if the model gives no bound.

    Args:
        model: the model to ask.
        characters: most characters of episodes and texts in a question.
        questions: number of questions, repeated ones included.
    """
    usage = ceiling_of(model, BYTES_OF_CHARACTER * (characters + FRAME_CHARACTERS))
    return None if usage is None else times(usage, questions)


def read_object(text: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object in a text.

    Raises:
        UnusableError: the text has no JSON object with exactly these names.
    """
    try:
        data = json_object(text)
    except ValueError as error:
        raise UnusableError(str(error)) from None
    return fields_of(data, names, "the answer")


def fields_of(data: Any, names: Sequence[str], what: str) -> dict[str, Any]:
    """Return an object that has exactly these names.

    Raises:
        UnusableError: it is no object, or has other names.
    """
    if not isinstance(data, dict):
        raise UnusableError(f"{what} is not an object")
    if unknown := sorted(set(data) - set(names)):
        raise UnusableError(f"{what} has the unknown name {unknown[0]!r}")
    if missing := [name for name in names if name not in data]:
        raise UnusableError(f"{what} lacks {missing[0]!r}")
    return data


# -------------------------------------------------------------------------------- the episodes


@frozen
class Example:
    """Hold an episode, and how much better than its group an agent did in it."""

    episode: Episode
    credit: float

    @property
    def category(self) -> str:
        """Return the category of its problem."""
        return self.episode.problem.category


def group_of(episodes: Sequence[Episode]) -> Group:
    """Return plain episodes on one problem as a group; turns share the advantage equally."""
    calls = sum(max(1, turn.usage.calls) for e in episodes for turn in e.turns)
    ranked = sorted(episodes, key=lambda e: inf if e.reward is None else -e.reward.total)
    return make_group(ranked, episodes[0].problem, calls)


def examples(groups: Sequence[Group], role: str, count: int) -> tuple[list[Example], list[Example]]:
    """Return the best and the worst episodes in which an agent acted, `count` of each category.

    Episodes with exactly the mean of their group are in neither list.
    """
    all_examples = [
        Example(episode, credits.get(role, advantage))
        for group in groups
        for episode, credits, advantage in zip(
            group.episodes, group.agents, group.advantages, strict=True
        )
        if advantage is not None and role in _roles_in(episode.trajectory)
    ]
    best = sorted((e for e in all_examples if e.credit > 0), key=lambda e: -e.credit)
    worst = sorted((e for e in all_examples if e.credit < 0), key=lambda e: e.credit)
    return _of_each_category(best, count), _of_each_category(worst, count)


def _of_each_category(ranked: Sequence[Example], count: int) -> list[Example]:
    """Return the first of each category; two of one problem only if there are no others."""
    kept: list[Example] = []
    for category in sorted({example.category for example in ranked}):
        seen: set[str] = set()
        first: list[Example] = []
        repeated: list[Example] = []
        for example in ranked:
            if example.category == category:
                problem = example.episode.problem.id
                (repeated if problem in seen else first).append(example)
                seen.add(problem)
        kept += [*first, *repeated][:count]
    return kept


def _roles_in(trajectory: Trajectory) -> set[str]:
    """Return the agents that acted, in nested teams too."""
    roles = set()
    for turn in trajectory.turns:
        roles.add(turn.agent)
        if turn.output.inner is not None:
            roles |= _roles_in(turn.output.inner)
    return roles


def team_of(session: Session) -> str:
    """Return the team as a model reads it."""
    names = [f"{m.name} ({m.role})" if m.role else m.name for m in session.roster]
    return f"Team: {', '.join(names)}"


def as_text(episode: Episode) -> str:
    """Return an episode as a model reads it: problem, turns, verdict."""
    turns = list(_turn_lines(episode.trajectory, ""))
    if len(turns) > MOST_TURNS:
        half = MOST_TURNS // 2
        left_out = f"({len(turns) - MOST_TURNS} turns left out)"
        turns = [*turns[:half], left_out, *turns[-half:]]
    return "\n".join(
        [
            f"Problem: {shortened(episode.problem.text, PROBLEM_CHARACTERS)}",
            *(turns or ["Nobody acted."]),
            f"Verifier: {_verdict(episode)}",
        ]
    )


def _turn_lines(trajectory: Trajectory, indent: str) -> Iterator[str]:
    for turn in trajectory.turns:
        yield f"{indent}{turn.agent}: {_output(turn)}"
        if turn.output.inner is not None:
            yield from _turn_lines(turn.output.inner, f"{indent}  ")


def _output(turn: Turn) -> str:
    if turn.status != "completed":
        return f"({turn.status})"
    return shortened(turn.output.content, TURN_CHARACTERS) or "(nothing)"


def _verdict(episode: Episode) -> str:
    scores = episode.scores
    if scores is None:
        return "no verdict"
    verdict = "solved" if episode.success else f"not solved ({episode.status.value})"
    parts = "".join(f", {name} {value:.3g}" for name, value in sorted(scores.parts.items()))
    text = f"{verdict}, score {scores.value:.3g}{parts}"
    if episode.observation is not None and episode.observation.text:
        text += f". Environment: {shortened(episode.observation.text, TURN_CHARACTERS)}"
    return text


def shortened(text: str, characters: int) -> str:
    """Return a text without its middle if it is longer than `characters`."""
    text = text.strip()
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"
