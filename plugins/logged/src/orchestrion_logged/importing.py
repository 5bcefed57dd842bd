"""Import logs from runs, chat logs and tables.

Each importer returns records, and notes on what could not be imported.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import Factory, frozen
from orchestrion_values import NotReplayable, problems_of, situations_of

from orchestrion import (
    Episode,
    Problem,
    Task,
    UsageError,
    choice_name,
    choices,
    is_blocked,
)
from orchestrion_logged.decisions import STOP, activation
from orchestrion_logged.records import Context, Logged, check_record, context_of


@frozen
class Imported:
    """The decisions of an import, in order, and what could not be imported, a line each."""

    records: list[Logged]
    notes: list[str] = Factory(list)


# ------------------------------------------------------------------------------------ runs


async def from_run(target: str, source: str = "train", block: Sequence[str] = ()) -> Imported:
    """Return the decisions of a run's episodes.

    A run stores turns, and decisions with their log-probabilities if the policy states them
    (`random`, `neural`, and `values` in training do). Observations are not stored: the environment
    is replayed from the turns, and an episode whose last observation differs from the stored one
    (as the task draws at random) is left out.

    Args:
        target: the run.
        source: "train", or the name of an evaluation.
        block: plugins that are never imported.

    Raises:
        UsageError: `target` is no run, or nothing can be imported.
    """
    from orchestrion.runs import RunReader, open_run

    async with open_run(target, block=block) as trained:
        if trained.directory is None:
            raise UsageError(f"{target}: is a config; name a run")
        team, task = trained.engine.team, trained.opened.runtimes["task"]
        names = [choice_name(choice) for choice in choices(team.roster)]
        hidden = problems_of(task)
        records: list[Logged] = []
        lost: Counter[str] = Counter()
        with RunReader(trained.directory) as reader:
            for stored in reader.episodes(source=source):
                lines, why = _replayed(stored.episode, task, hidden, names)
                records += lines
                if why:
                    lost[why] += 1
    notes = [f"left out: {count} episodes: {why}" for why, count in lost.items()]
    if not records:
        raise UsageError("\n".join([f"{target}: no decisions of {source!r} to import", *notes]))
    unknown = sum(record.propensity is None for record in records)
    if unknown:
        notes.append(
            f"{unknown} of {len(records)} decisions have no propensity: the run's policy does not "
            "state the probability of what it decides"
        )
    return Imported(records, notes)


def _replayed(
    episode: Episode, task: Task, hidden: Mapping[str, Problem], names: Sequence[str]
) -> tuple[list[Logged], str]:
    """Return an episode's decisions, or the reason why it is left out."""
    if episode.reward is None:
        return [], "it has no reward"
    problem = hidden.get(episode.problem.id, episode.problem)
    try:
        situations = situations_of(episode, task, problem)
    except NotReplayable as error:
        return [], str(error)
    parts = _rewards(episode)
    turns = {turn.decision: turn for turn in episode.turns}
    lines: list[Logged] = []
    for place, (decision, situation) in enumerate(zip(episode.decisions, situations, strict=True)):
        turn, seen = turns.get(place), situation.observation
        allowed = [
            name
            for name, choice in zip(names, map(activation, names), strict=True)
            if not is_blocked(choice, seen)
        ]
        lines.append(
            Logged(
                context_of(episode.problem, seen),
                choice_name(decision.start[0]) if decision.start else STOP,
                (*allowed, STOP) if STOP not in allowed else tuple(allowed),
                math.exp(min(decision.logp, 0.0)) if decision.logp is not None else None,
                reward=parts[place],
                cost=turn.usage.cost if turn is not None else 0.0,
                episode=episode.id,
                step=place,
                answer=turn.output.content if turn is not None else "",
                status=turn.status if turn is not None else "completed",
            )
        )
        if check_record(lines[-1]):
            return [], "in a replay of its turns, the task does not allow its choice"
    return lines, ""


def _rewards(episode: Episode) -> list[float]:
    """Return the rewards between decisions: those of turns; the last gets the rest."""
    assert episode.reward is not None
    parts = [0.0] * len(episode.decisions)
    for turn, part in zip(episode.turns, episode.reward.turns or (), strict=False):
        parts[turn.decision] += part
    parts[-1] += episode.reward.total - sum(parts)
    return parts


# ------------------------------------------------------------------------------- chat logs


def from_chats(
    path: Path, category: str = "category", reward: str = "reward", cost: str = "cost"
) -> Imported:
    """Return the decisions of a chat log: JSON lines, a request to a model per line.

    A line has the `model`, or a `request` or `body` that has it; `messages`, of which the last of
    role "user" is the text, likewise; and tags, in `metadata` or `tags` or beside the rest:
    `category`, `reward` (a number, true or false; also `feedback` and `score`), `cost` (also `usd`)
    and `propensity`. The choice is the model. Lines without a model are refused.

    Args:
        path: the file.
        category: the tag that has the category.
        reward: the tag that has the feedback.
        cost: the tag that has the cost.

    Raises:
        UsageError: a line is no such request; the message names it.
    """
    records, unrated = [], 0
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            data = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise UsageError(f"{where}: {error}") from error
        body = next((data[k] for k in ("request", "body") if isinstance(data.get(k), dict)), data)
        tags = {**_tags(body), **_tags(data)}
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise UsageError(f"{where}: has no `model`, which is the choice")
        feedback = _first(tags, data, reward, "feedback", "score")
        unrated += feedback is None
        records.append(
            Logged(
                Context(text=_question_in(body), category=str(_first(tags, data, category) or "")),
                # Colons separate agent and option in a choice.
                model.replace(":", "-"),
                reward=_number(feedback, f"{where}: {reward}"),
                cost=_number(_first(tags, data, cost, "usd"), f"{where}: {cost}") or 0.0,
                propensity=_number(_first(tags, data, "propensity"), f"{where}: propensity"),
                tags=tags,
            )
        )
    notes = [f"{unrated} of {len(records)} requests have no feedback"] if unrated else []
    return Imported(records, notes)


def _tags(part: Mapping[str, Any]) -> dict[str, Any]:
    given = (part.get(name) for name in ("metadata", "tags"))
    return {k: v for tags in given if isinstance(tags, dict) for k, v in tags.items()}


def _first(tags: Mapping[str, Any], data: Mapping[str, Any], *names: str) -> Any:
    values = (place.get(name) for name in names for place in (tags, data))
    return next((value for value in values if value is not None), None)


def _question_in(body: Mapping[str, Any]) -> str:
    """Return the text of the last message of a user."""
    messages = body.get("messages")
    messages = [m for m in messages if isinstance(m, dict)] if isinstance(messages, list) else []
    content = next((m.get("content") for m in messages[::-1] if m.get("role") == "user"), "")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _number(value: Any, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}: {value!r} is not a number")
    return number


# ---------------------------------------------------------------------------------- tables


COLUMNS = {
    "choice": "choice",
    "text": "text",  # of the problem
    "category": "category",
    "features": "",  # columns of numbers, separated by commas
    "propensity": "propensity",
    "reward": "reward",
    "score": "score",  # instead of a reward
    "cost": "cost",
    "allowed": "allowed",  # choices, separated by `|` in the table
    "episode": "episode",
    "step": "step",
}
"""The column of each field, unless another one is named."""


def from_table(path: Path, columns: Mapping[str, str]) -> Imported:
    """Return the decisions of a CSV file with a header.

    Args:
        path: the file.
        columns: names of columns that differ from `COLUMNS`, by field.

    Raises:
        UsageError: a column is missing, or a line is wrong; the message names it.
    """
    rows = csv.DictReader(io.StringIO(_text(path)))
    header = rows.fieldnames or []
    if strange := [name for name in columns if name not in COLUMNS]:
        fields = ", ".join(COLUMNS)
        raise UsageError(f"--column {strange[0]}: unknown field; the fields are: {fields}")
    at = {**COLUMNS, **columns}
    for name in (*columns, "choice"):
        lacking = [c for c in at[name].split(",") if c not in header]
        if lacking:
            raise UsageError(f"{path}:1: has no column {lacking[0]!r}; it has {', '.join(header)}")
    return Imported([_row(row, at, f"{path}:{rows.line_num}") for row in rows])


def _row(row: Mapping[str, str | None], at: Mapping[str, str], where: str) -> Logged:
    def text(name: str) -> str:
        return (row.get(at[name]) or "").strip()

    def number(name: str) -> float | None:
        return _number(text(name), f"{where}: {at[name]}")

    if None in row or None in row.values():
        raise UsageError(f"{where}: has more or fewer fields than the header")
    features = [_number(row[c], f"{where}: {c}") for c in at["features"].split(",") if c]
    record = Logged(
        Context(
            text=text("text"),
            category=text("category"),
            features=tuple(0.0 if value is None else value for value in features),
        ),
        text("choice"),
        tuple(text("allowed").split("|")) if text("allowed") else None,
        number("propensity"),
        number("reward"),
        number("score"),
        number("cost") or 0.0,
        text("episode"),
        int(number("step") or 0),
    )
    if wrong := check_record(record):
        raise UsageError(f"{where}: {wrong}")
    return record


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def write(path: Path, imported: Imported) -> None:
    """Write a log atomically; it is compressed if its name ends in `.gz`.

    Raises:
        StoreError: it cannot be written.
    """
    from orchestrion.runs import write_atomic

    text = msgspec.json.Encoder().encode_lines(imported.records)
    write_atomic(path, [gzip.compress(text, mtime=0) if path.suffix == ".gz" else text])
