"""What a model gets to read of episodes: the best and the worst of a role, problem by problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen
from orchestrion_beam.interfaces import Group, make_group

from orchestrion import Episode, Trajectory, Turn

__all__ = ["Example", "as_text", "examples", "group_of", "roles_in", "shortened"]

LONGEST_PROBLEM, LONGEST_TURN, MOST_TURNS = 1200, 700, 16


@frozen
class Example:
    """An episode, and how much better than its group a role did in it."""

    episode: Episode
    credit: float

    @property
    def category(self) -> str:
        """Of its problem."""
        return self.episode.problem.category


def group_of(episodes: Sequence[Episode]) -> Group:
    """Plain episodes on one problem as a group; credit is shared equally among turns."""
    rewards = [None if one.reward is None else one.reward.total for one in episodes]
    order = sorted(range(len(episodes)), key=lambda n: (rewards[n] is None, -(rewards[n] or 0.0)))
    ranked = [episodes[n] for n in order]
    calls = sum(max(1, turn.usage.calls) for one in ranked for turn in one.turns)
    return make_group(ranked, ranked[0].problem, calls)


def examples(groups: Sequence[Group], role: str, count: int) -> tuple[list[Example], list[Example]]:
    """The best and the worst episodes in which a role acted; at most `count` of each category.

    Episodes as good as their group's mean say nothing, so they are in neither list.
    """
    found = [
        Example(episode, group.agents[n].get(role, advantage))
        for group in groups
        for n, (episode, advantage) in enumerate(zip(group.episodes, group.advantages, strict=True))
        if advantage is not None and role in roles_in(episode.trajectory)
    ]
    best = sorted((one for one in found if one.credit > 0), key=lambda one: -one.credit)
    worst = sorted((one for one in found if one.credit < 0), key=lambda one: one.credit)
    return _of_each(best, count), _of_each(worst, count)


def _of_each(ranked: Sequence[Example], count: int) -> list[Example]:
    """The first of each category; two of one problem only if there are no others."""
    kept: list[Example] = []
    for category in sorted({one.category for one in ranked}):
        own = [one for one in ranked if one.category == category]
        seen: set[str] = set()
        first: list[Example] = []
        again: list[Example] = []
        for one in own:
            (again if one.episode.problem.id in seen else first).append(one)
            seen.add(one.episode.problem.id)
        kept += [*first, *again][:count]
    return kept


def roles_in(trajectory: Trajectory) -> set[str]:
    """Who acted, in nested teams too."""
    found = set()
    for turn in trajectory.turns:
        found.add(turn.agent)
        if turn.output.inner is not None:
            found |= roles_in(turn.output.inner)
    return found


def as_text(episode: Episode) -> str:
    """An episode as a model reads it: the problem, who said what, what the verifier found."""
    lines = [f"Problem: {shortened(episode.problem.text, LONGEST_PROBLEM)}"]
    turns = list(_turns(episode.trajectory, ""))
    if len(turns) > MOST_TURNS:
        left_out = len(turns) - MOST_TURNS
        turns = [
            *turns[: MOST_TURNS // 2],
            f"({left_out} turns left out)",
            *turns[-MOST_TURNS // 2 :],
        ]
    lines += turns or ["Nobody acted."]
    lines.append(f"Verifier: {_verdict(episode)}")
    return "\n".join(lines)


def _turns(trajectory: Trajectory, indent: str) -> Iterator[str]:
    for turn in trajectory.turns:
        yield f"{indent}{turn.agent}: {_said(turn)}"
        if turn.output.inner is not None:
            yield from _turns(turn.output.inner, f"{indent}  ")


def _said(turn: Turn) -> str:
    if turn.status != "completed":
        return f"({turn.status})"
    return shortened(turn.output.content, LONGEST_TURN) or "(nothing)"


def _verdict(episode: Episode) -> str:
    if episode.scores is None:
        return "no verdict"
    scores = episode.scores
    said = "solved" if episode.success else f"not solved ({episode.status.value})"
    parts = "".join(f", {name} {value:.3g}" for name, value in sorted(scores.parts.items()))
    text = f"{said}, score {scores.value:.3g}{parts}"
    if episode.observation is not None and episode.observation.text:
        text += f". Environment: {shortened(episode.observation.text, LONGEST_TURN)}"
    return text


def shortened(text: str, most: int) -> str:
    """A text without its middle, if it is long."""
    text = text.strip()
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[-half:]}"
