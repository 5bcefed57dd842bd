"""What of an episode a judge gets to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from attrs import frozen

from orchestrion import Episode, Meta, Observation, Problem, Reward, Status, Trajectory, Turn
from orchestrion_judge.prompt import Block

__all__ = ["Show", "Showing", "Shown", "unjudged"]

Show = Literal["answer", "transcript", "observation"]


@frozen
class Shown:
    """What a judge sees.

    Args:
        blocks: the problem, perhaps a reference, then the work.
        length: characters of the work; 0 where there is nothing to judge.
    """

    blocks: tuple[Block, ...]
    length: int


@frozen(kw_only=True)
class Showing:
    """Settings of everything that lets somebody judge.

    Args:
        show: the last content, the whole transcript, or what the environment shows.
        names: whether agents are named; without, they are "agent 1", "agent 2", ...
        reference: the key of the problem's data under which a good answer stands, if there is one.
        last_turns: so many turns of a transcript at most, the last ones; the judge is told.
    """

    show: Show = "answer"
    names: bool = False
    reference: str = ""
    last_turns: Annotated[int, Meta(ge=1)] = 50

    def shown(
        self, problem: Problem, trajectory: Trajectory, observation: Observation | None
    ) -> Shown:
        """The public part of the problem, and the work; failed and empty turns are left out."""
        turns = [one for one in trajectory.turns if _says_something(one)]
        if self.show == "transcript":
            parts = _parts(turns, self.names)[-self.last_turns :]
            work = Block(_title(len(turns) - self.last_turns), parts=parts)
            length = sum(len(turn.output.content) for turn in turns[-self.last_turns :])
        else:
            text = _text(turns, observation, self.show)
            work, length = Block("work", text), len(text.strip())
        before = [Block("problem", problem.text)]
        data = problem.data
        if self.reference and isinstance(data, dict) and isinstance(data.get(self.reference), str):
            before.append(Block("reference", data[self.reference]))
        return Shown((*before, work), length)


def unjudged(episode: Episode, work: Shown, unfinished: Literal["zero", "judge"]) -> Reward | None:
    """The reward of what nobody need look at: unfinished work that counts as 0, and no work."""
    if episode.status is not Status.COMPLETED and unfinished == "zero":
        return Reward(0.0, parts={"unfinished": 1.0})
    return None if work.length else Reward(0.0, parts={"empty": 1.0})


def _title(missing: int) -> str:
    return f"work, without its first {missing} turns" if missing > 0 else "work"


def _text(turns: Sequence[Turn], observation: Observation | None, show: Show) -> str:
    if show == "observation":
        return observation.text if observation is not None else ""
    return turns[-1].output.content if turns else ""


def _says_something(turn: Turn) -> bool:
    return turn.status == "completed" and bool(turn.output.content.strip())


def _parts(turns: Sequence[Turn], names: bool) -> tuple[Block, ...]:
    speakers = list(dict.fromkeys(turn.agent for turn in turns))
    return tuple(
        Block(f"turn {number} by {_name(turn.agent, speakers, names)}", turn.output.content)
        for number, turn in enumerate(turns, 1)
    )


def _name(agent: str, speakers: Sequence[str], names: bool) -> str:
    return agent if names else f"agent {speakers.index(agent) + 1}"
