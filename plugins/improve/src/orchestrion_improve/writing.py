"""Ask a model for the instructions of an agent, from episodes or from two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import frozen

from orchestrion import Episode, Key, Model, Session
from orchestrion_improve.asking import (
    UnusableError,
    as_text,
    ask,
    read_object,
    shortened,
    team_of,
)

SHOWN_CHARACTERS = 6000
"""Of an episode."""
EPISODE_CHARACTERS = SHOWN_CHARACTERS + 200
"""The same with its heading."""
FORM = """\
Answer with one JSON object and nothing else: {"instructions": "..."}"""
REFLECT = f"""\
You improve the instructions of one agent of a team. You read its present instructions, and what \
happened on some problems with them: who said what, and what the verifier found. Find out what the \
agent should do otherwise, and write its instructions anew: keep what works, add what was missing, \
be specific about the kind of problem, and hold no answers, since the instructions will be used on \
other problems. They are tried on other problems, and kept only if the team gets better by them.

{FORM}"""
COMBINE = f"""\
You improve the instructions of one agent of a team. Two versions of them were written, and each \
is the better one on some problems. Write one text that has what makes each of them good.

{FORM}"""


def read_instructions(text: str, longest: int) -> str:
    """Return the instructions in an answer.

    Raises:
        UnusableError: the answer has another form, or the instructions are too long.
    """
    instructions = read_object(text, ["instructions"])["instructions"]
    if not isinstance(instructions, str) or not instructions.strip():
        raise UnusableError("`instructions` is no text")
    if len(instructions) > longest:
        raise UnusableError(
            f"`instructions` has {len(instructions)} characters; {longest} is the most"
        )
    return instructions.strip()


@frozen
class Writer:
    """Asks a model for texts, and counts answers that cannot be used."""

    model: Model
    longest: int  # characters of a text
    max_tokens: int  # of an answer
    session: Session
    counts: Counter[str]

    async def rewrite(
        self, role: str, present: str, episodes: Sequence[tuple[Episode, float]], key: Key
    ) -> str | None:
        """Return a new text for an agent, from episodes and their rewards with the present one."""
        parts = [_quoted("Present instructions", present)]
        for n, (episode, reward) in enumerate(episodes, 1):
            about = f", category {episode.problem.category}" if episode.problem.category else ""
            text = shortened(as_text(episode), SHOWN_CHARACTERS)
            parts.append(f"## Episode {n}{about}, reward {reward:.3g}\n{text}")
        parts.append(
            f"Write the instructions of {role} anew, in at most {self.longest} characters."
        )
        return await self._ask(REFLECT, [f"Agent: {role}", team_of(self.session), *parts], key)

    async def combine(self, role: str, versions: Sequence[str], key: Key) -> str | None:
        """Return one text out of two."""
        parts = [
            f"Agent: {role}",
            *(_quoted(f"Version {n}", text) for n, text in enumerate(versions, 1)),
            f"Write one text out of both, in at most {self.longest} characters.",
        ]
        return await self._ask(COMBINE, parts, key)

    async def _ask(self, system: str, parts: Sequence[str], key: Key) -> str | None:
        return await ask(
            self.model,
            self.session,
            key,
            system,
            "\n\n".join(parts),
            lambda text: read_instructions(text, self.longest),
            self.max_tokens,
            self.counts,
        )


def _quoted(title: str, text: str) -> str:
    return f"{title}:\n~~~\n{text or '(none)'}\n~~~"
