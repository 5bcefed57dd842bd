"""Read logs: files of decisions, and folders of served teams, also while a server writes to them.

Feedback is joined with the decisions of its request, or episode: the last score that a user gave
counts; without one, the last of a verifier. It becomes the score of the last decision; that of an
episode that a limit ended is 0, as an evaluation has it.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import Factory, frozen
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from orchestrion import UsageError
from orchestrion_logged.records import Context, Logged, LoggedEpisode, check_record
from orchestrion_logged.served import STEPS, Feedback, ServedRequest, ServedStep, segments

_REPORTED = 5
"""The maximum of errors that are reported for one log."""
_DECISION = msgspec.json.Decoder(Logged)
_OTHERS: Mapping[str, Any] = {
    "served": msgspec.json.Decoder(ServedRequest),
    "feedback": msgspec.json.Decoder(Feedback),
    "step": msgspec.json.Decoder(ServedStep),
}
"""By a key that the line has, if it has no `context` or `choice`; any other is a decision."""


class _Keys(msgspec.Struct):
    """The keys that tell the kinds of lines apart; values are not read."""

    context: Raw | UnsetType = UNSET
    choice: Raw | UnsetType = UNSET
    served: Raw | UnsetType = UNSET
    feedback: Raw | UnsetType = UNSET
    step: Raw | UnsetType = UNSET


_KEYS = msgspec.json.Decoder(_Keys)


@frozen
class Log:
    """A log as it was read."""

    episodes: list[LoggedEpisode]  # in the order in which they begin
    notes: list[str] = Factory(list)  # what was not read, a line each
    served: Mapping[str, ServedRequest] = Factory(dict)  # by id, in the order of the answers
    feedback: Mapping[str, Feedback] = Factory(dict)  # what counts for a request, by its id
    scores: Sequence[Feedback] = ()  # all feedback, in the order in which it came
    steps: Sequence[ServedStep] = ()  # of versions


def read_log(path: Path) -> list[LoggedEpisode]:
    """Return the episodes of a log, in the order in which they begin; see `read`."""
    return read(path).episodes


def read(path: Path) -> Log:
    """Return a log.

    Args:
        path: a file, or the folder of a served team, which may hold no decision yet. Lines that
            were cut off are left out, and in a folder lines that are no JSON; a note says so.

    Raises:
        UsageError: it cannot be read, or lines are wrong; the first few are named.
    """
    folder = path.is_dir()
    if folder and not segments(path):
        raise UsageError(f"{path}: is no log of a served model; name a folder with 000001.jsonl")
    problems: list[str] = []
    notes: list[str] = []
    lines: list[tuple[str, Any]] = []
    widths: dict[str, int] = {}
    damaged: list[str] = []
    torn = 0
    for where, line in _lines_of_folder(path, notes) if folder else _lines_of_file(path):
        try:
            record = _decoded(line)
            known = folder or isinstance(record, Logged | Feedback)
            wrong = "" if known else "is a line of a served log"
            if isinstance(record, Logged):
                wrong = check_record(record) or _other_width(record.context, widths)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            wrong = str(error)
            if folder and not isinstance(error, msgspec.ValidationError):
                damaged.append(f"{where}: {wrong}")
                continue
        if wrong and not folder and _cut_off(line):
            torn += 1
            continue
        if wrong:
            problems.append(f"{where}: {wrong}")
            if len(problems) == _REPORTED:
                break
            continue
        lines.append((where, record))
    if len(damaged) > len(lines):
        problems = damaged[:_REPORTED]
    if problems:
        raise UsageError("\n".join(problems))
    if damaged:
        notes.append(f"left out: {len(damaged)} damaged lines, the first is {damaged[0]}")
    if torn:
        notes.append(_torn(torn))
    notes += _without_propensity([(where, x) for where, x in lines if isinstance(x, Logged)])
    return _served(lines, notes) if folder else Log(episodes_of(path, lines, notes), notes)


def _decoded(line: bytes) -> Logged | ServedRequest | Feedback | ServedStep:
    keys = _KEYS.decode(line)
    if keys.context is UNSET and keys.choice is UNSET:
        for name, decoder in _OTHERS.items():
            if getattr(keys, name) is not UNSET:
                record: ServedRequest | Feedback | ServedStep = decoder.decode(line)
                return record
    return _DECISION.decode(line)


def _other_width(context: Context, widths: dict[str, int]) -> str:
    """Return the error of more or fewer numbers than in earlier lines; "" if there is none.

    A line may do without hints.
    """
    counts = {"features": len(context.features)}
    if context.hints:  # as many for every choice, as `check_record` has seen
        counts["hints"] = len(next(iter(context.hints.values())))
    for name, count in counts.items():
        if count != widths.setdefault(name, count):
            return f"`{name}`: {count} numbers, but {widths[name]} in earlier lines"
    return ""


def _without_propensity(decisions: Sequence[tuple[str, Logged]]) -> list[str]:
    """Return a note if some decisions lack a propensity, and others have one."""
    without = [where for where, decision in decisions if decision.propensity is None]
    if not 0 < len(without) < len(decisions):
        return []
    count = f"{len(without)} of {len(decisions)}"
    return [f"{count} decisions have no propensity, the first is {without[0]}"]


def _cut_off(line: bytes) -> bool:
    """Return whether a line is only the beginning of a line."""
    for text in (line, line + b"0"):  # what ends within a number needs another digit
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            if "truncated" in str(error):  # errors of msgspec are of one class
                return True
        except (UnicodeDecodeError, RecursionError):
            return False
    return False


def _torn(count: int) -> str:
    return f"left out: {count} lines that were cut off, or are being written"


def episodes_of(
    path: Path, lines: Sequence[tuple[str, Logged | Feedback]], notes: list[str]
) -> list[LoggedEpisode]:
    """Return the decisions of a file, by episode.

    Args:
        path: of the file.
        lines: each with its place.
        notes: what is left out is added.

    Raises:
        UsageError: there are no decisions, or the steps of an episode have a gap.
    """
    episodes: dict[str, list[tuple[str, Logged]]] = {}
    scores: list[Feedback] = []
    for where, record in lines:
        if isinstance(record, Feedback):
            scores.append(record)
        else:
            episodes.setdefault(record.episode or f"\0{where}", []).append((where, record))
    feedback = _counting(scores)
    if strangers := feedback.keys() - episodes.keys():
        notes.append(f"left out: feedback on {len(strangers)} episodes that are not in the log")
    problems = [text for steps in episodes.values() if (text := _gap(steps))][:_REPORTED]
    if problems:
        raise UsageError("\n".join(problems))
    if not episodes:
        raise UsageError("; ".join([f"{path}: holds no decisions", *notes]))
    return [
        _scored([r for _, r in sorted(steps, key=lambda item: item[1].step)], feedback.get(name))
        for name, steps in episodes.items()
    ]


def _gap(steps: Sequence[tuple[str, Logged]]) -> str:
    """Return the error in the steps of an episode; "" if there is none."""
    for place, (where, record) in enumerate(sorted(steps, key=lambda item: item[1].step)):
        if record.step != place:
            what = "repeated" if record.step < place else f"there, but step {place} is missing"
            return f"{where}: episode {record.episode!r}: step {record.step} is {what}"
    return ""


def _served(lines: Sequence[tuple[str, Any]], notes: list[str]) -> Log:
    """Return a served log: decisions, requests and feedback, joined."""
    open_: dict[str, list[Logged]] = {}
    decided: dict[str, list[Logged]] = {}
    served: dict[str, ServedRequest] = {}
    scores: list[Feedback] = []
    steps: list[ServedStep] = []
    for _, record in lines:
        if isinstance(record, Logged):
            open_.setdefault(record.episode, []).append(record)
        elif isinstance(record, ServedRequest):
            served[record.served] = record
            decisions = open_.pop(record.served, [])
            whole = record.decisions in (0, len(decisions))  # else a line of it was damaged
            decided[record.served] = decisions if whole else []
        elif isinstance(record, Feedback):
            scores.append(record)
        else:
            steps.append(record)
    if open_:
        notes.append(f"left out: {len(open_)} requests whose last line is not there")
    counts = _counting(scores)
    if strangers := counts.keys() - served.keys():
        notes.append(f"left out: feedback on {len(strangers)} requests that were removed")
    feedback = {name: score for name, score in counts.items() if name in served}
    if several := sum(not decisions for decisions in decided.values()):
        notes.append(
            f"left out: {several} requests without a decision on one agent: they started several "
            "at once, ended before the first, or were damaged"
        )
    outcomes = {
        name: replace(score, score=0.0) if served[name].status == "limit" else score
        for name, score in feedback.items()
    }
    if cut_off := sum(outcomes[name] != feedback[name] for name in feedback):
        notes.append(
            f"{cut_off} answers with a score above 0 came when a limit ended the episode: they "
            "count as 0 here, as they do in an evaluation"
        )
    episodes = [_scored(steps_, outcomes.get(name)) for name, steps_ in decided.items() if steps_]
    return Log(episodes, notes, served, feedback, scores, steps)


def _counting(scores: Sequence[Feedback]) -> dict[str, Feedback]:
    """Return the scores that count, by what they are about."""
    counts = {score.feedback: score for score in scores if score.by == "verifier"}
    return counts | {score.feedback: score for score in scores if score.by == "user"}


def _scored(decisions: Sequence[Logged], feedback: Feedback | None) -> LoggedEpisode:
    if feedback is None:
        return tuple(decisions)
    *earlier, last = decisions
    return (*earlier, replace(last, score=feedback.score))


def _lines_of_file(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with path.open("rb") as file:
            packed = path.suffix == ".gz"
            lines = gzip.GzipFile(fileobj=file) if packed else file
            for number, line in enumerate(lines, 1):
                text = (line if number > 1 else line.removeprefix(codecs.BOM_UTF8)).strip()
                if text:
                    yield f"{path}:{number}", text
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _lines_of_folder(folder: Path, notes: list[str]) -> Iterator[tuple[str, bytes]]:
    torn = 0
    try:
        steps = folder / STEPS
        for path in [*segments(folder), *([steps] if steps.exists() else [])]:
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # removed by the server since we looked
                continue
            *lines, rest = content.split(b"\n")
            torn += bool(rest)
            yield from ((f"{path}:{n}", line) for n, line in enumerate(lines, 1) if line)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be read: {error}") from error
    if torn:
        notes.append(_torn(torn))
