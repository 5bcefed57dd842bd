"""What a model is asked for habits, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen
from orchestrion_beam.interfaces import Group

from orchestrion import JSON, Key, Model, Session
from orchestrion_improve.asking import Reply, UnusableError, ask, fields_of, read_object
from orchestrion_improve.habits import ANY, Habit, text_problem
from orchestrion_improve.traces import Example, as_text, examples, shortened

__all__ = ["Proposal", "ask_for_habits", "read_habits"]

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

MOST_REFUSED = 12


@frozen
class Proposal:
    """A habit that a model proposes.

    Args:
        role: for whom.
        category: of problems.
        text: the habit.
        replaces: text of the habit in use that it would replace, as the agent is told it.
    """

    role: str
    category: str
    text: str
    replaces: str | None = None


async def ask_for_habits(
    model: Model,
    session: Session,
    key: Key,
    role: str,
    groups: Sequence[Group],
    active: Sequence[Habit],
    refused: Sequence[Habit],
    most: int,
    count: int,
    reads: int,
    max_tokens: int,
) -> Reply[list[Proposal]]:
    """What a model makes of the best and the worst episodes of a role.

    Args:
        model: whom to ask.
        session: whose calls these are.
        key: of the question.
        role: the agent.
        groups: episodes with advantages.
        active: its habits in use.
        refused: those that were tried and did not help.
        most: habits in an answer.
        count: best and worst episodes of each category.
        reads: characters of them all together.
        max_tokens: of the answer.
    """
    best, worst = examples(groups, role, count)
    if not best and not worst:
        return Reply([])
    categories = sorted({one.category for one in (*best, *worst) if one.category})
    messages = [
        {"role": "system", "content": SYSTEM},
        {
            "role": "user",
            "content": _question(
                session, role, best, worst, categories, active, refused, most, reads
            ),
        },
    ]

    def read(text: str) -> list[Proposal]:
        return read_habits(text, role, categories, [one.told for one in active], most)

    return await ask(model, session, key, messages, read, max_tokens)


def _question(
    session: Session,
    role: str,
    best: Sequence[Example],
    worst: Sequence[Example],
    categories: Sequence[str],
    active: Sequence[Habit],
    refused: Sequence[Habit],
    most: int,
    reads: int,
) -> str:
    team = [f"{one.name} ({one.role})" if one.role else one.name for one in session.roster]
    parts = [
        f"Agent: {role}",
        f"Team: {', '.join(team)}",
        f"Categories: {', '.join([*categories, ANY])}",
        "Present habits:\n" + _listed([one.told for one in active]),
        "Tried before, and no help:\n" + _listed([one.told for one in refused[-MOST_REFUSED:]]),
    ]
    share = reads // (len(best) + len(worst))
    for name, chosen in (("Went well", best), ("Went badly", worst)):
        for n, one in enumerate(chosen, 1):
            about = f", category {one.category}" if one.category else ""
            parts.append(
                f"## {name} {n}{about}, {one.credit:+.2f}\n{shortened(as_text(one.episode), share)}"
            )
    parts.append(f"Propose at most {most} habits for {role}.")
    return "\n\n".join(parts)


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts) or "(none)"


def read_habits(
    text: str, role: str, categories: Sequence[str], active: Sequence[str], most: int
) -> list[Proposal]:
    """The habits in an answer.

    Raises:
        UnusableError: it has another form, or too many of them.
    """
    rows = read_object(text, ["habits"])["habits"]
    if not isinstance(rows, list):
        raise UnusableError("`habits` is not a list")
    if len(rows) > most:
        raise UnusableError(f"it has {len(rows)} habits; {most} is the most")
    found = [_proposal(row, role, categories, active, n) for n, row in enumerate(rows)]
    return list(dict.fromkeys(found))


def _proposal(
    row: JSON, role: str, categories: Sequence[str], active: Sequence[str], n: int
) -> Proposal:
    fields: Mapping[str, JSON] = fields_of(
        {"replaces": None, **row} if isinstance(row, dict) else row,
        ["category", "habit", "replaces"],
        f"habit {n + 1}",
    )
    category, habit, replaces = fields["category"], fields["habit"], fields["replaces"]
    if category not in (*categories, ANY):
        raise UnusableError(f"the category of habit {n + 1} is none of those listed")
    if problem := text_problem(habit):
        raise UnusableError(f"habit {n + 1} {problem}")
    if replaces is not None and replaces not in active:
        raise UnusableError(f"`replaces` of habit {n + 1} is none of the present habits")
    return Proposal(role, category, habit.strip(), replaces)
