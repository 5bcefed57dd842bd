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
from orchestrion_logged.reading import episodes_of
from orchestrion_logged.records import Context, Logged, check_record, checked, context_of


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
        if lines[-1].choice not in (lines[-1].allowed or ()):
            return [], "in a replay of its turns, the task does not allow its choice"
        if wrong := check_record(lines[-1]):
            return [], wrong
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
    and `propensity`. The choice is the model. Lines without a model are refused, and so are two
    models that would become one choice.

    Args:
        path: the file.
        category: the tag that has the category.
        reward: the tag that has the feedback.
        cost: the tag that has the cost.

    Raises:
        UsageError: a line is no such request; the message names it.
    """
    lines: list[tuple[str, Logged]] = []
    models: dict[str, str] = {}
    unrated = 0
    # JSON strings may hold other characters at which `splitlines` splits.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            data = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{where}: {error}") from error
        body = next((data[k] for k in ("request", "body") if isinstance(data.get(k), dict)), data)
        tags = {**_tags(body), **_tags(data)}
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise UsageError(f"{where}: has no `model`, which is the choice")
        choice = model.replace(":", "-")  # colons separate agent and option in a choice
        other = models.setdefault(choice, model)
        if other != model:
            raise UsageError(
                f"{where}: the models {other!r} and {model!r} would both be the choice "
                f"{choice!r}; rename one of them"
            )
        feedback = _first(tags, data, reward, "feedback", "score")
        unrated += feedback is None
        record = Logged(
            Context(text=_question_in(body), category=str(_first(tags, data, category) or "")),
            choice,
            reward=_number(feedback, f"{where}: {reward}"),
            cost=_number(_first(tags, data, cost, "usd"), f"{where}: {cost}") or 0.0,
            propensity=_number(_first(tags, data, "propensity"), f"{where}: propensity"),
            tags=tags,
        )
        lines.append((where, record))
    notes = [f"{unrated} of {len(lines)} requests have no feedback"] if unrated else []
    return _imported(path, lines, notes)


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


def _imported(path: Path, lines: Sequence[tuple[str, Logged]], notes: list[str]) -> Imported:
    """Return what a file holds, after checking it as a reader of the log would."""
    for where, record in lines:
        checked(record, where)
    episodes_of(path, lines, notes)
    return Imported([record for _, record in lines], notes)


def _number(value: Any, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        # Python's own form 1_0 is no number in a table.
        number = math.nan if "_" in str(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}: {value!r:.80} is not a number")
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
    try:
        return _table(path, rows, columns)
    except csv.Error as error:
        raise UsageError(f"{path}:{rows.line_num}: {error}") from error


def _table(path: Path, rows: csv.DictReader[str], columns: Mapping[str, str]) -> Imported:
    header = rows.fieldnames or []
    if strange := [name for name in columns if name not in COLUMNS]:
        fields = ", ".join(COLUMNS)
        raise UsageError(f"--column {strange[0]}: unknown field; the fields are: {fields}")
    at = {**COLUMNS, **columns}
    for name in (*columns, "choice"):
        lacking = [c for c in at[name].split(",") if c not in header]
        if lacking:
            raise UsageError(f"{path}:1: has no column {lacking[0]!r}; it has {', '.join(header)}")
    used = {column for name in at.values() for column in name.split(",")}
    if twice := [column for column in header if column in used and header.count(column) > 1]:
        raise UsageError(f"{path}:1: has two columns {twice[0]!r}; rename one of them")
    notes = [
        f"the column {column!r} is not read; --column {name}={column} names it"
        for column in header
        if column not in used and (name := column.strip().casefold()) in COLUMNS
    ]
    lines = []
    for row in rows:
        where = f"{path}:{rows.line_num}"
        lines.append((where, _row(row, at, where)))
    return _imported(path, lines, notes)


def _row(row: Mapping[str, str | None], at: Mapping[str, str], where: str) -> Logged:
    def text(name: str) -> str:
        return (row.get(at[name]) or "").strip()

    def number(name: str) -> float | None:
        return _number(text(name), f"{where}: {at[name]}")

    if None in row or None in row.values():
        raise UsageError(f"{where}: has more or fewer fields than the header")
    features = []
    for column in filter(None, at["features"].split(",")):
        value = _number((row[column] or "").strip(), f"{where}: {column}")
        if value is None:
            raise UsageError(f"{where}: {column}: is empty; a feature needs a number")
        features.append(value)
    step = number("step") or 0.0
    if not step.is_integer():
        raise UsageError(f"{where}: {at['step']}: {text('step')!r} is not a whole number")
    return Logged(
        Context(text=text("text"), category=text("category"), features=tuple(features)),
        text("choice"),
        tuple(text("allowed").split("|")) if text("allowed") else None,
        number("propensity"),
        number("reward"),
        number("score"),
        number("cost") or 0.0,
        text("episode"),
        int(step),
    )


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
