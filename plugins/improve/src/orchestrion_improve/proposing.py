"""Ask a model for habits of an agent, from its best and its worst episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import frozen
from orchestrion_beam.interfaces import Group

from orchestrion import Key, Model, Session
from orchestrion_improve.asking import (
    Example,
    UnusableError,
    as_text,
    ask,
    examples,
    fields_of,
    read_object,
    shortened,
    team_of,
)
from orchestrion_improve.habits import ANY, Habit, Library, problem_of_text

MOST_REFUSED = 12
"""Refused habits that a question lists."""
SYSTEM = """\
You coach one agent of a team. You read episodes in which the team did well and episodes in which \
it did badly, and find short habits for this agent: instructions of one sentence that will help \
with problems nobody has seen yet. A habit says what to do, not what the problem was; it holds no \
answers. Every habit is tried on other problems, and kept only if the team gets better by it.

Answer with one JSON object and nothing else:
{"habits": [{"category": "...", "habit": "...", "replaces": null}]}
`category` is one of those listed, or "any" for all problems. `replaces` is the text of a present \
habit that the new one should take the place of, or null. An empty list is a good answer if there \
is nothing to learn."""


@frozen
class Candidate:
    """Hold a proposed habit, and the one in use that it would replace."""

    habit: Habit
    replaces: Habit | None = None


def read_habits(
    text: str, role: str, categories: Sequence[str], active: Sequence[Habit], limit: int
) -> list[Candidate]:
    """Return the habits for an agent that an answer proposes.

    Raises:
        UnusableError: the answer has another form, or more habits than `limit`; or a habit has
            another category than those listed, or replaces none that is active.
    """
    rows = read_object(text, ["habits"])["habits"]
    if not isinstance(rows, list):
        raise UnusableError("`habits` is not a list")
    if len(rows) > limit:
        raise UnusableError(f"it has {len(rows)} habits; {limit} is the most")
    in_use: dict[str | None, Habit | None] = {None: None, **{h.instruction: h for h in active}}
    proposals = []
    for n, row in enumerate(rows, 1):
        fields = fields_of(
            {"replaces": None, **row} if isinstance(row, dict) else row,
            ["category", "habit", "replaces"],
            f"habit {n}",
        )
        category, habit, replaces = fields["category"], fields["habit"], fields["replaces"]
        if category not in (*categories, ANY):
            raise UnusableError(f"the category of habit {n} is none of those listed")
        if problem := problem_of_text(habit):
            raise UnusableError(f"habit {n} {problem}")
        if not isinstance(replaces, str | None) or replaces not in in_use:
            raise UnusableError(f"`replaces` of habit {n} is none of the present habits")
        proposals.append(Candidate(Habit(role, category, habit.strip()), in_use[replaces]))
    return list(dict.fromkeys(proposals))


@frozen
class Proposer:
    """Asks a model for habits."""

    model: Model
    proposals: int  # most habits of an answer
    examples: int  # best and worst episodes of each category
    reads: int  # characters of episodes in a question
    max_tokens: int  # of an answer

    async def propose(
        self,
        library: Library,
        role: str,
        groups: Sequence[Group],
        session: Session,
        key: Key,
        counts: Counter[str],
    ) -> list[Candidate]:
        """Return the habits that the model proposes for an agent, from its episodes in groups."""
        best, worst = examples(groups, role, self.examples)
        if not best and not worst:
            return []
        categories = sorted({e.category for e in (*best, *worst) if e.category})
        active, refused = library.active(role), library.refused(role)
        characters = self.reads // (len(best) + len(worst))
        question = [
            f"Agent: {role}",
            team_of(session),
            f"Categories: {', '.join([*categories, ANY])}",
            f"Present habits:\n{_listed(active)}",
            f"Tried before, and no help:\n{_listed(refused[-MOST_REFUSED:])}",
            *_example_lines("Went well", best, characters),
            *_example_lines("Went badly", worst, characters),
            f"Propose at most {self.proposals} habits for {role}.",
        ]
        candidates = await ask(
            self.model,
            session,
            key.child(role),
            SYSTEM,
            "\n\n".join(question),
            lambda text: read_habits(text, role, categories, active, self.proposals),
            self.max_tokens,
            counts,
        )
        return candidates or []


def _listed(habits: Sequence[Habit]) -> str:
    return "\n".join(f"- {habit.instruction}" for habit in habits) or "(none)"


def _example_lines(title: str, chosen: Sequence[Example], characters: int) -> list[str]:
    parts = []
    for n, example in enumerate(chosen, 1):
        about = f", category {example.category}" if example.category else ""
        text = shortened(as_text(example.episode), characters)
        parts.append(f"## {title} {n}{about}, {example.credit:+.2f}\n{text}")
    return parts
