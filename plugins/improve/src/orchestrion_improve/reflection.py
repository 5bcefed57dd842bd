"""What a model is asked when texts evolve, and how its answers are read."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrion import Episode, Key, Model, Session
from orchestrion_improve.asking import Reply, UnusableError, ask, read_object
from orchestrion_improve.traces import as_text, shortened

__all__ = ["combine", "read_instructions", "reflect"]

LONGEST_TRACE = 6000

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


async def reflect(
    model: Model,
    session: Session,
    key: Key,
    role: str,
    present: str,
    episodes: Sequence[tuple[Episode, float]],
    longest: int,
    max_tokens: int,
) -> Reply[str]:
    """New instructions for a role, from what happened with the present ones.

    Args:
        model: whom to ask.
        session: whose calls these are.
        key: of the question.
        role: the agent.
        present: its instructions.
        episodes: with their rewards.
        longest: characters of the new instructions.
        max_tokens: of the answer.
    """
    team = [f"{one.name} ({one.role})" if one.role else one.name for one in session.roster]
    parts = [f"Agent: {role}", f"Team: {', '.join(team)}", _quoted("Present instructions", present)]
    for n, (episode, reward) in enumerate(episodes, 1):
        about = f", category {episode.problem.category}" if episode.problem.category else ""
        trace = shortened(as_text(episode), LONGEST_TRACE)
        parts.append(f"## Episode {n}{about}, reward {reward:.3g}\n{trace}")
    parts.append(f"Write the instructions of {role} anew, in at most {longest} characters.")
    return await _ask(model, session, key, REFLECT, parts, longest, max_tokens)


async def combine(
    model: Model,
    session: Session,
    key: Key,
    role: str,
    versions: tuple[str, str],
    longest: int,
    max_tokens: int,
) -> Reply[str]:
    """One text out of two; arguments as for `reflect`."""
    parts = [f"Agent: {role}"]
    parts += [_quoted(f"Version {n}", text) for n, text in enumerate(versions, 1)]
    parts.append(f"Write one text out of both, in at most {longest} characters.")
    return await _ask(model, session, key, COMBINE, parts, longest, max_tokens)


async def _ask(
    model: Model,
    session: Session,
    key: Key,
    system: str,
    parts: Sequence[str],
    longest: int,
    max_tokens: int,
) -> Reply[str]:
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
    return await ask(
        model, session, key, messages, lambda text: read_instructions(text, longest), max_tokens
    )


def _quoted(title: str, text: str) -> str:
    return f"{title}:\n~~~\n{text or '(none)'}\n~~~"


def read_instructions(text: str, longest: int) -> str:
    """The instructions in an answer.

    Raises:
        UnusableError: it has another form.
    """
    found = read_object(text, ["instructions"])["instructions"]
    if not isinstance(found, str) or not found.strip():
        raise UnusableError("`instructions` is no text")
    if len(found) > longest:
        raise UnusableError(f"`instructions` has {len(found)} characters; {longest} is the most")
    return found.strip()
